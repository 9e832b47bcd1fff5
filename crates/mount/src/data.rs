//! Reading and writing: which way data goes, and in which thread.
//!
//! | request | past the volume's page cache | through it |
//! |---|---|---|
//! | read(2) and write(2) of a file opened with `O_DIRECT` | all | |
//! | read(2) and write(2) of another file that bypasses the kernel's page cache | | all |
//! | the kernel fills its pages | what the volume has no page of: the kernel keeps it | else |
//! | write(2) through the kernel's pages | | all |
//! | the kernel writes pages back | large ones | small ones: many become one request to the device |
//!
//! The volume keeps both ways coherent; a direct write has the kernel [drop its pages](crate::invalidation) before it is
//! answered. The thread that took the request carries it out if another one is left to take
//! requests; else what goes past the cache is handed to a [lane](crate::lanes), which waits for many at once, and what
//! goes through it to a worker. Once many are under way there, all small ones go to lanes: a thread that waits for the device
//! wakes up for each of its requests, a lane for all that are done.

use std::sync::Arc;

use fuser::{Errno, LockOwner, ReplyData, ReplyWrite, WriteFlags};
use parext4::device::BufferPool;
use parext4::{Error, File, InodeFlags, IoRequest};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::crew::{Expected, Working};
use crate::failure::{Failure, Outcome};
use crate::files::Place;
use crate::front::{Deferred, Front};
use crate::handles::OpenFile;
use crate::server::Server;
use crate::under_way::{Stage, Ticket, What};

/// A write-back request of at least this many bytes bypasses the volume's page cache.
const LARGE: u64 = 128 << 10;

/// If a write does not fit as a whole, it is retried in pieces that end at multiples of this many bytes.
const PIECE: u64 = 4096;

/// Requests of so many bytes and less take longer to wake up for than to copy.
const SMALL: usize = 32 << 10;

/// With so many requests in lanes these are awake most of the time. With fewer it costs more to hand requests on.
const MANY: usize = 16;

/// More bytes than all lanes write at a time.
const PLENTY: u64 = 1 << 30;

/// What a request to read or write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A read(2) or write(2) that bypasses the kernel's page cache.
    Direct,
    /// The kernel fills pages, which are locked until the answer, or passes on what a program writes to them.
    Pages,
    /// The kernel writes pages back.
    WriteBack,
}

/// What a read request says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    at: Place,
    len: usize,
    origin: Origin,
}

impl Read {
    /// Only direct requests name the owner of a lock.
    pub fn new(at: Place, len: u32, owner: Option<LockOwner>) -> Self {
        let origin = if owner.is_some() { Origin::Direct } else { Origin::Pages };
        Self { at, len: len as usize, origin }
    }
}

/// What a write request says besides its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub at: Place,
    origin: Origin,
    caller: Caller,
    /// The caller may not keep set-ID bits.
    drops_set_ids: bool,
    /// What the write makes durable before it is answered.
    durable: Durable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    No,
    Data,
    All,
}

impl Write {
    pub fn new(at: Place, write_flags: WriteFlags, flags: i32, caller: Caller) -> Self {
        let durable = match flags & libc::O_SYNC {
            libc::O_SYNC => Durable::All,
            libc::O_DSYNC => Durable::Data,
            _ => Durable::No,
        };
        let drops_set_ids = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let origin = if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            Origin::WriteBack
        } else if write_flags.contains(WriteFlags::FUSE_WRITE_LOCKOWNER) {
            Origin::Direct
        } else {
            Origin::Pages
        };
        Self { at, origin, caller, drops_set_ids, durable }
    }

    /// Returns true if the server must set the file's times. With `cache=writeback` the kernel sets those of the data
    /// that it writes back.
    fn is_undated(self, open: &OpenFile) -> bool {
        open.keeps_times && self.origin != Origin::WriteBack
    }
}

impl Server {
    fn read(&self, open: &OpenFile, past: bool, offset: u64, buf: &mut [u8]) -> Outcome<usize> {
        self.heed(self.try_read(open, past, offset, buf))
    }

    fn try_read(&self, open: &OpenFile, past: bool, offset: u64, buf: &mut [u8]) -> Outcome<usize> {
        let count = match past {
            true => open.file.read_at(buf, offset)?,
            false => open.buffered()?.read_at(buf, offset)?,
        };
        self.note_access(open.file.node());
        Ok(count)
    }

