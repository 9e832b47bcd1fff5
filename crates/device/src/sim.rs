//! A device with a given latency and queue depth, for experiments that must not depend on the machine's disk.

use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::device::Device;

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

/// Another device, slowed down: each request takes at least its latency, and at most `parallel` run at a time.
///
/// Calling threads sleep; they burn no CPU but for the last few microseconds. The device sets the timer slack
/// of the threads that call it to 1 ns, as the default of 50 us would blur the latencies.
#[derive(Debug)]
pub struct SimDevice {
    inner: Arc<dyn Device>,
    profile: SimProfile,
    free: Mutex<usize>,
    freed: Condvar,
}

/// One place of the device's queue.
struct Place<'a>(&'a SimDevice);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.freed.notify_one();
    }
}

impl SimDevice {
    /// Slows `inner` down to `profile`.
    pub fn new(inner: Arc<dyn Device>, profile: SimProfile) -> Self {
        Self { inner, profile, free: Mutex::new(profile.parallel.max(1)), freed: Condvar::new() }
    }

    fn enter(&self) -> Place<'_> {
        let mut free = self.free.lock();
        self.freed.wait_while(&mut free, |free| *free == 0);
        *free -= 1;
        Place(self)
    }

    fn timed<T>(&self, latency: Duration, request: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _place = self.enter();
        let start = Instant::now();
        let result = request();
        wait_until(start + latency);
        result
    }
}

/// How far a sleep ends before its time; the rest is spun.
const SPIN: Duration = Duration::from_micros(5);

fn wait_until(deadline: Instant) {
    sharpen_timer();
    let left = deadline.saturating_duration_since(Instant::now());
    if left > SPIN {
        std::thread::sleep(left - SPIN);
    }
    while Instant::now() < deadline {
        std::hint::spin_loop();
    }
}

fn sharpen_timer() {
    thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    if !DONE.replace(true) {
        // Where this is refused the sleeps are longer, never shorter.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
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
        self.timed(self.profile.read_latency, || self.inner.read_at(offset, bufs))
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.timed(self.profile.write_latency, || self.inner.write_at(offset, bufs))
    }

    fn flush(&self) -> io::Result<()> {
        self.timed(self.profile.flush_latency, || self.inner.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.timed(self.profile.write_latency, || self.inner.discard(offset, len))
    }
}
