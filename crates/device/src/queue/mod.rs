//! Asynchronous requests: hand in many, collect the results later.
//!
//! A queue belongs to one thread at a time and owns the buffers of its requests until they are done. Requests
//! have no order between them: what must follow another is handed in when that one is done.

mod inline;
mod request;
mod sim;
mod threads;
mod uring;
mod waker;

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::sync::{Arc, Once};

use crate::device::Device;
use crate::file::FileDevice;
use crate::sim::SimDevice;
pub use request::{Done, Op, Request, Segment};
use threads::ThreadQueue;
pub use waker::QueueWaker;

/// Requests under way on a [`Device`].
///
/// Requests are checked as the device checks its calls; a bad one comes back as a [`Done`] with the error that
/// the call would give. Dropping a queue waits until nothing is in flight.
pub trait Queue: Send + Debug {
    /// Takes a request; its token comes back with its result, and need not be unique.
    ///
    /// Does not wait for the device. The request may not start before the next [`harvest`](Self::harvest).
    fn submit(&mut self, request: Request);

    /// Starts what was submitted and appends what is done to `done`.
    ///
    /// With `wait`, returns only when it appended something or was woken; with nothing in flight only a wake
    /// ends it. May return early. An error is the queue's own, not a request's; requests stay in flight.
    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()>;

    /// Requests submitted and not yet harvested.
    fn in_flight(&self) -> usize;

    /// Takes back a request with this token that has not reached the device and never will; it then comes
    /// back with `ECANCELED`. False if there is none.
    fn cancel(&mut self, token: u64) -> bool;

    /// Wakes this queue from any thread.
    fn waker(&self) -> QueueWaker;
}

/// How a device wants to be served by [`open_queue`].
#[derive(Clone, Copy, Debug)]
pub enum QueueKind<'a> {
    /// By threads that make the device's blocking calls.
    Threads,
    /// At once, as its calls take no time worth waiting for.
    Inline,
    /// By the clock of a simulated device.
    Sim(&'a SimDevice),
    /// By io_uring on a file, or by threads where that is not to be had.
    File(&'a FileDevice),
}

/// The best queue for the device, with at most about `depth` requests on it at a time; more may be submitted.
pub fn open_queue(device: &Arc<dyn Device>, depth: u32) -> Box<dyn Queue> {
    match device.queue_kind() {
        QueueKind::Threads => Box::new(ThreadQueue::new(device.clone(), depth)),
        QueueKind::Inline => Box::new(inline::InlineQueue::new(device.clone())),
        QueueKind::Sim(sim) => Box::new(sim::SimQueue::new(sim)),
        QueueKind::File(file) => match uring::UringQueue::new(device.clone(), file, depth) {
            Ok(queue) => Box::new(queue),
            Err(error) => {
                warn_once(&error);
                Box::new(ThreadQueue::new(device.clone(), depth))
            }
        },
    }
}

/// A queue on a plain file of any file system. The file may grow: a write past its end extends it.
///
/// `direct` switches the open file, and whoever shares it, to direct I/O; fails with `Unsupported` if it has
/// none. Requests are then multiples of the file's sectors, else of any length and offset.
pub fn open_file_queue(file: File, depth: u32, direct: bool) -> io::Result<Box<dyn Queue>> {
    let device: Arc<dyn Device> = Arc::new(FileDevice::growing(file, direct)?);
    Ok(open_queue(&device, depth))
}

fn warn_once(error: &io::Error) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| tracing::warn!("no io_uring ({error}): threads make the device's calls"));
}

fn canceled(request: Request) -> Done {
    request.done(Err(rustix::io::Errno::CANCELED.into()))
}

/// Collects everything, for queues that are dropped.
fn drain(queue: &mut dyn Queue) {
    let mut done = Vec::new();
    // An error would repeat itself for ever; the back ends that use this have none.
    while queue.in_flight() > 0 && queue.harvest(true, &mut done).is_ok() {
        done.clear();
    }
}