    fn write(&self, open: &OpenFile, write: Write, data: &[u8]) -> Outcome<u32> {
        self.carry_out(open.may_use_reserved, || self.try_write(open, write, data))
    }

    fn try_write(&self, open: &OpenFile, write: Write, data: &[u8]) -> Outcome<u32> {
        let offset = write.at.offset;
        self.before_write(open, write)?;
        if write.appends(open) {
            open.buffered()?.append(data)?;
        } else if write.goes_past(open, data.len()) {
            open.file.write_at(data, offset)?;
        } else {
            let written = write_cached(open, data, offset)?;
            return self.after_write(open, write, written);
        }
        self.after_write(open, write, data.len() as u64)
    }

    /// Whether so much is free that all writes of all lanes leave what is reserved: lanes do not know whose they are.
    fn has_plenty(&self) -> bool {
        let space = self.volume.space();
        space.available_blocks.saturating_mul(space.block_size.into()) > PLENTY
    }

    fn before_write(&self, open: &OpenFile, write: Write) -> Outcome<()> {
        let node = open.file.node();
        if write.overwrites_appends(open) {
            return Err(Failure::NOT_PERMITTED);
        }
        if write.drops_set_ids {
            self.drop_set_ids(node, write.caller)?;
        }
        // Before the kernel caches a write to send it later, it removes the capabilities itself.
        if write.origin != Origin::WriteBack {
            self.handles.remove_capabilities(open)?;
        }
        Ok(())
    }

    /// What the kernel keeps it syncs itself.
    fn after_write(&self, open: &OpenFile, write: Write, written: u64) -> Outcome<u32> {
        if write.is_undated(open) {
            open.file.node().touch_modified()?;
        }
        match write.durable {
            Durable::No if self.options.sync => open.sync(false)?,
            Durable::No => {}
            Durable::Data => open.sync(true)?,
            Durable::All => open.sync(false)?,
        }
        Ok(u32::try_from(written).unwrap_or(u32::MAX))
    }
}

impl Read {
    /// Whether the read goes past the volume's page cache.
    fn goes_past(self, open: &OpenFile) -> bool {
        let (offset, len) = (self.at.offset, self.len as u64);
        match self.origin {
            Origin::Direct => open.direct,
            _ => is_aligned(&open.file, offset | len) && !open.file.has_cached_pages(offset, len),
        }
    }

    /// Whether the read may have found the end of the file too early. The kernel has written back what is to be read, but
    /// nothing after it.
    fn may_be_cut_short(self, open: &OpenFile, count: usize) -> bool {
        count < self.len && self.origin == Origin::Direct && open.pages.may_be_longer()
    }
}

impl Write {
    /// Whether the write goes past the volume's page cache.
    fn goes_past(self, open: &OpenFile, len: usize) -> bool {
        let (offset, len) = (self.at.offset, len as u64);
        !self.appends(open)
            && match self.origin {
                Origin::Direct => open.direct,
                Origin::Pages => false,
                Origin::WriteBack => len >= LARGE && is_aligned(&open.file, offset | len),
            }
    }

    /// Returns true if the data goes to the end of the file whatever its offset. Write-back does not: the kernel may
    /// send it by any handle, and the pages may have been dirtied through a mapping that is older than the append-only
    /// flag.
    fn appends(self, open: &OpenFile) -> bool {
        open.append_only && self.origin != Origin::WriteBack
    }

    /// Whether the data was stored to a mapping of an append-only file.
    fn overwrites_appends(self, open: &OpenFile) -> bool {
        self.origin == Origin::WriteBack
            && open.append_only
            && open.pages.are_only_mapped_by_appenders()
            && open.file.node().flags().contains(InodeFlags::APPEND)
    }

    /// Returns true if mappings may go on to show data that was not written: what was stored to a mapping of an append-only or
    /// immutable file, and what write(2) copied to pages that are mapped.
    fn shows_what_failed(self, len: usize, outcome: &Outcome<u32>) -> bool {
        match (self.origin, outcome) {
            (Origin::WriteBack, Err(failure)) => failure.errno() == Errno::EPERM,
            (Origin::Pages, Err(_)) => true,
            (Origin::Pages, Ok(written)) => (*written as usize) < len,
            (Origin::WriteBack, Ok(_)) | (Origin::Direct, _) => false,
        }
    }

