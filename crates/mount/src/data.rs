//! Reading and writing: which way data goes, and in which thread.
//!
//! | | past the volume's page cache | through it |
//! |---|---|---|
//! | opened with `O_DIRECT` | all | |
//! | `cache=kernel` | reads, as the kernel keeps what it reads; large writes | small writes: many become one request to the device |
//! | `cache=direct` | | all |
//!
//! The volume keeps both ways coherent. The thread that took the request carries it out if another one is left to take
//! requests; else what goes past the cache is handed to a [lane](crate::lanes), which waits for many at once, and what
//! goes through it to a worker. Once many are under way there, all small ones go to lanes: a thread that waits for the device
//! wakes up for each of its requests, a lane for all that are done.

use std::sync::Arc;

use fuser::{Errno, FileHandle, ReplyData, ReplyWrite, WriteFlags};
use parext4::device::BufferPool;
use parext4::{File, IoRequest};

use crate::answer::Answer;
use crate::crew::{Expected, Working};
use crate::failure::Outcome;
use crate::files::Place;
use crate::front::Front;
use crate::handles::OpenFile;
use crate::options::Cache;
use crate::server::Server;

/// In `cache=kernel`, writes of so many bytes go past the volume's page cache.
const LARGE: u64 = 128 << 10;

/// Requests of so many bytes and less take longer to wake up for than to copy.
const SMALL: usize = 32 << 10;

/// With so many requests in lanes these are awake most of the time. With fewer it costs more to hand requests on.
const MANY: usize = 16;

/// More bytes than all lanes write at a time.
const PLENTY: u64 = 1 << 30;

/// What a write request says besides its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub at: Place,
    /// Set-ID bits go.
    drops_set_ids: bool,
    /// The kernel had it in its cache, and dates the file itself.
    written_back: bool,
    /// How it is to be made durable before it returns.
    durable: Durable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    No,
    Data,
    All,
}

impl Write {
    pub fn new(handle: FileHandle, offset: u64, write_flags: WriteFlags, flags: i32) -> Self {
        let durable = match flags & libc::O_SYNC {
            libc::O_SYNC => Durable::All,
            libc::O_DSYNC => Durable::Data,
            _ => Durable::No,
        };
        let drops_set_ids = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let written_back = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        Self { at: Place { handle, offset }, drops_set_ids, written_back, durable }
    }

    /// Whether nobody has dated the file yet.
    fn is_undated(self, open: &OpenFile) -> bool {
        open.keeps_times && !self.written_back
    }
}

impl Server {
    /// Whether a read goes past the volume's page cache.
    fn reads_past(&self, open: &OpenFile, offset: u64) -> bool {
        open.direct || self.options.cache == Cache::Kernel && is_aligned(&open.file, offset)
    }

    /// Whether a write goes past the volume's page cache.
    fn writes_past(&self, open: &OpenFile, offset: u64, len: u64) -> bool {
        let fits = || is_aligned(&open.file, offset | len);
        !open.append_only && (open.direct || self.options.cache == Cache::Kernel && len >= LARGE && fits())
    }

    fn read(&self, open: &OpenFile, offset: u64, buf: &mut [u8]) -> Outcome<usize> {
        self.heed(self.try_read(open, offset, buf))
    }

    fn try_read(&self, open: &OpenFile, offset: u64, buf: &mut [u8]) -> Outcome<usize> {
        let read = |buf: &mut [u8]| -> Outcome<usize> {
            match self.reads_past(open, offset) {
                true => Ok(open.file.read_at(buf, offset)?),
                false => Ok(open.buffered()?.read_at(buf, offset)?),
            }
        };
        let mut count = read(buf)?;
        if count < buf.len() && self.may_be_longer(open) {
            self.have_written_back(open.file.node());
            count = read(buf)?;
        }
        self.note_access(open.file.node());
        Ok(count)
    }

    /// Whether the kernel may have a longer file than we do, when something reads past its cache: it has written back
    /// only what is to be read, and so not what lies behind.
    fn may_be_longer(&self, open: &OpenFile) -> bool {
        open.direct && self.options.cache == Cache::Kernel && self.handles.has_writer(open.file.node())
    }

    fn write(&self, open: &OpenFile, write: Write, data: &[u8]) -> Outcome<u32> {
        self.carry_out(open.may_use_reserved, || self.try_write(open, write, data))
    }

    fn try_write(&self, open: &OpenFile, write: Write, data: &[u8]) -> Outcome<u32> {
        let offset = write.at.offset;
        self.before_write(open, write)?;
        if open.append_only {
            open.buffered()?.append(data)?;
        } else if self.writes_past(open, offset, data.len() as u64) {
            open.file.write_at(data, offset)?;
        } else {
            open.buffered()?.write_at(data, offset)?;
        }
        self.after_write(open, write, data.len() as u64)
    }

