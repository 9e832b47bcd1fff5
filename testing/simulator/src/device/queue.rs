//! A queue of the simulated device: each request has a time of its own, so requests complete in any
//! order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Wake;
use std::time::Duration;

use parext4::device::{Done, Queue, QueueWaker, Request};
use parext4::models::simulated_time::{now, park_timeout};
use parking_lot::Mutex;
use shuttle::thread::{self, Thread};

use super::{Accepted, SimulatedDevice};

/// The queue.
#[derive(Debug)]
pub struct SimulatedQueue {
    device: Arc<SimulatedDevice>,
    /// With the time at which each is due.
    pending: Vec<(Duration, Accepted, Request)>,
    wake: Arc<QueueWake>,
}

/// The owner of the queue, and whether it was woken.
#[derive(Debug, Default)]
struct QueueWake {
    is_woken: AtomicBool,
    owner: Mutex<Option<Thread>>,
}

impl Wake for QueueWake {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Relaxed);
        let owner = self.owner.lock().clone();
        if let Some(owner) = owner {
            owner.unpark();
        }
    }
}

impl SimulatedQueue {
    pub fn new(device: Arc<SimulatedDevice>) -> Self {
        Self { device, pending: Vec::new(), wake: Arc::default() }
    }

    /// Performs the requests that are due.
    fn perform(&mut self, done: &mut Vec<Done>) {
        let now = now().expect("a simulation");
        let (due, pending) = std::mem::take(&mut self.pending).into_iter().partition(|(at, ..)| *at <= now);
        self.pending = pending;
        let due: Vec<(Duration, Accepted, Request)> = due;
        for (_, accepted, mut request) in due {
            let result = self.device.perform(&accepted, &mut request.op);
            done.push(request.done(result));
        }
    }
}

impl Queue for SimulatedQueue {
    fn submit(&mut self, request: Request) {
        let accepted = self.device.accept(&request.op);
        let due = now().expect("a simulation") + accepted.latency;
        self.pending.push((due, accepted, request));
    }

    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        *self.wake.owner.lock() = Some(thread::current());
        let before = done.len();
        loop {
            self.perform(done);
            if done.len() > before || !wait || self.wake.is_woken.swap(false, Relaxed) {
                return Ok(());
            }
            let now = now().expect("a simulation");
            match self.pending.iter().map(|(due, ..)| *due).min() {
                Some(due) => park_timeout(due.saturating_sub(now)),
                None => thread::park(),
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.pending.len()
    }

    fn cancel(&mut self, _token: u64) -> bool {
        false
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::new(Arc::clone(&self.wake))
    }
}

impl Drop for SimulatedQueue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while !std::thread::panicking() && self.in_flight() > 0 && self.harvest(true, &mut done).is_ok() {
            done.clear();
        }
    }
}
