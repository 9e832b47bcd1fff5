//! Opens queues of operations on files.

use super::Volume;
use crate::file::IoQueue;

impl Volume {
    /// Returns a queue that keeps up to about `depth` requests in flight on the device. More requests may be submitted.
    ///
    /// The queue of an image file or a block device uses io_uring, or threads where io_uring is not allowed.
    #[must_use]
    pub fn io_queue(&self, depth: u32) -> IoQueue {
        IoQueue::open(&self.engine, depth)
    }
}
