//! Writes.

use std::ops::Deref;
use std::sync::Arc;

use fuser::{Errno, INodeNo, ReplyWrite, WriteFlags};
use parext4::server::{ServerDirectFile, ServerFile, ServerInode, SpaceWait};
use parext4::{InodeFlags, IoRequest};

use super::{Origin, is_aligned, latency};
use crate::dispatch::Dispatcher;
use crate::dispatch::deferred::Deferred;
use crate::dispatch::reply::Reply;
use crate::in_flight::{InFlightRequest, RequestInfo, Stage};
use crate::inodes::{Durability, OpenFile};
use crate::kernel_cache::WriteBackRequest;
use crate::options::Cache;
use crate::protocol::{Caller, Failure, Outcome};
use crate::server::{FilePosition, PIECE, Server, write_what_fits};
use crate::threads::SharedBuf;

/// A write-back request of at least this many bytes bypasses the volume's page cache.
const LARGE_WRITE_BACK: u64 = 128 << 10;

/// The file of a write request, from the arrival of the request until it is answered.
#[derive(Debug)]
pub(super) struct Target {
    open: Arc<OpenFile>,
    /// The write-back request, if it is one, counted until it is answered. The kernel's pages may
    /// be clean already.
    _write_back: Option<WriteBackRequest>,
    /// The number of sectors before the write, if the kernel keeps that number after it.
    kept_sectors: Option<u64>,
}

impl Target {
    fn new(open: Arc<OpenFile>, write: Write, cache: Cache) -> Self {
        let is_write_back = write.origin == Origin::WriteBack;
        let _write_back = is_write_back.then(|| open.pages.start_write_back());
        // In other modes the kernel itself drops the attributes.
        let keeps_attributes = is_write_back && cache == Cache::Writeback;
        let kept_sectors = keeps_attributes.then(|| open.file.metadata().sectors);
        Self { open, _write_back, kept_sectors }
    }

    /// Returns true if the write has changed the number of blocks, and the kernel keeps the old
    /// number.
    fn has_changed_blocks(&self) -> bool {
        self.kept_sectors.is_some_and(|sectors| sectors != self.open.file.metadata().sectors)
    }
}

impl Deref for Target {
    type Target = OpenFile;

    fn deref(&self) -> &OpenFile {
        &self.open
    }
}

/// The arguments of a write request, without its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    at: FilePosition,
    origin: Origin,
    caller: Caller,
    /// True if the caller may not keep set-ID bits.
    drops_set_ids: bool,
    durability: Durability,
    /// The present flags of the handle, without the flags that only open(2) has.
    flags: i32,
}

