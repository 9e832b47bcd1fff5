//! Queues of operations on files.

use super::Volume;
use crate::file::IoQueue;

impl Volume {
    /// A queue with up to about `depth` requests on the device at a time; more may be submitted.
    ///
    /// Image files and block devices are served by io_uring, or by threads where that is not allowed.
    #[must_use]
    pub fn io_queue(&self, depth: u32) -> IoQueue {
        IoQueue::open(&self.engine, depth)
    }
}
