//! Queues, with which one thread keeps many operations in flight.
//!
//! An operation takes the same steps as a blocking call. It queues for its range; once it holds the
//! range it is [admitted](admit), prepared, [handed to the device](transfer) and
//! [finished](finish). Where a call would block on a range, the operation is parked, and the thread
//! that grants the range notifies the queue. The queue's thread blocks only in
//! [`IoQueue::harvest`].

mod admit;
mod blocking;
mod finish;
mod inline;
mod mailbox;
mod padding;
mod pending;
mod request;
mod sync;
mod transfer;
mod verified;

use std::os::fd::BorrowedFd;

use parext4_device::{Done, Queue, open_queue};
use slab::Slab;

use super::DirectFile;
use crate::engine::EngineRef;
use crate::error::{Error, Result};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use blocking::BlockingThread;
pub use mailbox::IoWaker;
use mailbox::Mailbox;
use padding::Padding;
use pending::{Files, Kind, Pending};
pub use request::{Completion, IoFlags, IoRequest};

/// A queue of one thread's operations in flight on the files of one volume.
///
/// Operations are unordered, with two exceptions: overlapping operations on one file take effect
/// one after the other, and appends get their offsets in the order in which they were submitted.
///
/// An operation holds its range until its completion is harvested. So a thread deadlocks if it
/// makes a blocking call that overlaps its own operations in flight: harvest them first. Harvest
/// also before a buffered write to any file: it may wait for memory, and the memory for threads
/// that wait for the operations in flight. On a full volume a blocking call waits up to 10 seconds
/// for space that operations in flight have reserved, also operations of the same thread. The
/// volume cannot be closed while it has queues. Dropping a queue waits for the device, and drops
/// the completions and the buffers.
///
/// If the device's queue fails while it has writes, their results are unknown. Dropping the queue
/// then stops the volume, as a failed write does.
///
/// ```
/// use std::sync::Arc;
/// use parext4::{AlignedBuf, IoFlags, IoRequest, OpenOptions};
/// # use parext4::{MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};
///
/// # fn main() -> Result<(), parext4::Error> {
/// let device = Arc::new(MemDevice::new(16 << 20));
/// mkfs(&*device, &MkfsOptions::new())?;
/// let volume = Volume::open_device(device, &VolumeOptions::new())?;
/// let file = volume.open_direct("/log", &OpenOptions::new().write(true).create(true))?;
/// let mut queue = volume.io_queue(8);
/// for record in 0..8 {
///     let buf = AlignedBuf::from_slice(&[record; 4096]);
///     queue.submit(&file, IoRequest::Append { buf, len: 4096 }, u64::from(record), IoFlags::new());
/// }
/// let mut done = Vec::new();
/// while queue.in_flight() > 0 {
///     queue.harvest(&mut done)?;
/// }
/// assert!(done.iter().all(|completion| completion.result.is_ok()));
/// assert_eq!(file.size(), 8 * 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct IoQueue {
    /// `None` only while the queue is dropped.
    device: Option<Box<dyn Queue>>,
    /// Operations that have begun and are not over.
    ops: Slab<Pending>,
    files: Files,
    mailbox: Arc<Mailbox>,
    blocking: Option<BlockingThread>,
    /// Number of operations that this thread has for contents in the inode.
    inline_writes: u32,
    /// The last serial number given to an operation. It distinguishes operations that use the same
    /// slot.
    serial: u64,
    /// Operations that are over but not harvested.
    ready: Vec<Completion>,
    /// Completions from the device; kept between calls to reuse its memory.
    done: Vec<Done>,
    padding: Padding,
    engine: EngineRef,
}

impl IoQueue {
    /// Opens a queue of `depth` requests on the volume's device. The engine counts the queue until
    /// it is dropped, so the volume cannot be closed before that.
    pub(crate) fn open(engine: &EngineRef, depth: u32) -> Self {
        let device = open_queue(engine.device(), depth);
        // SeqCst, because closing the volume closes it to operations first and loads the count
        // then.
        engine.queues().fetch_add(1, Ordering::SeqCst);
        Self {
            mailbox: Arc::new(Mailbox::new(device.waker())),
            device: Some(device),
            ops: Slab::with_capacity(depth as usize),
            files: Files::default(),
            blocking: None,
            inline_writes: 0,
            serial: 0,
            ready: Vec::new(),
            done: Vec::new(),
            padding: Padding::default(),
            engine: engine.clone(),
        }
    }

