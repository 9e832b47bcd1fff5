//! Many operations of one thread under way at once.
//!
//! An operation goes through the same steps as a call that blocks: it takes its place in the queue of its
//! file's ranges, and when it has its range it is [admitted](admit), prepared, [handed to the device](transfer)
//! and [finished](finish). Where a call would wait for a range, the operation is parked; whoever grants the
//! range tells the queue. The queue's thread only waits in [`IoQueue::harvest`].

mod admit;
mod finish;
mod parked;
mod pending;
mod sync;
mod transfer;

use parext4_device::{AlignedBuf, Done, Queue, open_queue};
use slab::Slab;

use super::DirectFile;
use crate::engine::Use;
use crate::error::{Error, Result};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
pub use parked::IoWaker;
use parked::Parked;
use pending::{Files, Pending};
use sync::Syncer;
use transfer::Padding;

/// What to do. A buffer belongs to the queue until it comes back with the [`Completion`].
#[derive(Debug)]
#[non_exhaustive]
pub enum IoRequest {
    /// As [`DirectFile::read_at`], into the first `len` bytes of `buf`.
    Read {
        /// Where to.
        buf: AlignedBuf,
        /// Bytes.
        len: usize,
        /// Byte offset in the file.
        offset: u64,
    },
    /// As [`DirectFile::write_at`], of the first `len` bytes of `buf`.
    Write {
        /// Where from.
        buf: AlignedBuf,
        /// Bytes.
        len: usize,
        /// Byte offset in the file.
        offset: u64,
    },
    /// As [`DirectFile::append`], of the first `len` bytes of `buf`.
    Append {
        /// Where from.
        buf: AlignedBuf,
        /// Bytes.
        len: usize,
    },
    /// As [`DirectFile::sync_data`]: what was completed before is durable then.
    SyncData,
    /// As [`DirectFile::sync_all`].
    SyncAll,
}

/// How to do it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoFlags {
    /// Rather fail with [`Error::WouldBlock`], and change nothing, than wait before the data moves: for another
    /// operation's range, for blocks to be allocated or a map to be read, or because the request does not lie
    /// together on the device. Completing a write into unwritten blocks may still wait for a commit. No effect
    /// on syncs.
    pub nowait: bool,
}

/// An operation that is over.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// As given with the request.
    pub token: u64,
    /// Bytes read or written; for an append, the offset where it went; for a sync, 0.
    pub result: Result<u64>,
    /// The request's buffer.
    pub buf: Option<AlignedBuf>,
}

/// Operations of one thread under way on the files of one volume.
///
/// Operations have no order between them, except that overlapping ones of one file take effect one after the
/// other, and appends get their offsets in the order in which they were submitted.
///
/// An operation holds its range until its completion was harvested. A thread that makes a blocking call that
/// overlaps its own operations in flight therefore waits for ever: harvest first. Likewise before a buffered write,
/// to any file: it may wait for memory, and that for others who wait for those operations. The volume cannot be closed
/// while it has queues. Dropping a queue waits for the device and forgets the rest; buffers are owned until
/// then.
///
/// ```
/// use std::sync::Arc;
/// use parext4::{AlignedBuf, IoFlags, IoRequest, OpenOptions};
/// # use parext4::{MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};
///
/// # fn main() -> Result<(), parext4::Error> {
/// let device = Arc::new(MemDevice::new(16 << 20));
/// mkfs(&*device, &MkfsOptions::default())?;
/// let volume = Volume::open_device(device, &VolumeOptions::new())?;
/// let file = volume.open_direct("/log", &OpenOptions::new().write(true).create(true))?;
/// let mut queue = volume.io_queue(8);
/// for record in 0..8 {
///     let buf = AlignedBuf::from_slice(&[record; 4096]);
///     queue.submit(&file, IoRequest::Append { buf, len: 4096 }, u64::from(record), IoFlags::default());
/// }
/// let mut done = Vec::new();
/// while queue.in_flight() > 0 {
///     queue.harvest(true, &mut done)?;
/// }
/// assert!(done.iter().all(|completion| completion.result.is_ok()));
/// assert_eq!(file.size(), 8 * 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct IoQueue {
    /// Until the queue is dropped.
    device: Option<Box<dyn Queue>>,
    /// Operations begun and not over.
    ops: Slab<Pending>,
    files: Files,
    parked: Arc<Parked>,
    syncer: Option<Syncer>,
    /// Told to operations, so that a slot used again is not taken for what it was.
    serial: u64,
    /// Operations that are over and not harvested.
    ready: Vec<Completion>,
    /// What the device has done; kept for its memory.
    done: Vec<Done>,
    zeros: Padding,
    engine: Use,
}

