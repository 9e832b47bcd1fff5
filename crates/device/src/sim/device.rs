//! The blocking calls of a simulated device.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use super::clock::{Clock, nanos};
use super::queue::SimQueue;
use crate::device::Device;
use crate::forward_device;
use crate::queue::Queue;

/// Performance that a [`SimDevice`] simulates.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SimProfile {
    /// Time from the start of a read on the device to its completion.
    pub read_latency: Duration,
    /// Time from the start of a write or discard to its completion.
    pub write_latency: Duration,
    /// Time from the start of a flush to its completion.
    pub flush_latency: Duration,
    /// Number of requests on the device at a time. Further requests wait. 0 counts as 1.
    pub parallel: usize,
}

impl SimProfile {
    /// Makes a profile in which reads, writes and flushes take `latency`, and `parallel` requests
    /// run at a time.
    #[must_use]
    pub const fn new(latency: Duration, parallel: usize) -> Self {
        Self { read_latency: latency, write_latency: latency, flush_latency: latency, parallel }
    }

    /// Sets [`write_latency`](field@Self::write_latency).
    #[must_use]
    pub const fn write_latency(mut self, latency: Duration) -> Self {
        self.write_latency = latency;
        self
    }

    /// Sets [`flush_latency`](field@Self::flush_latency).
    #[must_use]
    pub const fn flush_latency(mut self, latency: Duration) -> Self {
        self.flush_latency = latency;
        self
    }
}

/// A device that delays requests to another device: each takes at least its latency, and at most
/// `parallel` run at a time, blocking calls and requests of [queues](crate::open_queue) counted
/// together. A request reaches the other device at the end of its latency.
///
/// Calling threads sleep until 5 us before the end and spin for the rest. The device sets the timer
/// slack of the threads that call it to 1 ns, because the default of 50 us would falsify the
/// latencies.
#[derive(Debug)]
pub struct SimDevice {
    inner: Arc<dyn Device>,
    profile: SimProfile,
    clock: Arc<Clock>,
}

impl SimDevice {
    /// Makes a device that delays requests to `inner` as `profile` says.
    pub fn new(inner: Arc<dyn Device>, profile: SimProfile) -> Self {
        Self { inner, profile, clock: Arc::new(Clock::new(profile.parallel)) }
    }

    /// Blocks as long as a request of this latency takes.
    fn delay(&self, latency: Duration) {
        let due = self.clock.slots().assign(self.clock.now(), nanos(latency));
        self.clock.wait_until(due);
    }
}

impl Device for SimDevice {
    forward_device!(this => this.inner; size, sector_size, network, read_only);

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.delay(self.profile.read_latency);
        self.inner.read_at(offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.delay(self.profile.write_latency);
        self.inner.write_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.delay(self.profile.flush_latency);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.delay(self.profile.write_latency);
        self.inner.discard(offset, len)
    }

    fn native_queue(self: Arc<Self>, _depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        let profile = &self.profile;
        let latencies = [profile.read_latency, profile.write_latency, profile.flush_latency].map(nanos);
        Ok(Some(Box::new(SimQueue::new(self.inner.clone(), self.clock.clone(), latencies))))
    }
}
