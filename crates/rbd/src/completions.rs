//! [`Completions`]: the requests that librbd's threads have completed, for the owner of a queue.

use std::io;
use std::sync::Arc;
use std::task::Wake;

use parext4_device::{Batch, Done, Op};
use parking_lot::{Condvar, Mutex};

use crate::fence::Fence;
use crate::ffi::Receive;

#[derive(Debug)]
pub(crate) struct Completions {
    fence: Arc<Fence>,
    read_only: bool,
    state: Mutex<CompletedRequests>,
    /// Condition that is notified when a request is done or the queue is woken, while the owner
    /// waits.
    progress: Condvar,
}

#[derive(Debug, Default)]
struct CompletedRequests {
    done: Vec<Done>,
    /// Batches in `done`.
    batches: usize,
    woken: bool,
    waiting: bool,
}

impl Completions {
    pub(crate) fn new(fence: Arc<Fence>, read_only: bool) -> Self {
        Self { fence, read_only, state: Mutex::default(), progress: Condvar::new() }
    }

    /// Moves completed requests to `done`, and returns the number of their batches. With `wait`,
    /// blocks until a request has completed or the queue was woken.
    pub(crate) fn take(&self, wait: bool, done: &mut Vec<Done>) -> usize {
        let mut state = self.state.lock();
        if wait {
            while state.done.is_empty() && !state.woken {
                state.waiting = true;
                self.progress.wait(&mut state);
            }
            state.waiting = false;
            state.woken = false;
        }
        done.append(&mut state.done);
        std::mem::take(&mut state.batches)
    }

    /// Completes the requests of a batch.
    pub(crate) fn complete(&self, batch: Batch, result: &io::Result<()>) {
        self.change(|state| {
            state.batches += 1;
            state.done.extend(batch.into_requests().map(|request| request.done(copy(result))));
        });
    }

    /// Changes the state and wakes the owner if it waits.
    fn change(&self, change: impl FnOnce(&mut CompletedRequests)) {
        let mut state = self.state.lock();
        change(&mut state);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        if waiting {
            self.progress.notify_one();
        }
    }

    /// Converts librbd's value to the result of a batch of `op` and other requests of its kind.
    fn result(&self, op: &Op, bytes: usize, value: isize) -> io::Result<()> {
        if value < 0 {
            return Err(self.fence.error(value, !self.read_only && !matches!(op, Op::Read { .. })));
        }
        match op {
            Op::Read { .. } if value.unsigned_abs() < bytes => Err(short_read(value)),
            _ => Ok(()),
        }
    }
}

impl Receive for Completions {
    fn receive(&self, mut batch: Batch, value: isize) {
        let bytes = batch.bytes();
        let result = self.result(&batch.requests_mut()[0].op, bytes, value);
        self.complete(batch, &result);
    }
}

impl Wake for Completions {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.change(|state| state.woken = true);
    }
}

/// Returns the error of a read that ended after `len` bytes, because the image was shrunk.
pub(crate) fn short_read(len: isize) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("the image ends {len} bytes after the start of a read"),
    )
}

fn copy(result: &io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(error) => Err(match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        }),
    }
}
