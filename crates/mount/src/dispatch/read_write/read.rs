//! Reads.

use std::sync::Arc;

use fuser::{Errno, INodeNo, LockOwner, ReplyData};
use parext4::device::{AlignedBuf, BufferPool};
use parext4::server::ServerDirectFile;
use parext4::{InodeFlags, IoRequest};

use super::{Origin, is_aligned, latency, to_usize};
use crate::dispatch::Dispatcher;
use crate::dispatch::deferred::Deferred;
use crate::in_flight::{InFlightRequest, RequestInfo, Stage};
use crate::inodes::OpenFile;
use crate::protocol::Outcome;
use crate::server::{FilePosition, Server};
use crate::threads::SharedBuf;

/// The arguments of a read request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    at: FilePosition,
    len: usize,
    origin: Origin,
    /// The present flags of the handle. A program may change them after it has opened the file.
    flags: i32,
}

impl Read {
    /// Decodes a request. Only direct requests name the owner of a lock.
    pub fn new(at: FilePosition, len: u32, flags: i32, owner: Option<LockOwner>) -> Self {
        let origin = if owner.is_some() { Origin::Direct } else { Origin::Pages };
        Self { at, len: len as usize, origin, flags }
    }

    /// Returns true if the read bypasses the volume's page cache.
    fn bypasses_cache(self, open: &OpenFile) -> bool {
        let (offset, len) = (self.at.offset, self.len as u64);
        match self.origin {
            Origin::Direct => open.is_direct(self.flags),
            _ => is_aligned(&open.file, offset | len) && !open.file.has_cached_pages(offset..offset + len),
        }
    }

    /// Returns true if the handle permits the read to update the time of last access.
    fn is_access(self) -> bool {
        self.flags & libc::O_NOATIME == 0
    }

    /// Returns true if a queue thread can execute the read. A queue verifies data in a thread of
    /// its own, one read at a time, so workers read files that fs-verity protects.
    fn fits_queue(self, open: &OpenFile) -> bool {
        self.bypasses_cache(open) && !open.file.inode_ref().flags().contains(InodeFlags::VERITY)
    }

    /// Returns true if a read of `count` bytes may have found the end of the file too early. The
    /// kernel has written back the range of the read, but no page after it.
    fn may_have_missed_data(self, open: &OpenFile, count: usize) -> bool {
        count < self.len && self.origin == Origin::Direct && open.pages.may_be_longer()
    }
}

impl Server {
    fn read(&self, open: &OpenFile, read: Read, bypasses_cache: bool, buf: &mut [u8]) -> Outcome<usize> {
        self.handle_corruption(self.try_read(open, read, bypasses_cache, buf))
    }

    fn try_read(&self, open: &OpenFile, read: Read, bypasses_cache: bool, buf: &mut [u8]) -> Outcome<usize> {
        let count = match bypasses_cache {
            true => open.file.read_at(buf, read.at.offset)?,
            false => open.buffered()?.read_at(buf, read.at.offset)?,
        };
        if read.is_access() {
            self.update_atime(open.file.inode_ref());
        }
        Ok(count)
    }
}

impl Dispatcher {
    /// Executes a read and replies.
    pub(crate) fn execute_read(&self, ino: INodeNo, read: Read, reply: ReplyData) {
        let in_flight = self.server.in_flight.add(RequestInfo::new("read", ino));
        let open = match self.server.file_to_read(read.at.handle) {
            Ok(open) => open,
            Err(failure) => return reply.error(failure.errno()),
        };
        if read.origin == Origin::Pages {
            open.pages.note_fill();
        }
        let bypasses_cache = read.bypasses_cache(&open);
        let scope = self.request_threads.begin_request();
        let latency = latency(bypasses_cache, read.len);
        let fits_queue = || self.queue_threads.are_usable() && read.fits_queue(&open);
        if let Some(_executing) = self.try_execute_io(latency, read.len, fits_queue) {
            let mut buf = BufferPool::global().take(read.len);
            match self.server.read(&open, read, bypasses_cache, &mut buf) {
                Ok(count) if read.may_have_missed_data(&open, count) => {
                    self.deferred.read_after_write_back(open, read, reply, in_flight);
                }
                Ok(count) => reply.data(&buf[..count]),
                Err(failure) => reply.error(failure.errno()),
            }
            return;
        }
        let _scope = scope.hand_off();
        if fits_queue() {
            return self.read_in_queue(open, read, reply, in_flight);
        }
        let buf = self.worker_buffer(read.len, &in_flight);
        self.deferred.run_in_worker(in_flight, move |deferred, _in_flight| {
            deferred.execute_read(&open, read, buf, reply);
        });
    }

    fn read_in_queue(&self, open: Arc<OpenFile>, read: Read, reply: ReplyData, in_flight: InFlightRequest) {
        let Read { at, len, .. } = read;
        let (buf, reserved) = self.queue_buffer(len, &in_flight);
        let request = IoRequest::Read { buf, len, offset: at.offset };
        let (file, deferred) = (open.file.clone(), Arc::clone(&self.deferred));
        self.queue_threads.submit(file, request, move |result, buf| {
            deferred.finish_queued_read(open, read, (result, buf), reply, in_flight);
            drop(reserved);
        });
    }
}

impl Deferred {
    /// Replies to a read that a queue thread has completed.
    fn finish_queued_read(
        self: &Arc<Self>,
        open: Arc<OpenFile>,
        read: Read,
        (result, buf): (Outcome<u64>, Option<&AlignedBuf>),
        reply: ReplyData,
        in_flight: InFlightRequest,
    ) {
        match (self.server.handle_corruption(result), buf) {
            (Ok(count), _) if read.may_have_missed_data(&open, to_usize(count)) => {
                self.read_after_write_back(open, read, reply, in_flight);
            }
            (Ok(count), Some(buf)) => {
                reply.data(&buf[..to_usize(count)]);
                if read.is_access() && self.server.updates_atime(open.file.inode_ref()) {
                    self.run_in_worker(in_flight, move |deferred, _| {
                        deferred.server.update_atime(open.file.inode_ref());
                    });
                }
            }
            (Ok(_), None) => reply.error(Errno::EIO),
            (Err(failure), _) => reply.error(failure.errno()),
        }
    }

    /// Executes a read in the calling thread, a worker, and replies.
    fn execute_read(&self, open: &OpenFile, read: Read, mut buf: SharedBuf, reply: ReplyData) {
        match self.server.read(open, read, read.bypasses_cache(open), &mut buf) {
            Ok(count) => reply.data(&buf[..count]),
            Err(failure) => reply.error(failure.errno()),
        }
    }

    /// Makes the kernel write back its pages, then reads again and replies. Replies with `EAGAIN`
    /// if too many direct requests wait for the kernel.
    fn read_after_write_back(
        self: &Arc<Self>,
        open: Arc<OpenFile>,
        read: Read,
        reply: ReplyData,
        in_flight: InFlightRequest,
    ) {
        let Some(permit) = self.invalidation.try_wait_for_kernel() else {
            return reply.error(Errno::EAGAIN);
        };
        let deferred = Arc::clone(self);
        in_flight.enter(Stage::WaitingForKernel);
        self.invalidation.drop_all(Arc::clone(&open.pages), move || {
            deferred.run_in_worker(in_flight, move |deferred, _in_flight| {
                // The permits limit these buffers.
                let buf = SharedBuf::new(&deferred.buffers, read.len, |_| None);
                deferred.execute_read(&open, read, buf, reply);
                drop(permit);
            });
        });
    }
}
