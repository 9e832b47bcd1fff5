//! Opens queues of operations on files.

use super::Volume;
use crate::file::IoQueue;

impl Volume {
    /// Returns a queue that keeps up to about `depth` requests in flight on the device. More
    /// requests may be submitted.
    ///
    /// The queue of an image file or a block device uses io_uring, or threads where io_uring is not
    /// allowed.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::{AlignedBuf, IoFlags, IoRequest, OpenOptions};
    ///
    /// let file = volume.open_direct("/data", &OpenOptions::read_write().create(true))?;
    /// let mut queue = volume.io_queue(32);
    /// queue.submit(&file, IoRequest::Append { buf: AlignedBuf::zeroed(4096), len: 4096 }, 1, IoFlags::new());
    /// let mut done = Vec::new();
    /// queue.harvest(&mut done)?;
    /// assert_eq!(done[0].token, 1);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn io_queue(&self, depth: u32) -> IoQueue {
        IoQueue::open(&self.engine, depth)
    }
}
