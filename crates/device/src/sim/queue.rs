//! The native queue of a simulated device.
//!
//! Each request has a time when it is due, and reaches the inner device then. Only a `harvest` that
//! waits sleeps. Requests of one kind take equally long, and slots become free in order, so each
//! kind is a FIFO.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::clock::{Clock, reduce_timer_slack};
use crate::device::Device;
use crate::queue::{Queue, QueueWaker, WakeEvent, drain};
use crate::request::{Done, Op, Request};

#[derive(Debug)]
pub(super) struct SimQueue {
    inner: Arc<dyn Device>,
    clock: Arc<Clock>,
    /// Requests that are submitted and have no slot on the device yet.
    unassigned: Vec<Request>,
    /// Assigned requests: reads, writes, flushes.
    kinds: [Fifo; 3],
    canceled: Vec<Done>,
    wake: Arc<WakeEvent>,
}

/// Requests of one kind, in the order in which they are due.
#[derive(Debug)]
struct Fifo {
    /// Time that a request of this kind takes, nanoseconds.
    latency: u64,
    assigned: VecDeque<Assigned>,
}

/// A request that has a slot.
#[derive(Debug)]
struct Assigned {
    /// Time of the clock at which the request completes, nanoseconds.
    due: u64,
    request: Request,
}

impl Fifo {
    /// Removes a request that has not started. Its slot stays unused for its time.
    fn cancel(&mut self, token: u64, now: u64) -> Option<Request> {
        let waits =
            |assigned: &Assigned| assigned.due - self.latency > now && assigned.request.token == token;
        let index = self.assigned.iter().position(waits)?;
        self.assigned.remove(index).map(|assigned| assigned.request)
    }
}

/// Returns the index of the operation's kind.
fn kind(op: &Op) -> usize {
    match op {
        Op::Read { .. } => 0,
        Op::Write { .. } => 1,
        Op::Flush => 2,
    }
}

impl SimQueue {
    /// Opens a queue on a device that delays requests to `inner` by `latencies`, in nanoseconds: of
    /// a read, a write and a flush.
    pub(super) fn new(inner: Arc<dyn Device>, clock: Arc<Clock>, latencies: [u64; 3]) -> Self {
        Self {
            inner,
            clock,
            unassigned: Vec::new(),
            kinds: latencies.map(|latency| Fifo { latency, assigned: VecDeque::new() }),
            canceled: Vec::new(),
            wake: Arc::default(),
        }
    }

    /// Assigns slots to new requests.
    fn start(&mut self, now: u64) {
        if self.unassigned.is_empty() {
            return;
        }
        let mut slots = self.clock.slots();
        for request in self.unassigned.drain(..) {
            let fifo = &mut self.kinds[kind(&request.op)];
            fifo.assigned.push_back(Assigned { due: slots.assign(now, fifo.latency), request });
        }
    }

    /// Performs the requests that are due.
    fn reap(&mut self, now: u64, done: &mut Vec<Done>) {
        for fifo in &mut self.kinds {
            while let Some(due) = fifo.assigned.pop_front_if(|assigned| assigned.due <= now) {
                done.push(due.request.perform(&*self.inner));
            }
        }
    }

    /// Returns the earliest time at which a request is due.
    fn next_due(&self) -> Option<u64> {
        self.kinds.iter().filter_map(|fifo| fifo.assigned.front()).map(|assigned| assigned.due).min()
    }

    /// Blocks until a request is due or a thread wakes the queue, and returns the time.
    fn sleep(&self) -> u64 {
        let Some(due) = self.next_due() else {
            self.wake.wait(None);
            return self.clock.now();
        };
        if let Some(spin_from) = self.clock.spin_from(due, self.clock.now()) {
            reduce_timer_slack();
            self.wake.wait(Some(spin_from));
        }
        loop {
            let now = self.clock.now();
            if now >= due || self.wake.is_set() {
                return now;
            }
            std::hint::spin_loop();
        }
    }
}

impl Queue for SimQueue {
    fn submit(&mut self, request: Request) {
        self.unassigned.push(request);
    }

    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        let before = done.len();
        done.append(&mut self.canceled);
        let mut now = self.clock.now();
        self.start(now);
        self.reap(now, done);
        while wait && !self.wake.take() && done.len() == before {
            now = self.sleep();
            self.reap(now, done);
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        let assigned: usize = self.kinds.iter().map(|fifo| fifo.assigned.len()).sum();
        self.unassigned.len() + assigned + self.canceled.len()
    }

    fn cancel(&mut self, token: u64) -> bool {
        let unassigned = self.unassigned.iter().position(|request| request.token == token);
        let request = match unassigned {
            Some(index) => Some(self.unassigned.remove(index)),
            None => {
                let now = self.clock.now();
                self.kinds.iter_mut().find_map(|fifo| fifo.cancel(token, now))
            }
        };
        let found = request.is_some();
        self.canceled.extend(request.map(Request::canceled));
        found
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::new(self.wake.clone())
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        drain(self);
    }
}
