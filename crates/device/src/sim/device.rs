//! A device with a given latency and queue depth, for experiments that must not depend on the machine's disk.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use super::clock::{Clock, nanos};
use super::queue::SimQueue;
use crate::device::Device;
use crate::queue::Queue;

/// What a [`SimDevice`] imitates.
#[derive(Clone, Copy, Debug)]
pub struct SimProfile {
    /// Time of one read, from its start on the device.
    pub read_latency: Duration,
    /// Time of one write or discard.
    pub write_latency: Duration,
    /// Time of one flush.
    pub flush_latency: Duration,
    /// Requests on the device at a time; further ones wait. 0 counts as 1.
    pub parallel: usize,
}

/// Another device, slowed down: each request takes at least its latency, and at most `parallel` run at a time,
/// be they calls or requests of [queues](crate::open_queue). It reaches the other device when its time is over.
///
/// Calling threads sleep; they burn no CPU but for the last few microseconds. The device sets the timer slack
/// of the threads that call it to 1 ns, as the default of 50 us would blur the latencies.
#[derive(Debug)]
pub struct SimDevice {
    inner: Arc<dyn Device>,
    profile: SimProfile,
    clock: Arc<Clock>,
}

impl SimDevice {
    /// Slows `inner` down to `profile`.
    pub fn new(inner: Arc<dyn Device>, profile: SimProfile) -> Self {
        Self { inner, profile, clock: Arc::new(Clock::new(profile.parallel)) }
    }

    fn take_time(&self, latency: Duration) {
        let due = self.clock.places().book(self.clock.now(), nanos(latency));
        self.clock.wait_until(due);
    }
}

impl Device for SimDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.take_time(self.profile.read_latency);
        self.inner.read_at(offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.take_time(self.profile.write_latency);
        self.inner.write_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.take_time(self.profile.flush_latency);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.take_time(self.profile.write_latency);
        self.inner.discard(offset, len)
    }

    fn native_queue(self: Arc<Self>, _depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        let profile = &self.profile;
        let latencies = [profile.read_latency, profile.write_latency, profile.flush_latency].map(nanos);
        Ok(Some(Box::new(SimQueue::new(self.inner.clone(), self.clock.clone(), latencies))))
    }
}
