//! The turn to flush a device: at most one flush is in flight, and each is for all callers that
//! wait.
//!
//! A device may report only once that it has lost writes (I8). If the flushes of two threads
//! overlap, Linux, for example, may report the loss to one of them, and the other one succeeds
//! although writes of its thread are lost. Its thread would tell a caller that they are durable,
//! before the first thread has stopped the volume. So
//!
//! 1. a flush begins when no other one is in flight;
//! 2. callers that come meanwhile wait, and one of them flushes next, for all of them, because a
//!    flush covers only writes that have completed before it;
//! 3. after a failure every flush fails. It still reaches the device, so that the record of the
//!    error becomes durable.
//!
//! Requests of queues pass by: the engine flushes by blocking calls only.

use std::io;

use parext4_device::{Device, Queue, forward_device};

use crate::fault::{Fault, guarded};
use crate::sync::{Arc, Condvar, Mutex, Rank};

/// A device with a turn to flush.
#[derive(Debug)]
pub struct FlushTurn {
    inner: Arc<dyn Device>,
    state: Mutex<FlushCounts>,
    /// Notified when a flush has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct FlushCounts {
    in_flight: bool,
    /// Number of flushes that have begun.
    begun: u64,
    /// Number of the last flush that has ended.
    ended: u64,
    /// The first failure.
    failed: Option<io::Error>,
}

impl FlushCounts {
    fn result(&self) -> io::Result<()> {
        match &self.failed {
            Some(error) if guarded!(Fault::FailedFlushForgotten, true, false) => Err(copy(error)),
            _ => Ok(()),
        }
    }
}

impl FlushTurn {
    /// Returns `inner` with a turn to flush.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, state: Mutex::new(Rank::Leaf, FlushCounts::default()), ended: Condvar::default() }
    }

    /// Waits for a flush that began after this call, or else begins one and returns its number.
    fn begin(&self) -> Result<u64, io::Result<()>> {
        let mut state = self.state.lock();
        let mine = state.begun + 1;
        while state.ended < mine && guarded!(Fault::FlushesOverlap, state.in_flight) {
            self.ended.wait(&mut state);
        }
        if state.ended >= mine {
            return Err(state.result());
        }
        state.in_flight = true;
        state.begun += 1;
        Ok(state.begun)
    }

    /// Ends flush `number`, which had this result. Returns the result that its caller sees.
    fn end(&self, number: u64, result: io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.in_flight = false;
        state.ended = state.ended.max(number);
        if let Err(error) = &result {
            state.failed.get_or_insert_with(|| copy(error));
        }
        let result = result.and_then(|()| state.result());
        drop(state);
        self.ended.notify_all();
        result
    }
}

impl Device for FlushTurn {
    forward_device!(this => this.inner; size, sector_size, read_only, network, read_at, write_at, discard);

    fn flush(&self) -> io::Result<()> {
        match self.begin() {
            Ok(number) => self.end(number, self.inner.flush()),
            Err(result) => result,
        }
    }

    fn native_queue(self: Arc<Self>, depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        Arc::clone(&self.inner).native_queue(depth)
    }
}

fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
