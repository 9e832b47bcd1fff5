//! A device whose reads and writes, or whose discards, wait at a gate.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::Device;
use parking_lot::{Condvar, Mutex};

/// Another device behind a gate. Open at first.
#[derive(Debug)]
pub struct Gated {
    inner: Arc<dyn Device>,
    /// Requests that begin in these bytes never wait.
    beside: Range<u64>,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    shut: bool,
    shut_to_discards: bool,
    waiting: usize,
    /// The next writes that wait although the gate is open.
    to_catch: usize,
    /// The next write at this offset waits although the gate is open.
    to_catch_at: Option<u64>,
    /// Numbers of writes, in the order in which they came, that were caught and wait.
    caught: VecDeque<usize>,
    /// Writes caught so far.
    catches: usize,
}

impl Gated {
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self::beside(inner, 0..0)
    }

    /// As [`new`](Self::new), with bytes of the device that lie beside the gate.
    pub fn beside(inner: Arc<dyn Device>, beside: Range<u64>) -> Self {
        Self { inner, beside, state: Mutex::default(), news: Condvar::new() }
    }

    /// Reads and writes that begin from now on wait.
    pub fn shut(&self) {
        self.state.lock().shut = true;
    }

    /// Discards that begin from now on wait.
    pub fn shut_to_discards(&self) {
        self.state.lock().shut_to_discards = true;
    }

    /// Lets all go that wait.
    pub fn open(&self) {
        let mut state = self.state.lock();
        (state.shut, state.shut_to_discards) = (false, false);
        (state.to_catch, state.to_catch_at) = (0, None);
        state.caught.clear();
        self.news.notify_all();
    }

    /// Holds the next `count` writes, while all other calls pass.
    pub fn catch_writes(&self, count: usize) {
        self.state.lock().to_catch = count;
    }

    /// Holds the next write that begins at `offset`, while all other calls pass.
    pub fn catch_write_at(&self, offset: u64) {
        self.state.lock().to_catch_at = Some(offset);
    }

    /// Lets the write go that was caught first.
    pub fn let_first_go(&self) {
        self.state.lock().caught.pop_front();
        self.news.notify_all();
    }

    /// Waits until `count` calls wait at the gate.
    pub fn wait_for(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut state = self.state.lock();
        while state.waiting + state.caught.len() < count {
            assert!(!self.news.wait_until(&mut state, deadline).timed_out(), "no call came to the gate");
        }
    }

    fn pass(&self, offset: u64, is_shut: impl Fn(&State) -> bool) {
        if self.beside.contains(&offset) {
            return;
        }
        let mut state = self.state.lock();
        state.waiting += 1;
        self.news.notify_all();
        while is_shut(&state) {
            self.news.wait(&mut state);
        }
        state.waiting -= 1;
    }

    /// Waits if this write is to be caught.
    fn be_caught(&self, offset: u64) {
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
        self.news.notify_all();
        while state.caught.contains(&number) {
            self.news.wait(&mut state);
        }
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
        self.pass(offset, |state| state.shut);
        self.inner.read_at(offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.be_caught(offset);
        self.pass(offset, |state| state.shut);
        self.inner.write_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.pass(offset, |state| state.shut_to_discards);
        self.inner.discard(offset, len)
    }
}