impl Write {
    /// Decodes a request.
    pub fn new(at: FilePosition, write_flags: WriteFlags, flags: i32, caller: Caller) -> Self {
        let drops_set_ids = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let origin = if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            Origin::WriteBack
        } else if write_flags.contains(WriteFlags::FUSE_WRITE_LOCKOWNER) {
            Origin::Direct
        } else {
            Origin::Pages
        };
        Self { at, origin, caller, drops_set_ids, durability: Durability::of_flags(flags), flags }
    }

    /// Returns true if the server must set the file's times. With `cache=writeback` the kernel sets
    /// the times for data that it writes back.
    fn sets_times(self, open: &OpenFile) -> bool {
        open.keeps_times && self.origin != Origin::WriteBack
    }

    /// Returns true if the write bypasses the volume's page cache.
    fn bypasses_cache(self, open: &OpenFile, len: usize) -> bool {
        let (offset, len) = (self.at.offset, len as u64);
        !self.appends(open)
            && match self.origin {
                Origin::Direct => open.is_direct(self.flags),
                Origin::Pages => false,
                Origin::WriteBack => len >= LARGE_WRITE_BACK && is_aligned(&open.file, offset | len),
            }
    }

    /// Returns true if the data goes to the end of the file whatever its offset. Write-back does
    /// not append: the kernel may send it through any handle, and the pages may have been dirtied
    /// through a mapping that is older than the append-only flag.
    fn appends(self, open: &OpenFile) -> bool {
        open.append_only && self.origin != Origin::WriteBack && self.flags & libc::O_APPEND != 0
    }

    /// Returns true if the file is append-only, and the data was stored to a mapping of it, or is
    /// written through a handle whose `O_APPEND` a program has cleared. The kernel's ext4 refuses
    /// such a mapping and such a change of the handle.
    fn overwrites_append_only(self, open: &OpenFile) -> bool {
        let overwrites = match self.origin {
            Origin::WriteBack => open.pages.are_only_mapped_by_appenders(),
            Origin::Direct | Origin::Pages => self.flags & libc::O_APPEND == 0,
        };
        open.append_only && overwrites && open.file.inode_ref().flags().contains(InodeFlags::APPEND)
    }

    /// Returns true if mappings may contain data that was not written to the volume: data stored to
    /// a mapping of an append-only or immutable file, or data that write(2) has copied to pages
    /// that are mapped.
    fn may_show_unwritten_data(self, len: usize, outcome: &Outcome<u32>) -> bool {
        match (self.origin, outcome) {
            (Origin::WriteBack, Err(failure)) => failure.errno() == Errno::EPERM,
            (Origin::Pages, Err(_)) => true,
            (Origin::Pages, Ok(written)) => (*written as usize) < len,
            (Origin::WriteBack, Ok(_)) | (Origin::Direct, _) => false,
        }
    }

    /// Returns true if parts of the data may find space although the whole has found none. The
    /// kernel marks pages clean that it has sent, so each part that needs no space must be stored.
    fn may_fit_in_part(self, failure: &Failure) -> bool {
        self.origin == Origin::WriteBack && failure.lacks_space()
    }

    /// Returns true if the kernel may have stale pages of the range of a direct write. The kernel
    /// drops them before it sends the request, but a reader may fill them again with the old data.
    fn may_leave_stale_pages(self, open: &OpenFile) -> bool {
        self.origin == Origin::Direct && open.pages.may_exist()
    }
}

impl Server {
    fn write(&self, open: &OpenFile, write: Write, data: &[u8]) -> Outcome<u32> {
        self.handle_corruption(self.try_write(open, write, data))
    }

    fn try_write(&self, open: &OpenFile, write: Write, data: &[u8]) -> Outcome<u32> {
        self.before_write(open, write)?;
        let written = if write.appends(open) {
            self.append(open, data)?
        } else if write.bypasses_cache(open, data.len()) {
            write_directly(open, write, data)?
        } else {
            write_cached(open, write, data)?
        };
        self.after_write(open, write, written)
    }

    /// Appends through the volume's page cache. Returns the number of bytes appended: fewer than
    /// `data` has if the volume is full or a limit of a quota is reached.
    fn append(&self, open: &OpenFile, data: &[u8]) -> Outcome<u64> {
        let file = open.buffered()?;
        let (mut done, mut next, mut wait) = (0, data.len(), SpaceWait::new());
        while done < data.len() {
            match file.append_partial(&data[done..next], &mut wait).map_err(Failure::from) {
                Ok(appended) => done += appended,
                Err(failure) if done == 0 => {
                    let is_whole = next == data.len() && next > PIECE;
                    if !(is_whole && failure.lacks_space()) {
                        return Err(failure);
                    }
                }
                // The caller gets the number of bytes appended, not the error.
                Err(failure) => {
                    let _ = self.handle_corruption::<()>(Err(failure));
                    break;
                }
            }
            next = data.len().min(done + PIECE);
        }
        Ok(done as u64)
    }

