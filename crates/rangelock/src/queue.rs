//! Who is granted when: the pure state machine, with no threads in it.
//!
//! Requests stand in one queue in arrival order, granted or waiting, until they are released. A request
//! waits for every earlier one that conflicts with it, whether that one is granted or waits itself; this
//! makes it FIFO among overlapping requests, and means that a whole-file request cannot be starved by small
//! ones that keep arriving. Each waiter counts those it waits for, so a release costs one pass.
//!
//! Invariants:
//! - Q1: `entries` is sorted by ticket, and tickets are in arrival order.
//! - Q2: a waiter's `blockers` is the number of earlier entries that conflict with it, and is not zero.
//! - Q3: no two granted entries conflict.

use crate::{ByteRange, Mode};
use std::collections::VecDeque;

/// Names one request for as long as it waits or holds.
pub(crate) type Ticket = u64;

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) range: ByteRange,
    pub(crate) mode: Mode,
}

impl Claim {
    fn conflicts(&self, other: &Self) -> bool {
        (self.mode == Mode::Exclusive || other.mode == Mode::Exclusive) && self.range.overlaps(&other.range)
    }
}

struct Entry<W> {
    ticket: Ticket,
    claim: Claim,
    state: State<W>,
}

enum State<W> {
    Granted,
    Waiting { blockers: usize, waker: W },
}

/// The requests of one lock. `W` is what the caller wants back when a waiter is granted.
pub(crate) struct Queue<W> {
    entries: VecDeque<Entry<W>>,
    next_ticket: Ticket,
    #[cfg(shuttle)]
    pub(crate) fault: Option<crate::Fault>,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            next_ticket: 0,
            #[cfg(shuttle)]
            fault: None,
        }
    }
}

impl<W> Queue<W> {
    /// Grants `claim` if nothing earlier conflicts with it, else leaves no trace.
    pub(crate) fn try_request(&mut self, claim: Claim) -> Option<Ticket> {
        (self.blockers(&claim) == 0).then(|| self.push(claim, State::Granted))
    }

    /// Grants `claim` if nothing earlier conflicts with it, else makes it wait with the waker that `waker`
    /// returns. Calls `waker` only in the second case.
    pub(crate) fn request(&mut self, claim: Claim, waker: impl FnOnce(Ticket) -> W) -> Ticket {
        let state = match self.blockers(&claim) {
            0 => State::Granted,
            blockers => State::Waiting { blockers, waker: waker(self.next_ticket) },
        };
        self.push(claim, state)
    }

    /// Removes a request, granted or waiting; returns the wakers of the waiters this grants, in arrival order.
    pub(crate) fn release(&mut self, ticket: Ticket) -> Vec<W> {
        let index = self.index_of(ticket);
        let Some(entry) = self.entries.remove(index) else { return Vec::new() };
        self.unblock(index, |waiter| waiter.conflicts(&entry.claim))
    }

    /// Replaces a granted claim by `to`, which must conflict with no claim that the old one does not
    /// conflict with; returns the wakers of the waiters this grants, in arrival order.
    pub(crate) fn narrow(&mut self, ticket: Ticket, to: Claim) -> Vec<W> {
        let index = self.index_of(ticket);
        let Some(entry) = self.entries.get_mut(index) else { return Vec::new() };
        let from = std::mem::replace(&mut entry.claim, to);
        debug_assert!(from.range.contains(&to.range));
        self.unblock(index + 1, |waiter| waiter.conflicts(&from) && !waiter.conflicts(&to))
    }

    /// How many requests are granted, and how many wait.
    pub(crate) fn holders_and_waiters(&self) -> (usize, usize) {
        let holders = self.entries.iter().filter(|e| matches!(e.state, State::Granted)).count();
        (holders, self.entries.len() - holders)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many of the requests so far conflict with `claim`.
    fn blockers(&self, claim: &Claim) -> usize {
        #[cfg(shuttle)]
        if self.fault.is_some_and(|fault| self.skips_check(fault, claim)) {
            return 0;
        }
        self.entries.iter().filter(|e| e.claim.conflicts(claim)).count()
    }

    fn push(&mut self, claim: Claim, state: State<W>) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.entries.push_back(Entry { ticket, claim, state });
        ticket
    }

    /// The place of a live ticket (Q1). Only guards and requests hold tickets; each releases its own once.
    fn index_of(&self, ticket: Ticket) -> usize {
        let index = self.entries.partition_point(|e| e.ticket < ticket);
        debug_assert!(self.entries.get(index).is_some_and(|entry| entry.ticket == ticket));
        index
    }

