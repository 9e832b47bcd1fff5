//! A device whose reads and writes, or whose discards, a test can hold back.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::Device;
use parext4::device::forward_device;
use parking_lot::{Condvar, Mutex};

/// Forwards to another device. While the gate is shut, requests block. The gate is open at first.
#[derive(Debug)]
pub struct GatedDevice {
    inner: Arc<dyn Device>,
    /// Requests that begin in these bytes never block.
    exempt: Range<u64>,
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    shut: bool,
    shut_to_discards: bool,
    waiting: usize,
    /// Number of next writes that block although the gate is open.
    to_catch: usize,
    /// The next write at this offset blocks although the gate is open.
    to_catch_at: Option<u64>,
    /// Numbers of the caught writes that are blocked, in the order of their arrival.
    caught: VecDeque<usize>,
    /// Writes caught so far.
    catches: usize,
}

impl GatedDevice {
    /// Returns a device that forwards to `inner`.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self::with_exempt(inner, 0..0)
    }

    /// Like [`new`](Self::new), but requests that begin in the bytes `exempt` never block.
    pub fn with_exempt(inner: Arc<dyn Device>, exempt: Range<u64>) -> Self {
        Self { inner, exempt, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Blocks reads and writes that begin from now on.
    pub fn shut(&self) {
        self.state.lock().shut = true;
    }

    /// Blocks discards that begin from now on.
    pub fn shut_to_discards(&self) {
        self.state.lock().shut_to_discards = true;
    }

    /// Opens the gate and wakes all blocked requests.
    pub fn open(&self) {
        let mut state = self.state.lock();
        (state.shut, state.shut_to_discards) = (false, false);
        (state.to_catch, state.to_catch_at) = (0, None);
        state.caught.clear();
        self.changed.notify_all();
    }

    /// Blocks the next `count` writes. All other requests pass.
    pub fn catch_writes(&self, count: usize) {
        self.state.lock().to_catch = count;
    }

    /// Blocks the next write that begins at `offset`. All other requests pass.
    pub fn catch_write_at(&self, offset: u64) {
        self.state.lock().to_catch_at = Some(offset);
    }

    /// Releases the write that was caught first.
    pub fn release_first(&self) {
        self.state.lock().caught.pop_front();
        self.changed.notify_all();
    }

    /// Waits until `count` calls wait at the gate.
    pub fn wait_for(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut state = self.state.lock();
        while state.waiting + state.caught.len() < count {
            assert!(!self.changed.wait_until(&mut state, deadline).timed_out(), "no call came to the gate");
        }
    }

    fn pass(&self, offset: u64, is_shut: impl Fn(&GateState) -> bool) {
        if self.exempt.contains(&offset) {
            return;
        }
        let mut state = self.state.lock();
        state.waiting += 1;
        self.changed.notify_all();
        while is_shut(&state) {
            self.changed.wait(&mut state);
        }
        state.waiting -= 1;
    }

    /// Blocks if this write is to be caught.
    fn block_if_caught(&self, offset: u64) {
        let mut state = self.state.lock();
        if state.to_catch_at == Some(offset) {
            state.to_catch_at = None;
        } else if state.to_catch > 0 {
            state.to_catch -= 1;
        } else {
            return;
        }
        let number = state.catches;
        state.catches += 1;
        state.caught.push_back(number);
        self.changed.notify_all();
        while state.caught.contains(&number) {
            self.changed.wait(&mut state);
        }
    }
}

impl Device for GatedDevice {
    forward_device!(this => this.inner; size, sector_size, network, read_only, flush);

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.pass(offset, |state| state.shut);
        self.inner.read_at(offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.block_if_caught(offset);
        self.pass(offset, |state| state.shut);
        self.inner.write_at(offset, bufs)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.pass(offset, |state| state.shut_to_discards);
        self.inner.discard(offset, len)
    }
}
