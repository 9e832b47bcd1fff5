//! The queue of a device whose calls do not block: `submit` performs each request.

use std::io;
use std::sync::Arc;

use crate::device::Device;
use crate::queue::{Queue, QueueWaker, WakeEvent};
use crate::request::{Done, Request};

/// A queue that performs each request in [`submit`](Queue::submit), with the device's blocking
/// calls.
///
/// It is for devices whose calls return at once, such as memory: to hand a request to another
/// thread would cost more than to perform it.
#[derive(Debug)]
pub struct InlineQueue {
    device: Arc<dyn Device>,
    done: Vec<Done>,
    wake: Arc<WakeEvent>,
}

impl InlineQueue {
    /// Opens a queue on `device`.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self { device, done: Vec::new(), wake: Arc::default() }
    }
}

impl Queue for InlineQueue {
    fn submit(&mut self, request: Request) {
        self.done.push(request.perform(&*self.device));
    }

    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        if wait && !self.wake.take() && self.done.is_empty() {
            self.wake.wait(None);
            self.wake.take();
        }
        done.append(&mut self.done);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn cancel(&mut self, _token: u64) -> bool {
        false
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::new(self.wake.clone())
    }
}
