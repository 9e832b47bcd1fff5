//! The requests of one slot for exactly one range: a count of the granted ones, and the waiting
//! ones in arrival order.

use crate::range::Mode;
use std::collections::VecDeque;

pub(crate) type Ticket = u64;

/// Greater than every ticket in use.
pub(crate) const LAST: Ticket = Ticket::MAX;

pub(crate) struct Waiting<W> {
    pub(crate) ticket: Ticket,
    pub(crate) mode: Mode,
    pub(crate) waker: W,
}

/// The requests for exactly one range.
pub(crate) struct Class<W> {
    pub(crate) shared: u32,
    pub(crate) exclusive: u32,
    /// The waiters. Boxed, because most classes never have one.
    waiters: Option<Box<Waiters<W>>>,
}

/// The waiting requests of a class, in arrival order.
struct Waiters<W> {
    requests: VecDeque<Waiting<W>>,
    /// The ticket of the first exclusive waiter, or `LAST`.
    first_exclusive: Ticket,
}

impl<W> Default for Class<W> {
    fn default() -> Self {
        Self { shared: 0, exclusive: 0, waiters: None }
    }
}

impl<W> Default for Waiters<W> {
    fn default() -> Self {
        Self { requests: VecDeque::new(), first_exclusive: LAST }
    }
}

impl<W> Class<W> {
    pub(crate) fn granted(&mut self, mode: Mode) -> &mut u32 {
        match mode {
            Mode::Shared => &mut self.shared,
            Mode::Exclusive => &mut self.exclusive,
        }
    }

    /// Returns true if the class has a grant, or a waiter before `ticket`, that excludes `mode`.
    #[inline]
    pub(crate) fn blocks(&self, mode: Mode, ticket: Ticket) -> bool {
        let waiting = self.waiters.as_ref().map_or(LAST, |waiters| waiters.first(mode));
        let granted = match mode {
            Mode::Shared => self.exclusive,
            Mode::Exclusive => self.shared + self.exclusive,
        };
        granted > 0 || waiting < ticket
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shared + self.exclusive == 0 && self.first().is_none()
    }

    /// Returns the first waiter.
    pub(crate) fn first(&self) -> Option<&Waiting<W>> {
        self.waiting().next()
    }

    /// Returns the waiters in arrival order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Waiting<W>> {
        self.waiters.iter().flat_map(|waiters| &waiters.requests)
    }

    /// Adds a waiter at the end.
    pub(crate) fn push(&mut self, waiting: Waiting<W>) {
        self.waiters.get_or_insert_default().push(waiting);
    }

    /// Removes the waiter at `index`.
    pub(crate) fn remove(&mut self, index: usize) -> Option<Waiting<W>> {
        self.waiters.as_mut()?.remove(index)
    }

    /// Returns the waiters in arrival order.
    pub(crate) fn into_waiting(self) -> VecDeque<Waiting<W>> {
        self.waiters.map_or_else(VecDeque::new, |waiters| waiters.requests)
    }
}

impl<W> Waiters<W> {
    /// Returns the ticket of the first waiter that excludes `mode`, or `LAST`.
    fn first(&self, mode: Mode) -> Ticket {
        match mode {
            Mode::Shared => self.first_exclusive,
            Mode::Exclusive => self.requests.front().map_or(LAST, |first| first.ticket),
        }
    }

    fn push(&mut self, waiting: Waiting<W>) {
        if waiting.mode == Mode::Exclusive {
            self.first_exclusive = self.first_exclusive.min(waiting.ticket);
        }
        self.requests.push_back(waiting);
    }

    fn remove(&mut self, index: usize) -> Option<Waiting<W>> {
        let removed = self.requests.remove(index)?;
        if removed.ticket == self.first_exclusive {
            // Each shared waiter is visited once for each exclusive waiter removed before it,
            // mostly one.
            let exclusive = self.requests.iter().find(|w| w.mode == Mode::Exclusive);
            self.first_exclusive = exclusive.map_or(LAST, |w| w.ticket);
        }
        Some(removed)
    }
}