    fn before_write(&self, open: &OpenFile, write: Write) -> Outcome<()> {
        let node = open.file.inode_ref();
        if write.overwrites_append_only(open) {
            return Err(Failure::NOT_PERMITTED);
        }
        if write.drops_set_ids {
            self.drop_set_ids(node, write.caller)?;
        }
        if write.origin == Origin::WriteBack {
            self.drop_hidden_set_ids(node)?;
        }
        // The kernel removes the capabilities itself before it caches a write that it sends later,
        // but not before a store through a mapping. The kernel's ext4 keeps them then, too, but
        // there a user needs the permission of the stored owner to write.
        if write.origin != Origin::WriteBack || self.has_shown_ids() {
            self.open_files.remove_capabilities(open)?;
        }
        Ok(())
    }

    /// Sets the file's times and makes the write durable, if the server must. The kernel syncs its
    /// own pages.
    fn after_write(&self, open: &OpenFile, write: Write, written: u64) -> Outcome<u32> {
        if write.sets_times(open) {
            open.file.inode_ref().touch_modified()?;
        }
        self.after_file_change(open, write.durability)?;
        Ok(u32::try_from(written).unwrap_or(u32::MAX))
    }

    /// Returns true if the write is durable before it is answered.
    fn syncs(&self, open: &OpenFile, write: Write) -> bool {
        write.durability != Durability::None || self.syncs_changes(open.file.inode_ref())
    }

    /// Returns true if a queue thread can execute the write. Queue threads know no caller and do
    /// not remove privileges, and a queue thread that waits for space would delay all other
    /// requests in its queue.
    fn fits_queue(&self, open: &OpenFile, write: Write, len: usize) -> bool {
        write.bypasses_cache(open, len)
            && !open.file.may_wait_for_space(len)
            && !write.drops_set_ids
            && !write.overwrites_append_only(open)
            && !self.open_files.may_have_capabilities(open)
            && (write.origin != Origin::WriteBack || !self.has_hidden_set_ids(open.file.inode_ref()))
    }
}

/// Writes past the volume's page cache, except for write-back that may fit in part. Returns the
/// number of bytes written.
fn write_directly(open: &OpenFile, write: Write, data: &[u8]) -> Outcome<u64> {
    match open.file.write_all_at(data, write.at.offset).map_err(Failure::from) {
        Ok(()) => Ok(data.len() as u64),
        Err(failure) if write.may_fit_in_part(&failure) => write_cached(open, write, data),
        Err(failure) => Err(failure),
    }
}

/// Writes what fits through the volume's page cache. The kernel ignores the count of a write-back
/// and marks all of its pages clean, so only an error makes a later fsync(2) fail. The function
/// still writes the pieces that need no space.
fn write_cached(open: &OpenFile, write: Write, data: &[u8]) -> Outcome<u64> {
    let skips = write.origin == Origin::WriteBack;
    Ok(write_what_fits(open.buffered()?, data, write.at.offset, skips)? as u64)
}

impl Dispatcher {
    /// Executes a write and replies.
    pub(crate) fn execute_write(&self, ino: INodeNo, write: Write, data: &[u8], reply: ReplyWrite) {
        let in_flight = self.server.in_flight.add(RequestInfo::new("write", ino));
        let open = match self.server.open_file(write.at.handle) {
            Ok(open) => open,
            Err(failure) => return reply.error(failure.errno()),
        };
        if write.origin == Origin::Pages {
            open.pages.note_fill();
        }
        let open = Target::new(open, write, self.server.options.effective_cache());
        let waits_for_device = write.bypasses_cache(&open, data.len()) || self.server.syncs(&open, write);
        let fits_queue =
            || self.queue_threads.are_usable() && self.server.fits_queue(&open, write, data.len());
        let scope = self.request_threads.begin_request();
        let latency = latency(waits_for_device, data.len());
        if let Some(_executing) = self.try_execute_io(latency, data.len(), fits_queue) {
            let outcome = self.server.write(&open, write, data);
            self.deferred.finish_write(&open, write, data.len(), outcome, reply, in_flight);
            // The file is dropped before the end of the scope, in which this thread may park: a
            // rename may wait until the request is answered.
            drop(open);
            return;
        }
        let _scope = scope.hand_off();
        if fits_queue() {
            return self.write_in_queue(open, write, data, reply, in_flight);
        }
        let mut buf = self.worker_buffer(data.len(), &in_flight);
        buf.copy_from_slice(data);
        self.deferred.write_in_worker(open, write, buf, reply, in_flight);
    }

