//! The queue of a device without a native queue: up to 16 threads make its blocking calls.
//!
//! Threads start when a request finds none idle, and end with the queue.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Wake;
use std::thread::{Builder, JoinHandle};

use parking_lot::{Condvar, Mutex};

use crate::device::Device;
use crate::queue::{Queue, QueueWaker};
use crate::request::{Done, Request};

/// Largest number of threads of a queue.
const MAX_THREADS: usize = 16;

/// The owner's part of the queue.
#[derive(Debug)]
pub(crate) struct ThreadQueue {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    max_threads: usize,
    in_flight: usize,
}

/// State that the owner and the threads share.
#[derive(Debug)]
struct Shared {
    device: Arc<dyn Device>,
    state: Mutex<QueueState>,
    /// Condition that is notified when a request is pending, or the queue closes.
    work: Condvar,
    /// Condition that is notified when a request is done, or a thread wakes the queue.
    progress: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Requests that no thread has started.
    pending: VecDeque<Request>,
    done: Vec<Done>,
    idle_threads: usize,
    woken: bool,
    closing: bool,
}

impl ThreadQueue {
    pub(crate) fn new(device: Arc<dyn Device>, depth: u32) -> Self {
        let shared =
            Shared { device, state: Mutex::default(), work: Condvar::new(), progress: Condvar::new() };
        let max_threads = usize::try_from(depth).unwrap_or(MAX_THREADS).clamp(1, MAX_THREADS);
        Self { shared: Arc::new(shared), threads: Vec::new(), max_threads, in_flight: 0 }
    }

    /// Starts another thread unless the limit is reached or the system refuses. Returns whether the
    /// queue has a thread.
    fn add_thread(&mut self) -> bool {
        if self.threads.len() < self.max_threads {
            let shared = self.shared.clone();
            let thread = Builder::new().name("device-queue".into()).spawn(move || shared.serve());
            self.threads.extend(thread);
        }
        !self.threads.is_empty()
    }
}

impl Shared {
    /// Performs requests until the queue closes and none is pending.
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            while let Some(request) = state.pending.pop_front() {
                drop(state);
                let done = self.perform(request);
                state = self.state.lock();
                state.done.push(done);
                self.progress.notify_one();
            }
            if state.closing {
                return;
            }
            state.idle_threads += 1;
            self.work.wait(&mut state);
            state.idle_threads -= 1;
        }
    }

    /// Performs a request. A panic of the device becomes the request's error, because the owner
    /// would otherwise wait for the request forever.
    fn perform(&self, mut request: Request) -> Done {
        let result = catch_unwind(AssertUnwindSafe(|| request.op.perform(&*self.device)));
        request.done(result.unwrap_or_else(|_| Err(io::Error::other("the device panicked"))))
    }
}

impl Queue for ThreadQueue {
    fn submit(&mut self, request: Request) {
        self.in_flight += 1;
        let mut state = self.shared.state.lock();
        state.pending.push_back(request);
        let enough = state.idle_threads >= state.pending.len();
        drop(state);
        if !enough && !self.add_thread() {
            // The system has no thread for this queue, so the owner performs the request itself,
            // though `submit` then blocks.
            let request = self.shared.state.lock().pending.pop_back();
            let done = request.map(|request| self.shared.perform(request));
            self.shared.state.lock().done.extend(done);
        }
        self.shared.work.notify_one();
    }

    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        if wait {
            self.shared.progress.wait_while(&mut state, |state| state.done.is_empty() && !state.woken);
            state.woken = false;
        }
        self.in_flight -= state.done.len();
        done.append(&mut state.done);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn cancel(&mut self, token: u64) -> bool {
        let state = &mut *self.shared.state.lock();
        let place = state.pending.iter().position(|request| request.token == token);
        let request = place.and_then(|place| state.pending.remove(place));
        let found = request.is_some();
        state.done.extend(request.map(Request::canceled));
        found
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::new(self.shared.clone())
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.state.lock().woken = true;
        self.progress.notify_one();
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        self.shared.state.lock().closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread returns only when nothing is pending, and catches panics.
            let _ = thread.join();
        }
    }
}
