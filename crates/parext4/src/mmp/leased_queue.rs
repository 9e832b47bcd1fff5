//! A queue whose writes and flushes need the lease.
//!
//! The inner queue gets at most `depth` requests, so no request waits in it between the check of
//! the lease and its start. The check is part of `harvest`, which starts the requests.

use std::collections::VecDeque;
use std::io;

use parext4_device::{Done, Op, Queue, QueueWaker, Request};

use super::lease::{Lease, LeaseState};
use crate::convert::to_usize;
use crate::sync::Arc;

/// A queue of a [`LeasedDevice`](super::leased_device::LeasedDevice).
#[derive(Debug)]
pub(super) struct LeasedQueue {
    inner: Box<dyn Queue>,
    lease: Arc<Lease>,
    /// Limit of requests in `inner`.
    depth: usize,
    /// Requests that `inner` does not have yet.
    backlog: VecDeque<Request>,
    /// Requests that ended without `inner`.
    ended: Vec<Done>,
}

impl LeasedQueue {
    pub(super) fn new(inner: Box<dyn Queue>, lease: &Arc<Lease>, depth: u32) -> Self {
        let depth = to_usize(depth.max(1).into());
        Self { inner, lease: Arc::clone(lease), depth, backlog: VecDeque::new(), ended: Vec::new() }
    }

    /// Submits requests to `inner` up to its depth. Returns false if the first remaining request
    /// waits for the lease.
    fn start(&mut self) -> bool {
        while self.inner.in_flight() < self.depth
            && let Some(request) = self.backlog.front()
        {
            let is_read = matches!(request.op, Op::Read { .. });
            let lease_state = if is_read { None } else { Some(self.lease.lease_state()) };
            if matches!(lease_state, Some(LeaseState::Ended)) {
                return false;
            }
            let Some(request) = self.backlog.pop_front() else { break };
            match lease_state {
                Some(LeaseState::Lost(error)) => self.ended.push(request.done(Err(error))),
                _ => self.inner.submit(request),
            }
        }
        true
    }
}

impl Queue for LeasedQueue {
    fn submit(&mut self, request: Request) {
        self.backlog.push_back(request);
    }

    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        let before = done.len();
        // The lease wakes the queue when it was extended. That ends the wait for completions below.
        while !self.start() && wait && !self.lease.wake_later(self.inner.waker()) {}
        done.append(&mut self.ended);
        self.inner.harvest(wait && done.len() == before, done)?;
        if !self.backlog.is_empty() {
            // The completions made room for more requests.
            self.start();
            done.append(&mut self.ended);
            self.inner.harvest(false, done)?;
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.backlog.len() + self.ended.len()
    }

    fn cancel(&mut self, token: u64) -> bool {
        let place = self.backlog.iter().position(|request| request.token == token);
        match place.and_then(|place| self.backlog.remove(place)) {
            Some(request) => {
                self.ended.push(request.canceled());
                true
            }
            None => self.inner.cancel(token),
        }
    }

    fn waker(&self) -> QueueWaker {
        self.inner.waker()
    }
}

impl Drop for LeasedQueue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight() > 0 && self.harvest(true, &mut done).is_ok() {
            done.clear();
        }
    }
}
