//! A pool of queues on the volume's device, for threads that use one for a short time. Opening a
//! queue takes longer than a write, so up to eight idle queues are kept.

use parext4_device::{Device, Queue, open_queue};

use crate::sync::Rank;
use crate::sync::{Arc, Mutex};

/// Limit of requests in flight of a queue.
pub(crate) const QUEUE_DEPTH: u32 = 32;
/// Limit of idle queues that are kept.
const MAX_IDLE: usize = 8;

/// The pool. An idle queue has no request in flight.
#[derive(Debug)]
pub(crate) struct DeviceQueues {
    device: Arc<dyn Device>,
    idle: Mutex<Vec<Box<dyn Queue>>>,
}

impl DeviceQueues {
    pub(super) fn new(device: &Arc<dyn Device>) -> Self {
        Self { device: Arc::clone(device), idle: Mutex::new(Rank::Leaf, Vec::new()) }
    }

    /// Runs `using` with a queue that no other thread uses meanwhile.
    pub(crate) fn with<R>(&self, using: impl FnOnce(&mut dyn Queue) -> R) -> R {
        let idle = self.idle.lock().pop();
        let mut queue = idle.unwrap_or_else(|| open_queue(&self.device, QUEUE_DEPTH));
        let result = using(&mut *queue);
        // A queue that failed may have requests in flight. Dropping it waits for them.
        if queue.in_flight() == 0 {
            let mut idle = self.idle.lock();
            if idle.len() < MAX_IDLE {
                idle.push(queue);
            }
        }
        result
    }

    /// Closes the idle queues.
    pub(super) fn close(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
    }
}
