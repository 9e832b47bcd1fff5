//! The [`Queue`] trait: requests that complete later, harvested by the thread that submitted them.
//!
//! This module states the contract between a queue and its owner. The implementations are with
//! their devices, in [`open_queue`](crate::open_queue) and in crates that define devices of their
//! own.

mod wake_event;
mod waker;

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;

use crate::request::{Done, Request};
pub(crate) use wake_event::WakeEvent;
pub use waker::QueueWaker;

/// Requests in flight on a device, for one thread at a time.
///
/// The owner submits requests, calls [`harvest`](Self::harvest), and gets each request back as a
/// [`Done`].
///
/// # Contract
/// An implementation outside this crate must keep all of these rules; callers rely on them.
///
/// - **Order.** Requests have no order between them and complete in any order, requests of
///   overlapping ranges included. A caller that needs an order harvests the first request before it
///   submits the second.
/// - **Completion.** `harvest` returns each submitted request exactly once, with its token and its
///   buffers, whether it succeeded, failed or was canceled. A request succeeds as a whole or fails:
///   a queue continues a short transfer itself.
/// - **Checks.** `submit` accepts every request. A request that the device's blocking call would
///   refuse completes with the same error; [`Op::check`](crate::Op::check) returns it.
/// - **Flush.** An [`Op::Flush`](crate::Op::Flush) makes durable every write that `harvest`
///   returned before the flush was submitted. It need not cover a write that was still in flight
///   then.
/// - **Buffers.** The queue owns a request's buffers from `submit` until `harvest` returns them.
///   Until then nothing else writes to a read's buffer, and the bytes of a write's segments do not
///   change. A queue returns a buffer only after the device, kernel or network has stopped using
///   its memory.
/// - **Depth.** A queue has about `depth` requests on the device at a time. Further requests wait
///   in the queue, whose length is not limited: `submit` never blocks on the device.
/// - **Wakes.** A wake from any thread ends a `harvest` that blocks, or else the next `harvest`
///   that would block. Wakes are not counted: one return may answer several. A wake after the queue
///   was dropped does nothing.
/// - **Descriptor.** A queue with a [`descriptor`](Self::descriptor) keeps it open, and the same
///   one, until it is dropped. After [`arm`](Self::arm) and a later `harvest` that did not wait, it
///   is readable as soon as `harvest` has something to return, and after each wake since `arm`. It
///   may also be readable without a reason.
/// - **Threads.** The owner may move the queue to another thread between two calls, also with
///   requests in flight.
/// - **Shutdown.** Dropping a queue starts the requests that still wait, blocks until no request is
///   in flight, and discards the results. A queue that has failed need not start them, but blocks
///   until the device has no request of it. Only the queue of a device on a network, where a server
///   may carry out requests late in any case, need not block. The queue keeps its device open, so
///   it holds a reference to it.
///
/// # Example
/// A queue that performs each request in `submit`, as a device in memory can:
/// ```
/// # use parext4_device::*;
/// # use std::{io, sync::Arc, task::Wake};
/// #[derive(Debug)]
/// struct Immediate { device: Arc<MemDevice>, done: Vec<Done>, wake: Arc<Flag> }
/// # #[derive(Debug, Default)]
/// # struct Flag(std::sync::Mutex<bool>, std::sync::Condvar);
/// # impl Wake for Flag {
/// #     fn wake(self: Arc<Self>) { *self.0.lock().unwrap() = true; self.1.notify_one(); }
/// # }
/// impl Queue for Immediate {
///     fn submit(&mut self, request: Request) { self.done.push(request.perform(&*self.device)); }
///     fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
///         if wait && self.done.is_empty() {
///             let woken = self.wake.0.lock().unwrap();
///             *self.wake.1.wait_while(woken, |woken| !*woken).unwrap() = false;
///         }
///         done.append(&mut self.done);
///         Ok(())
///     }
///     fn in_flight(&self) -> usize { self.done.len() }
///     fn cancel(&mut self, _token: u64) -> bool { false }
///     fn waker(&self) -> QueueWaker { QueueWaker::new(self.wake.clone()) }
/// }
/// # let device = Arc::new(MemDevice::new(4096));
/// # let mut queue = Immediate { device, done: Vec::new(), wake: Arc::default() };
/// # queue.submit(Request { token: 7, op: Op::Flush });
/// # let mut done = Vec::new();
/// # queue.harvest(true, &mut done)?;
/// # assert_eq!(done[0].token, 7);
/// # queue.waker().wake();
/// # queue.harvest(true, &mut done)?;
/// # io::Result::Ok(())
/// ```
pub trait Queue: Send + Debug {
    /// Adds a request to the queue. Does not block on the device.
    ///
    /// The request may not start before the next [`harvest`](Self::harvest).
    fn submit(&mut self, request: Request);

    /// Starts submitted requests and appends completed ones to `done`.
    ///
    /// With `wait`, blocks until it has appended a completion or was woken; with nothing in flight,
    /// only a wake ends the wait. It may also return early without completions. Without `wait`, it
    /// never blocks.
    ///
    /// # Errors
    /// The queue itself cannot make progress; its requests stay in flight. The failure of a
    /// request, or of a connection that all requests need, is the result of each request and not an
    /// error of `harvest`.
    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()>;

    /// Returns the number of requests that were submitted and not yet harvested.
    fn in_flight(&self) -> usize;

    /// Cancels one request with this token that has not started, and returns whether it found one.
    ///
    /// The canceled request never reaches the device, and a later `harvest` returns it with
    /// `ECANCELED`. A queue whose requests cannot be stopped returns false.
    fn cancel(&mut self, token: u64) -> bool;

    /// Returns a handle that wakes this queue from any thread.
    fn waker(&self) -> QueueWaker;

    /// Returns a descriptor on which an event loop can wait for the queue, if it has one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Forgets earlier wakes, before a `harvest` that does not wait and a wait on the descriptor.
    /// Does nothing if the queue has no descriptor.
    fn arm(&mut self) {}
}

/// Blocks until nothing is in flight, for queues that are being dropped.
pub(crate) fn drain(queue: &mut dyn Queue) {
    let mut done = Vec::new();
    // An error would repeat for ever, so it ends the loop. The ring of a queue then waits for the
    // kernel when it is dropped.
    while queue.in_flight() > 0 && queue.harvest(true, &mut done).is_ok() {
        done.clear();
    }
}
