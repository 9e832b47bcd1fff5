//! Opening the best queue of a device: its native queue, or threads.

use std::io;
use std::sync::{Arc, Once};

use crate::device::Device;
use crate::queue::Queue;
use crate::thread_queue::ThreadQueue;

/// Opens the native queue of `device`, or else a queue whose threads make the device's blocking
/// calls.
///
/// The queue has about `depth` requests on the device at a time; more may be submitted. Opening may
/// block and costs more than a small request, so keep queues.
pub fn open_queue(device: &Arc<dyn Device>, depth: u32) -> Box<dyn Queue> {
    match Arc::clone(device).native_queue(depth) {
        Ok(Some(queue)) => return queue,
        Ok(None) => {}
        Err(error) => warn_once(&error),
    }
    Box::new(ThreadQueue::new(Arc::clone(device), depth))
}

fn warn_once(error: &io::Error) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| log::warn!("cannot open a device queue ({error}): threads make the device's calls"));
}
