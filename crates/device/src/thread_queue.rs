//! The queue of any device: a few threads make its blocking calls.

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

const MAX_THREADS: usize = 16;

/// Threads start when there is work for them, and end with the queue.
#[derive(Debug)]
pub(crate) struct ThreadQueue {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    max_threads: usize,
    in_flight: usize,
}

#[derive(Debug)]
struct Shared {
    device: Arc<dyn Device>,
    state: Mutex<State>,
    work: Condvar,
    /// Something is done, or somebody woke the queue.
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pending: VecDeque<Request>,
    done: Vec<Done>,
    idle_threads: usize,
    woken: bool,
    closing: bool,
}

impl ThreadQueue {
    pub(crate) fn new(device: Arc<dyn Device>, depth: u32) -> Self {
        let shared = Shared { device, state: Mutex::default(), work: Condvar::new(), news: Condvar::new() };
        let max_threads = usize::try_from(depth).unwrap_or(MAX_THREADS).clamp(1, MAX_THREADS);
        Self { shared: Arc::new(shared), threads: Vec::new(), max_threads, in_flight: 0 }
    }

    /// Starts one more thread if that is allowed and possible; returns whether any is there.
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
    /// A thread's life.
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            while let Some(request) = state.pending.pop_front() {
                drop(state);
                let done = self.perform(request);
                state = self.state.lock();
                state.done.push(done);
                self.news.notify_one();
            }
            if state.closing {
                return;
            }
            state.idle_threads += 1;
            self.work.wait(&mut state);
            state.idle_threads -= 1;
        }
    }

    /// A device that panics must not take the request, and whoever waits for it, along.
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
            // No thread can be had: late is better than never.
            let request = self.shared.state.lock().pending.pop_back();
            let done = request.map(|request| self.shared.perform(request));
            self.shared.state.lock().done.extend(done);
        }
        self.shared.work.notify_one();
    }

    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        if wait {
            self.shared.news.wait_while(&mut state, |state| state.done.is_empty() && !state.woken);
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
        self.news.notify_one();
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        self.shared.state.lock().closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // Threads end only when nothing is pending; their panics are caught.
            let _ = thread.join();
        }
    }
}
