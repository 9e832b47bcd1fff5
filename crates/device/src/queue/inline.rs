//! The queue of a device whose calls take no time: requests are done when they are submitted.

use std::io;
use std::sync::Arc;

use super::waker::Bell;
use super::{Done, Queue, QueueWaker, Request};
use crate::device::Device;

#[derive(Debug)]
pub(super) struct InlineQueue {
    device: Arc<dyn Device>,
    ready: Vec<Done>,
    bell: Arc<Bell>,
}

impl InlineQueue {
    pub(super) fn new(device: Arc<dyn Device>) -> Self {
        Self { device, ready: Vec::new(), bell: Arc::default() }
    }
}

impl Queue for InlineQueue {
    fn submit(&mut self, request: Request) {
        self.ready.push(request.perform(&*self.device));
    }

    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        if wait && !self.bell.take() && self.ready.is_empty() {
            self.bell.wait(None);
            self.bell.take();
        }
        done.append(&mut self.ready);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.ready.len()
    }

    fn cancel(&mut self, _token: u64) -> bool {
        false
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::new(self.bell.clone())
    }
}