impl IoQueue {
    /// Opens a queue of `depth` requests on the volume's device. The engine counts it until it is dropped, so that the
    /// volume is not closed before.
    pub(crate) fn open(engine: &Use, depth: u32) -> Self {
        let device = open_queue(&engine.device, depth);
        // SeqCst, because closing the volume closes it to operations first and loads the count then.
        engine.queues.fetch_add(1, Ordering::SeqCst);
        Self {
            parked: Arc::new(Parked::new(device.waker())),
            device: Some(device),
            ops: Slab::with_capacity(depth as usize),
            files: Files::default(),
            syncer: None,
            serial: 0,
            ready: Vec::new(),
            done: Vec::new(),
            zeros: Padding::default(),
            engine: engine.clone(),
        }
    }

    /// Begins an operation on a file of the queue's volume. Its result, also an error in the request, comes
    /// from [`harvest`](Self::harvest), with `token`.
    ///
    /// Does not wait for other operations or for data; it may wait for a commit, or for metadata to be read,
    /// unless told not to.
    pub fn submit(&mut self, file: &DirectFile, request: IoRequest, token: u64, flags: IoFlags) {
        self.serial += 1;
        let file_key = self.files.hold(file);
        let key = self.ops.insert(Pending::new(request, token, self.serial, file_key, flags));
        let begun = if Arc::ptr_eq(file.engine(), &self.engine) {
            self.begin(key)
        } else {
            Err(Error::invalid("the file is not of the queue's volume"))
        };
        if let Err(error) = begun {
            self.finish(key, Err(error));
        }
    }

    /// Calls this queue's thread back from [`harvest`](Self::harvest).
    #[must_use]
    pub fn waker(&self) -> IoWaker {
        IoWaker::new(&self.parked)
    }

    /// Moves operations on, and appends those that are over to `out`. With `wait`, returns only when there is
    /// at least one, or none is in flight, or a [waker](Self::waker) calls.
    ///
    /// # Errors
    /// The queue's own failure to talk to the device; operations stay in flight.
    pub fn harvest(&mut self, wait: bool, out: &mut Vec<Completion>) -> Result<()> {
        loop {
            self.take_parked();
            let sleep = wait && self.ready.is_empty() && !self.ops.is_empty() && self.parked.may_sleep();
            #[cfg(shuttle)]
            let sleep = sleep && {
                self.parked.sleep(self.device.as_ref().map_or(0, |device| device.in_flight()));
                false
            };
            let mut done = std::mem::take(&mut self.done);
            let result = self.device.as_mut().map_or(Ok(()), |device| device.harvest(sleep, &mut done));
            self.parked.awake();
            done.drain(..).for_each(|done| self.device_done(done));
            self.done = done;
            result.map_err(|e| Error::device("waiting for the device", e))?;
            if !self.ready.is_empty() || !wait || self.ops.is_empty() || self.parked.take_call() {
                break;
            }
        }
        self.take_parked();
        out.append(&mut self.ready);
        Ok(())
    }

    /// Operations submitted and not yet harvested.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ops.len() + self.ready.len()
    }

    /// Cancels the operations with this token that have not begun: they are over with [`Error::Cancelled`].
    /// Returns whether there was one. Others go on.
    pub fn cancel(&mut self, token: u64) -> bool {
        let ours: Vec<usize> =
            self.ops.iter().filter(|(_, op)| op.token == token).map(|(key, _)| key).collect();
        let mut cancelled = false;
        for key in ours {
            if self.ops[key].is_parked() {
                self.give_up(key);
                cancelled = true;
            } else if self.ops[key].parts == 1 {
                // It comes back from the device with that error.
                let token = transfer::token(key, 0);
                cancelled |= self.device.as_mut().is_some_and(|device| device.cancel(token));
            }
        }
        cancelled
    }

    /// Ends an operation that waits for its range.
    fn give_up(&mut self, key: usize) {
        self.parked.give_up(self.ops[key].id(key));
        self.finish(key, Err(Error::Cancelled));
    }
}

impl Drop for IoQueue {
    fn drop(&mut self) {
        let parked: Vec<usize> =
            self.ops.iter().filter(|(_, op)| op.is_parked()).map(|(key, _)| key).collect();
        parked.into_iter().for_each(|key| self.give_up(key));
        // What the device has done is completed; nobody hears of it.
        let mut forgotten = Vec::new();
        while self.device.as_ref().is_some_and(|device| device.in_flight() > 0)
            && self.harvest(true, &mut forgotten).is_ok()
        {
            forgotten.clear();
        }
        // If the device's queue has failed, this waits until nothing is under way; then ranges may be let go.
        self.device = None;
        let rest: Vec<usize> = self.ops.iter().map(|(key, _)| key).collect();
        rest.into_iter().for_each(|key| self.finish(key, Err(Error::Cancelled)));
        self.engine.queues.fetch_sub(1, Ordering::SeqCst);
    }
}
