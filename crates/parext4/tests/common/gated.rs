//! A device whose reads and writes wait at a gate.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::Device;
use parking_lot::{Condvar, Mutex};

/// Another device behind a gate. Open at first.
#[derive(Debug)]
pub struct Gated {
    inner: Arc<dyn Device>,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    shut: bool,
    waiting: usize,
}

impl Gated {
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, state: Mutex::default(), news: Condvar::new() }
    }

    /// Reads and writes that begin from now on wait.
    pub fn shut(&self) {
        self.state.lock().shut = true;
    }

    /// Lets all go that wait.
    pub fn open(&self) {
        self.state.lock().shut = false;
        self.news.notify_all();
    }

    /// Waits until `count` calls wait at the gate.
    pub fn wait_for(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut state = self.state.lock();
        while state.waiting < count {
            assert!(!self.news.wait_until(&mut state, deadline).timed_out(), "no call came to the gate");
        }
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.news.notify_all();
        while state.shut {
            self.news.wait(&mut state);
        }
        state.waiting -= 1;
    }
}

impl Device for Gated {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.pass();
        self.inner.read_at(offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.pass();
        self.inner.write_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }
}
