//! The queue of a simulated device: each request has a time when it is due, and no thread sleeps for it.
//!
//! Requests of one kind take equally long, and places become free in order: each kind is first in, first out.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::clock::{Clock, sharpen_timer};
use crate::device::Device;
use crate::queue::{Queue, QueueWaker, WakeEvent, drain};
use crate::request::{Done, Op, Request};

#[derive(Debug)]
pub(super) struct SimQueue {
    inner: Arc<dyn Device>,
    clock: Arc<Clock>,
    /// Submitted, without a place on the device yet.
    fresh: Vec<Request>,
    /// One for each kind of request.
    lines: [Line; 3],
    canceled: Vec<Done>,
    wake: Arc<WakeEvent>,
}

/// Requests that take equally long, in order.
#[derive(Debug)]
struct Line {
    latency: u64,
    booked: VecDeque<Booked>,
}

#[derive(Debug)]
struct Booked {
    due: u64,
    request: Request,
}

impl Line {
    /// Takes out a request that still waits for its place on the device; the place stays empty.
    fn cancel(&mut self, token: u64, now: u64) -> Option<Request> {
        let waits = |booked: &Booked| booked.due - self.latency > now && booked.request.token == token;
        let index = self.booked.iter().position(waits)?;
        self.booked.remove(index).map(|booked| booked.request)
    }
}

fn kind(op: &Op) -> usize {
    match op {
        Op::Read { .. } => 0,
        Op::Write { .. } => 1,
        Op::Flush => 2,
    }
}

impl SimQueue {
    /// Opens a queue on a device that delays requests to `inner` by `latencies`, in nanoseconds: of a read, a write and a
    /// flush.
    pub(super) fn new(inner: Arc<dyn Device>, clock: Arc<Clock>, latencies: [u64; 3]) -> Self {
        Self {
            inner,
            clock,
            fresh: Vec::new(),
            lines: latencies.map(|latency| Line { latency, booked: VecDeque::new() }),
            canceled: Vec::new(),
            wake: Arc::default(),
        }
    }

    /// Books places for what is fresh.
    fn start(&mut self, now: u64) {
        if self.fresh.is_empty() {
            return;
        }
        let mut places = self.clock.places();
        for request in self.fresh.drain(..) {
            let line = &mut self.lines[kind(&request.op)];
            line.booked.push_back(Booked { due: places.book(now, line.latency), request });
        }
    }

    /// Carries out what is due.
    fn reap(&mut self, now: u64, done: &mut Vec<Done>) {
        for line in &mut self.lines {
            while let Some(booked) = line.booked.pop_front_if(|booked| booked.due <= now) {
                done.push(booked.request.perform(&*self.inner));
            }
        }
    }

    fn next_due(&self) -> Option<u64> {
        self.lines.iter().filter_map(|line| line.booked.front()).map(|booked| booked.due).min()
    }

    /// Waits until something is due or the wake rings; returns the time.
    fn sleep(&self) -> u64 {
        let Some(due) = self.next_due() else {
            self.wake.wait(None);
            return self.clock.now();
        };
        if let Some(spin_from) = self.clock.spin_from(due, self.clock.now()) {
            sharpen_timer();
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
        self.fresh.push(request);
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
        let booked: usize = self.lines.iter().map(|line| line.booked.len()).sum();
        self.fresh.len() + booked + self.canceled.len()
    }

    fn cancel(&mut self, token: u64) -> bool {
        let fresh = self.fresh.iter().position(|request| request.token == token);
        let request = match fresh {
            Some(index) => Some(self.fresh.remove(index)),
            None => {
                let now = self.clock.now();
                self.lines.iter_mut().find_map(|line| line.cancel(token, now))
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