    /// Begins an operation on a file of the queue's volume. [`harvest`](Self::harvest) returns its
    /// result with `token`, even if the request is invalid.
    ///
    /// Does not wait for other operations or for data, unless the volume is full: then it completes
    /// operations of this queue, and waits for space that other operations return. May wait for a
    /// commit or for metadata to be read. `flags` can forbid both.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// # let mut queue = volume.io_queue(8);
    /// use parext4::{AlignedBuf, IoFlags, IoRequest};
    ///
    /// let write = IoRequest::Write { buf: AlignedBuf::zeroed(4096), len: 4096, offset: 0 };
    /// queue.submit(&file, write, 7, IoFlags::new().nowait(true));
    /// let mut done = Vec::new();
    /// queue.harvest(&mut done)?;
    /// assert_eq!(done[0].token, 7, "completed, or refused with `Error::WouldBlock`");
    /// # Ok::<(), parext4::Error>(())
    /// ```
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

    /// Returns a handle that makes this queue's thread return from [`harvest`](Self::harvest).
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// # let mut queue = volume.io_queue(8);
    /// let waker = queue.waker();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(move || waker.wake());
    /// });
    /// // Returns although nothing is in flight.
    /// queue.harvest(&mut Vec::new())?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn waker(&self) -> IoWaker {
        IoWaker::new(&self.mailbox)
    }

    /// Advances operations, and appends the completed ones to `out`. Blocks until at least one
    /// completes, none is in flight, or a [waker](Self::waker) wakes the thread.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// # let mut queue = volume.io_queue(8);
    /// use parext4::{AlignedBuf, IoFlags, IoRequest};
    ///
    /// for token in 0..4 {
    ///     queue.submit(&file, IoRequest::Append { buf: AlignedBuf::zeroed(4096), len: 4096 }, token, IoFlags::new());
    /// }
    /// let mut done = Vec::new();
    /// while queue.in_flight() > 0 {
    ///     queue.harvest(&mut done)?;
    /// }
    /// assert_eq!(done.len(), 4);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of a failed device queue; operations stay in flight, and keep their ranges, until
    /// the queue is dropped.
    pub fn harvest(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        self.collect(true, out)
    }

    /// Like [`harvest`](Self::harvest), but does not wait for the device or for other threads:
    /// appends what has completed.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// # let mut queue = volume.io_queue(8);
    /// use parext4::{IoFlags, IoRequest};
    ///
    /// let mut done = Vec::new();
    /// queue.try_harvest(&mut done)?;
    /// assert!(done.is_empty(), "nothing is in flight");
    /// queue.submit(&file, IoRequest::SyncData, 7, IoFlags::new());
    /// while done.is_empty() {
    ///     queue.try_harvest(&mut done)?;
    /// }
    /// assert_eq!(done[0].token, 7);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`harvest`](Self::harvest).
    pub fn try_harvest(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        self.collect(false, out)
    }

    /// Returns a descriptor on which an event loop can wait for this queue, as with epoll(7) or
    /// tokio's `AsyncFd`: it is the same until the queue is dropped. `None` unless the device's
    /// queue is a ring of io_uring, and for a volume with multi-mount protection. Wait for it to be
    /// readable after [`arm`](Self::arm).
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// assert!(volume.io_queue(8).descriptor().is_none(), "the device is memory");
    /// ```
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.device.as_ref()?.descriptor()
    }

    /// Like [`try_harvest`](Self::try_harvest), and prepares a wait on the
    /// [`descriptor`](Self::descriptor). Returns true if nothing has completed and no
    /// [waker](Self::waker) was called: then the descriptor becomes readable when an operation may
    /// complete or a waker is called. Submit operations before this call: one submitted after it
    /// may not start before the next harvest.
    ///
    /// The descriptor may be readable without a reason, so harvest again, and arm before each wait.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// # let mut queue = volume.io_queue(8);
    /// # let wait_until_readable = |_: Option<std::os::fd::BorrowedFd<'_>>| {};
    /// use parext4::{IoFlags, IoRequest};
    ///
    /// queue.submit(&file, IoRequest::SyncData, 7, IoFlags::new());
    /// let mut done = Vec::new();
    /// while done.is_empty() {
    ///     if queue.arm(&mut done)? {
    ///         wait_until_readable(queue.descriptor());
    ///     }
    /// }
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`harvest`](Self::harvest).
    pub fn arm(&mut self, out: &mut Vec<Completion>) -> Result<bool> {
        // This comes before the search for deliveries and completions, so that each later one wakes
        // the queue.
        if let Some(device) = &mut self.device {
            device.arm();
        }
        // A completion may let further operations begin, which the device must start.
        loop {
            self.take_deliveries();
            if !self.harvest_device(false)? {
                break;
            }
        }
        let is_quiet = self.ready.is_empty() && !self.mailbox.take_interrupt() && self.mailbox.may_sleep();
        out.append(&mut self.ready);
        Ok(is_quiet)
    }

    fn collect(&mut self, wait: bool, out: &mut Vec<Completion>) -> Result<()> {
        loop {
            self.take_deliveries();
            let sleep = wait && self.ready.is_empty() && !self.ops.is_empty() && self.mailbox.may_sleep();
            #[cfg(shuttle)]
            let sleep =
                sleep && self.mailbox.sleep(self.device.as_ref().map_or(0, |device| device.in_flight()));
            self.harvest_device(sleep)?;
            if !self.ready.is_empty() || !wait || self.ops.is_empty() || self.mailbox.take_interrupt() {
                break;
            }
        }
        self.take_deliveries();
        out.append(&mut self.ready);
        Ok(())
    }

    /// Completes the operations that the device has done, and returns whether there was one. With
    /// `sleep`, blocks until there is one.
    fn harvest_device(&mut self, sleep: bool) -> Result<bool> {
        let mut done = std::mem::take(&mut self.done);
        let result = self.device.as_mut().map_or(Ok(()), |device| device.harvest(sleep, &mut done));
        self.mailbox.awake();
        let is_any = !done.is_empty();
        done.drain(..).for_each(|done| self.device_done(done));
        self.done = done;
        result.map(|()| is_any).map_err(|e| Error::device("waiting for the device", e))
    }

    /// Returns the number of operations submitted and not yet harvested.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ops.len() + self.ready.len()
    }

    /// Cancels the operations with this token that have not begun: they end with
    /// [`Error::Cancelled`]. Returns true if there was one. Operations that have begun continue.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// # let mut queue = volume.io_queue(8);
    /// assert!(!queue.cancel(7), "no request has this token");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    pub fn cancel(&mut self, token: u64) -> bool {
        let ours: Vec<usize> =
            self.ops.iter().filter(|(_, op)| op.token == token).map(|(key, _)| key).collect();
        let mut cancelled = false;
        for key in ours {
            if self.ops[key].is_parked() {
                self.abandon(key);
                cancelled = true;
            } else if (self.ops[key].parts, self.ops[key].submitted) == (1, 1) {
                // The device completes it with that error.
                let token = transfer::token(key, 0);
                cancelled |= self.device.as_mut().is_some_and(|device| device.cancel(token));
            }
        }
        cancelled
    }

    /// Ends an operation that waits for its range.
    fn abandon(&mut self, key: usize) {
        self.mailbox.cancel(self.ops[key].id(key));
        self.finish(key, Err(Error::Cancelled));
    }

    /// Stops the volume because of `error`, with which the device's queue failed, if the device has
    /// a write. The result of the write is unknown, so it counts as failed (I8).
    fn stop_if_writing(&self, error: Error) {
        let is_writing = |op: &Pending| op.parts > 0 && op.kind != Kind::Read;
        if self.ops.iter().any(|(_, op)| is_writing(op)) {
            self.engine.health().stop(error);
        }
    }
}

impl Drop for IoQueue {
    fn drop(&mut self) {
        let parked: Vec<usize> =
            self.ops.iter().filter(|(_, op)| op.is_parked()).map(|(key, _)| key).collect();
        parked.into_iter().for_each(|key| self.abandon(key));
        // Completes what the device has done; the completions are dropped.
        let mut forgotten = Vec::new();
        while self.device.as_ref().is_some_and(|device| device.in_flight() > 0) {
            if let Err(error) = self.harvest(&mut forgotten) {
                self.stop_if_writing(error);
                break;
            }
            forgotten.clear();
        }
        // If the device's queue has failed, this blocks until no request is in flight. The ranges
        // are released after that, so a later write of the same bytes reaches the device last.
        self.device = None;
        let rest: Vec<usize> = self.ops.iter().map(|(key, _)| key).collect();
        // Operations that came back from the thread for blocking calls may wait for their range
        // now.
        for key in rest {
            match self.ops[key].is_parked() {
                true => self.abandon(key),
                false => self.finish(key, Err(Error::Cancelled)),
            }
        }
        self.engine.queues().fetch_sub(1, Ordering::SeqCst);
    }
}
