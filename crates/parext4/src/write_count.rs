//! Counts the bytes written to a device, for the superblock's count of all bytes ever written
//! (`s_kbytes_written`).
//!
//! Invariant: a write costs one relaxed addition to a counter of the thread's own, so counting
//! makes no thread wait.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
// No decision depends on the count, so models need not schedule threads around it.
use std::sync::atomic::{AtomicU64, Ordering};

use parext4_device::{Device, Done, Op, Queue, QueueWaker, Request, forward_device};

use crate::stripes::Stripes;
use crate::sync::Arc;

/// A number of bytes.
#[derive(Debug, Default)]
pub(crate) struct WriteCount(Stripes<AtomicU64, 16>);

impl WriteCount {
    /// Returns the number of bytes counted so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    fn add(&self, lens: impl Iterator<Item = usize>) {
        self.0.mine().fetch_add(lens.map(|len| len as u64).sum(), Ordering::Relaxed);
    }
}

/// A device whose writes are counted. Counts a write also if it fails, as the kernel does.
#[derive(Debug)]
pub(crate) struct CountedDevice {
    inner: Arc<dyn Device>,
    count: Arc<WriteCount>,
}

impl CountedDevice {
    pub(crate) fn new(inner: Arc<dyn Device>, count: &Arc<WriteCount>) -> Self {
        Self { inner, count: Arc::clone(count) }
    }
}

impl Device for CountedDevice {
    forward_device!(this => this.inner; size, sector_size, read_only, network, read_at, flush, discard);

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.count.add(bufs.iter().map(|buf| buf.len()));
        self.inner.write_at(offset, bufs)
    }

    fn native_queue(self: Arc<Self>, depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        let inner = Arc::clone(&self.inner).native_queue(depth)?;
        Ok(inner
            .map(|inner| Box::new(CountedQueue { inner, count: Arc::clone(&self.count) }) as Box<dyn Queue>))
    }
}

/// A queue of a [`CountedDevice`].
#[derive(Debug)]
struct CountedQueue {
    inner: Box<dyn Queue>,
    count: Arc<WriteCount>,
}

impl Queue for CountedQueue {
    fn submit(&mut self, request: Request) {
        if let Op::Write { segments, .. } = &request.op {
            self.count.add(segments.iter().map(|segment| segment.len));
        }
        self.inner.submit(request);
    }

    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        self.inner.harvest(wait, done)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn cancel(&mut self, token: u64) -> bool {
        self.inner.cancel(token)
    }

    fn waker(&self) -> QueueWaker {
        self.inner.waker()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn arm(&mut self) {
        self.inner.arm();
    }
}