    /// Whether so much is free that all writes of all lanes leave what is reserved: lanes do not know whose they are.
    fn has_plenty(&self) -> bool {
        let space = self.volume.space();
        space.available_blocks.saturating_mul(space.block_size.into()) > PLENTY
    }

    fn before_write(&self, open: &OpenFile, write: Write) -> Outcome<()> {
        if open.may_be_privileged() || write.drops_set_ids {
            self.drop_privileges(open.file.node(), write.drops_set_ids)?;
            open.set_unprivileged();
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

fn is_aligned(file: &File, bytes: u64) -> bool {
    bytes.is_multiple_of(file.sector_size().into())
}

/// How long a read or write of `len` bytes may take, which waits for the device or does not.
fn expected(waits: bool, len: usize) -> Expected {
    if waits || len > SMALL { Expected::Long } else { Expected::Short }
}

/// What a worker does.
fn answer_read(server: &Server, open: &OpenFile, offset: u64, len: usize, reply: ReplyData) {
    let mut buf = vec![0; len];
    let read = server.read(open, offset, &mut buf);
    reply.answer(read.map(|read| {
        buf.truncate(read);
        buf
    }));
}

impl Front {
    pub fn read(&self, at: Place, len: usize, reply: ReplyData) {
        let open = match self.server.open_file(at.handle) {
            Ok(open) => open,
            Err(failure) => return reply.error(failure.errno()),
        };
        let goes_past = self.server.reads_past(&open, at.offset);
        let mut turn = self.crew.turn();
        let expected = expected(goes_past, len);
        if let Some(_working) = self.work(expected, len, || goes_past) {
            let mut buf = BufferPool::global().take(len);
            match self.server.read(&open, at.offset, &mut buf) {
                Ok(read) => reply.data(&buf[..read]),
                Err(failure) => reply.error(failure.errno()),
            }
        } else if goes_past {
            turn.hand_on();
            self.read_in_lane(open, at.offset, len, reply);
        } else {
            turn.hand_on();
            let server = Arc::clone(&self.server);
            self.workers.give(move || answer_read(&server, &open, at.offset, len, reply));
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

    fn read_in_lane(&self, open: Arc<OpenFile>, offset: u64, len: usize, reply: ReplyData) {
        let request = IoRequest::Read { buf: self.lanes.buffer(len), len, offset };
        let file = open.file.clone();
        let (server, workers) = (Arc::clone(&self.server), Arc::clone(&self.workers));
        self.lanes.give(file, request, move |result, buf| match (server.heed(result), buf) {
            (Ok(read), _) if read < len as u64 && server.may_be_longer(&open) => {
                workers.give(move || answer_read(&server, &open, offset, len, reply));
            }
            (Ok(read), Some(buf)) => {
                reply.data(&buf[..usize::try_from(read).unwrap_or(0)]);
                if server.is_access_noted(open.file.node()) {
                    workers.give(move || server.note_access(open.file.node()));
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
        let goes_past = self.server.writes_past(&open, write.at.offset, data.len() as u64);
        let syncs = write.durable != Durable::No || self.server.options.sync;
        // The first write, and those that take set-ID bits away, have more to do than move data.
        let for_lanes = || {
            goes_past
                && !write.drops_set_ids
                && !open.may_be_privileged()
                && (open.may_use_reserved || self.server.has_plenty())
        };
        let mut turn = self.crew.turn();
        let expected = expected(goes_past || syncs, data.len());
        if let Some(_working) = self.work(expected, data.len(), for_lanes) {
            return reply.answer(self.server.write(&open, write, data));
        }
        turn.hand_on();
        if for_lanes() {
            return self.write_in_lane(open, write, data, reply);
        }
        let (server, data) = (Arc::clone(&self.server), data.to_vec());
        self.workers.give(move || reply.answer(server.write(&open, write, &data)));
    }

    fn write_in_lane(&self, open: Arc<OpenFile>, write: Write, data: &[u8], reply: ReplyWrite) {
        let (mut buf, len) = (self.lanes.buffer(data.len()), data.len());
        buf[..len].copy_from_slice(data);
        let request = IoRequest::Write { buf, len, offset: write.at.offset };
        let file = open.file.clone();
        let (server, workers) = (Arc::clone(&self.server), Arc::clone(&self.workers));
        self.lanes.give(file, request, move |result, _| match server.heed(result) {
            Err(failure) => reply.error(failure.errno()),
            // A sync would keep the lane from its other requests.
            Ok(written) if write.durable != Durable::No || server.options.sync => {
                workers.give(move || reply.answer(server.heed(server.after_write(&open, write, written))));
            }
            Ok(written) => reply.answer(server.heed(server.after_write(&open, write, written))),
        });
    }
}