    fn write_in_queue(
        &self,
        open: Target,
        write: Write,
        data: &[u8],
        reply: ReplyWrite,
        in_flight: InFlightRequest,
    ) {
        let len = data.len();
        let (mut buf, reserved) = self.queue_buffer(len, &in_flight);
        buf[..len].copy_from_slice(data);
        let request = IoRequest::Write { buf, len, offset: write.at.offset };
        let (file, deferred) = (open.file.clone(), Arc::clone(&self.deferred));
        // A sync, or a write in pieces, would block the queue thread's other requests.
        self.queue_threads.submit(file, request, move |result, buf| match (result, buf) {
            (Ok(written), _) if deferred.server.syncs(&open, write) => {
                deferred.run_in_worker(in_flight, move |deferred, in_flight| {
                    deferred.finish_queued_write(&open, write, len, Ok(written), reply, in_flight);
                });
            }
            (Err(failure), Some(buf)) if write.may_fit_in_part(&failure) => {
                let mut data = SharedBuf::new(&deferred.buffers, len, |_| Some(reserved));
                data.copy_from_slice(&buf[..len]);
                deferred.write_in_worker(open, write, data, reply, in_flight);
            }
            (result, _) => deferred.finish_queued_write(&open, write, len, result, reply, in_flight),
        });
    }
}

impl Deferred {
    /// Executes a write in a worker and replies.
    fn write_in_worker(
        self: &Arc<Self>,
        open: Target,
        write: Write,
        data: SharedBuf,
        reply: ReplyWrite,
        in_flight: InFlightRequest,
    ) {
        self.run_in_worker(in_flight, move |deferred, in_flight| {
            let (outcome, len) = (deferred.server.write(&open, write, &data), data.len());
            drop(data);
            deferred.finish_write(&open, write, len, outcome, reply, in_flight);
        });
    }

    /// Replies to a write of `len` bytes that a queue thread has completed.
    fn finish_queued_write(
        &self,
        open: &Target,
        write: Write,
        len: usize,
        result: Outcome<u64>,
        reply: ReplyWrite,
        in_flight: InFlightRequest,
    ) {
        let outcome = result.and_then(|written| self.server.after_write(open, write, written));
        let outcome = self.server.handle_corruption(outcome);
        self.finish_write(open, write, len, outcome, reply, in_flight);
    }

    /// Replies to a write of `len` bytes once the kernel has no stale page of the range.
    fn finish_write(
        &self,
        open: &Target,
        write: Write,
        len: usize,
        outcome: Outcome<u32>,
        reply: ReplyWrite,
        in_flight: InFlightRequest,
    ) {
        if let (Origin::WriteBack, Err(failure)) = (write.origin, &outcome) {
            open.pages.note_lost(failure.errno());
            self.server.refused.note(open.file.inode_ref().id(), failure.errno(), len);
        }
        if open.has_changed_blocks() {
            self.server.changed_blocks.note(open.pages.ino);
        }
        if write.may_leave_stale_pages(open) {
            let (pages, offset) = (Arc::clone(&open.pages), write.at.offset);
            in_flight.enter(Stage::WaitingForKernel);
            self.invalidation.drop_written(pages, offset, len, move || {
                reply.send(outcome);
                drop(in_flight);
            });
            return;
        }
        let is_shown = write.may_show_unwritten_data(len, &outcome);
        reply.send(outcome);
        if is_shown {
            self.invalidation.drop_failed(&open.pages);
        }
    }
}