    /// Takes one blocker from each waiter at or after `from` for which `unblocked` holds, and grants those
    /// that have none left (Q2).
    fn unblock(&mut self, from: usize, unblocked: impl Fn(&Claim) -> bool) -> Vec<W> {
        let mut granted = Vec::new();
        for entry in self.entries.range_mut(from..) {
            let State::Waiting { blockers, .. } = &mut entry.state else { continue };
            if !unblocked(&entry.claim) {
                continue;
            }
            *blockers -= 1;
            if *blockers == 0
                && let State::Waiting { waker, .. } = std::mem::replace(&mut entry.state, State::Granted)
            {
                granted.push(waker);
            }
        }
        #[cfg(shuttle)]
        if self.fault == Some(crate::Fault::LoseWakeUps) {
            granted.clear();
        }
        granted
    }

    #[cfg(shuttle)]
    fn skips_check(&self, fault: crate::Fault, claim: &Claim) -> bool {
        let held = |e: &Entry<W>| matches!(e.state, State::Granted) && e.claim.conflicts(claim);
        match fault {
            crate::Fault::SkipOverlapCheck => true,
            crate::Fault::PassWaiters => !self.entries.iter().any(held),
            crate::Fault::LoseWakeUps => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Claim, Queue};
    use crate::{ByteRange, Mode};

    fn claim(start: u64, end: u64, mode: Mode) -> Claim {
        Claim { range: ByteRange::new(start, end), mode }
    }

    #[test]
    fn a_release_grants_in_arrival_order_and_stops_at_a_conflict() {
        let mut queue = Queue::<&str>::default();
        let held = queue.try_request(claim(0, 10, Mode::Exclusive)).unwrap();
        for name in ["first reader", "second reader"] {
            queue.request(claim(0, 10, Mode::Shared), |_| name);
        }
        let writer = queue.request(claim(5, 6, Mode::Exclusive), |_| "writer");
        queue.request(claim(0, 10, Mode::Shared), |_| "late reader");
        assert_eq!(queue.holders_and_waiters(), (1, 4));
        assert_eq!(queue.release(held), ["first reader", "second reader"]);
        assert_eq!(queue.release(held + 1), [""; 0]);
        assert_eq!(queue.release(held + 2), ["writer"]);
        assert_eq!(queue.release(writer), ["late reader"]);
        assert_eq!(queue.release(writer + 1), [""; 0]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_waiter_that_gives_up_blocks_nobody() {
        let mut queue = Queue::<&str>::default();
        let held = queue.try_request(claim(0, 10, Mode::Exclusive)).unwrap();
        let waiter = queue.request(claim(5, 20, Mode::Exclusive), |_| "waiter");
        queue.request(claim(15, 20, Mode::Exclusive), |_| "behind it");
        queue.request(claim(0, 5, Mode::Exclusive), |_| "elsewhere");
        assert_eq!(queue.release(waiter), ["behind it"]);
        assert_eq!(queue.release(held), ["elsewhere"]);
    }

    #[test]
    fn a_waiter_blocks_later_conflicts_but_nobody_else() {
        let mut queue = Queue::<()>::default();
        queue.try_request(claim(0, 10, Mode::Shared)).unwrap();
        queue.request(claim(5, 20, Mode::Exclusive), |_| ());
        assert!(queue.try_request(claim(15, 25, Mode::Shared)).is_none());
        assert!(queue.try_request(claim(0, 5, Mode::Shared)).is_some());
        assert!(queue.try_request(claim(20, 30, Mode::Exclusive)).is_some());
    }

    #[test]
    fn narrowing_grants_what_it_gives_back() {
        let mut queue = Queue::<&str>::default();
        let held = queue.try_request(claim(0, 30, Mode::Exclusive)).unwrap();
        queue.request(claim(20, 30, Mode::Exclusive), |_| "tail");
        queue.request(claim(0, 5, Mode::Shared), |_| "reader");
        queue.request(claim(4, 6, Mode::Exclusive), |_| "writer");
        assert_eq!(queue.narrow(held, claim(0, 10, Mode::Exclusive)), ["tail"]);
        assert_eq!(queue.narrow(held, claim(0, 10, Mode::Shared)), ["reader"]);
        assert_eq!(queue.release(held), [""; 0]);
    }
}