    /// Returns true if the kernel may have stale pages of the range of a direct write. The kernel drops them before it
    /// sends the request, but a reader may fill them again with the old data.
    fn leaves_stale_pages(self, open: &OpenFile) -> bool {
        self.origin == Origin::Direct && open.pages.may_exist()
    }
}

/// Writes through the volume's page cache; returns how many bytes, fewer where the volume is full.
fn write_cached(open: &OpenFile, data: &[u8], offset: u64) -> Outcome<u64> {
    let file = open.buffered()?;
    let (end, mut at) = (offset + data.len() as u64, offset);
    let mut next = end;
    while at < end {
        let piece = &data[narrow(at - offset)..narrow(next - offset)];
        match file.write_at(piece, at) {
            Ok(()) => at = next,
            Err(Error::NoSpace) if at == offset && next == end && end - at > PIECE => {}
            Err(Error::NoSpace) if at > offset => break,
            Err(error) => return Err(error.into()),
        }
        next = end.min((at / PIECE + 1) * PIECE);
    }
    Ok(at - offset)
}

/// Lengths within a request, which is in memory.
fn narrow(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

fn is_aligned(file: &File, bytes: u64) -> bool {
    bytes.is_multiple_of(file.sector_size().into())
}

/// How long a read or write of `len` bytes may take, which waits for the device or does not.
fn expected(waits: bool, len: usize) -> Expected {
    if waits || len > SMALL { Expected::Long } else { Expected::Short }
}

impl Deferred {
    /// Reads and answers, in a worker.
    fn answer_read(&self, open: &OpenFile, read: Read, reply: ReplyData) {
        let mut buf = vec![0; read.len];
        let count = self.server.read(open, read.goes_past(open), read.at.offset, &mut buf);
        reply.answer(count.map(|count| {
            buf.truncate(count);
            buf
        }));
    }

    /// Reads once more after the kernel has written back, and answers. Answers with `EAGAIN` if too many direct requests
    /// wait for the kernel.
    fn read_longer(self: &Arc<Self>, open: Arc<OpenFile>, read: Read, reply: ReplyData, ticket: Ticket) {
        let Some(place) = self.invalidation.place() else { return reply.error(Errno::EAGAIN) };
        let deferred = Arc::clone(self);
        ticket.enter(Stage::WaitsForKernel);
        self.invalidation.drop_all(Arc::clone(&open.pages), move || {
            deferred.give(ticket, move |deferred, _ticket| {
                deferred.answer_read(&open, read, reply);
                drop(place);
            });
        });
    }

    /// Answers a write of `len` bytes once the kernel has no stale page of them.
    fn finish_write(
        &self,
        open: &OpenFile,
        write: Write,
        len: usize,
        outcome: Outcome<u32>,
        reply: ReplyWrite,
        ticket: Ticket,
    ) {
        if write.leaves_stale_pages(open) {
            let (pages, offset) = (Arc::clone(&open.pages), write.at.offset);
            ticket.enter(Stage::WaitsForKernel);
            self.invalidation.drop_written(pages, offset, len, move || {
                reply.answer(outcome);
                drop(ticket);
            });
            return;
        }
        let is_shown = write.shows_what_failed(len, &outcome);
        reply.answer(outcome);
        if is_shown {
            self.invalidation.drop_failed(&open.pages);
        }
    }
}

impl Front {
    pub fn read(&self, read: Read, reply: ReplyData) {
        let open = match self.server.open_file(read.at.handle) {
            Ok(open) => open,
            Err(failure) => return reply.error(failure.errno()),
        };
        if read.origin == Origin::Pages {
            open.pages.note_fill();
        }
        let goes_past = read.goes_past(&open);
        let ticket = self.server.under_way.begin(What::new("read", open.pages.ino));
        let mut turn = self.crew.turn();
        let expected = expected(goes_past, read.len);
        if let Some(_working) = self.work(expected, read.len, || goes_past) {
            let mut buf = BufferPool::global().take(read.len);
            match self.server.read(&open, goes_past, read.at.offset, &mut buf) {
                Ok(count) if read.may_be_cut_short(&open, count) => {
                    self.deferred.read_longer(open, read, reply, ticket);
                }
                Ok(count) => reply.data(&buf[..count]),
                Err(failure) => reply.error(failure.errno()),
            }
        } else if goes_past {
            turn.hand_on();
            self.read_in_lane(open, read, reply, ticket);
        } else {
            turn.hand_on();
            self.deferred.give(ticket, move |deferred, _ticket| deferred.answer_read(&open, read, reply));
        }
    }

    /// Lets the calling thread carry out a read or write of `len` bytes; `for_lanes` says whether it could be handed to
    /// one.
    fn work(&self, expected: Expected, len: usize, for_lanes: impl Fn() -> bool) -> Option<Working<'_>> {
        if self.lanes_are_better(len) && for_lanes() { None } else { self.crew.work(expected) }
    }

    fn lanes_are_better(&self, len: usize) -> bool {
        len <= SMALL && self.lanes.under_way() >= MANY
    }

    fn read_in_lane(&self, open: Arc<OpenFile>, read: Read, reply: ReplyData, ticket: Ticket) {
        ticket.enter(Stage::InLane);
        let Read { at, len, .. } = read;
        let request = IoRequest::Read { buf: self.lanes.buffer(len), len, offset: at.offset };
        let (file, deferred) = (open.file.clone(), Arc::clone(&self.deferred));
        self.lanes.give(file, request, move |result, buf| match (deferred.server.heed(result), buf) {
            (Ok(count), _) if read.may_be_cut_short(&open, narrow(count)) => {
                deferred.read_longer(open, read, reply, ticket);
            }
            (Ok(count), Some(buf)) => {
                reply.data(&buf[..narrow(count)]);
                if deferred.server.is_access_noted(open.file.node()) {
                    deferred.give(ticket, move |deferred, _| deferred.server.note_access(open.file.node()));
                }
            }
            (Ok(_), None) => reply.error(Errno::EIO),
            (Err(failure), _) => reply.error(failure.errno()),
        });
    }

    pub fn write(&self, write: Write, data: &[u8], reply: ReplyWrite) {
        let open = match self.server.open_file(write.at.handle) {
            Ok(open) => open,
            Err(failure) => return reply.error(failure.errno()),
        };
        if write.origin == Origin::Pages {
            open.pages.note_fill();
        }
        let goes_past = write.goes_past(&open, data.len());
        let ticket = self.server.under_way.begin(What::new("write", open.pages.ino));
        let syncs = write.durable != Durable::No || self.server.options.sync;
        // The first write, and those that take set-ID bits away, have more to do than move data.
        let for_lanes = || {
            goes_past
                && !write.drops_set_ids
                && !self.server.handles.may_have_capabilities(&open)
                && (open.may_use_reserved || self.server.has_plenty())
        };
        let mut turn = self.crew.turn();
        let expected = expected(goes_past || syncs, data.len());
        if let Some(_working) = self.work(expected, data.len(), for_lanes) {
            let outcome = self.server.write(&open, write, data);
            return self.deferred.finish_write(&open, write, data.len(), outcome, reply, ticket);
        }
        turn.hand_on();
        if for_lanes() {
            return self.write_in_lane(open, write, data, reply, ticket);
        }
        let data = data.to_vec();
        self.deferred.give(ticket, move |deferred, ticket| {
            let outcome = deferred.server.write(&open, write, &data);
            deferred.finish_write(&open, write, data.len(), outcome, reply, ticket);
        });
    }

    fn write_in_lane(
        &self,
        open: Arc<OpenFile>,
        write: Write,
        data: &[u8],
        reply: ReplyWrite,
        ticket: Ticket,
    ) {
        ticket.enter(Stage::InLane);
        let (mut buf, len) = (self.lanes.buffer(data.len()), data.len());
        buf[..len].copy_from_slice(data);
        let request = IoRequest::Write { buf, len, offset: write.at.offset };
        let (file, deferred) = (open.file.clone(), Arc::clone(&self.deferred));
        self.lanes.give(file, request, move |result, _| {
            let server = &deferred.server;
            let finish = move |deferred: &Deferred, result: Outcome<u64>, ticket: Ticket| {
                let server = &deferred.server;
                let outcome = result.and_then(|written| server.after_write(&open, write, written));
                deferred.finish_write(&open, write, len, server.heed(outcome), reply, ticket);
            };
            let syncs = write.durable != Durable::No || server.options.sync;
            // A sync would keep the lane from its other requests.
            if syncs && result.is_ok() {
                deferred.give(ticket, move |deferred, ticket| finish(deferred, result, ticket));
            } else {
                finish(&deferred, result, ticket);
            }
        });
    }
}
