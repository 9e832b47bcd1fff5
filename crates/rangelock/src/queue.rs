//! Decides which requests of one slot are granted: a state machine without threads.
//!
//! A request waits for every earlier request that conflicts with it, granted or waiting. So
//! overlapping requests are FIFO, and small requests that keep arriving cannot starve a request for
//! the whole file.
//!
//! Requests for exactly the same range form a *class*. A class counts its granted requests, which
//! are interchangeable, and queues its waiting ones. Classes are kept in a [`Grid`], so requests
//! for other ranges cost next to nothing, and of a thousand requests that wait for one range only
//! the first is ever checked.
//!
//! Invariants:
//! - Q1: tickets rise in arrival order, also within the waiters of a class.
//! - Q2: the first waiter of each class conflicts with a granted request or with an earlier waiter.
//!   The later waiters of the class then wait, too: each conflicts with the first one or, if both
//!   are shared, with what blocks the first one.
//! - Q3: no two granted requests conflict.
//! - Q4: a granted request that conflicts with a waiter is earlier than the waiter; otherwise it
//!   would wait itself. So grants need no tickets.
//! - Q5: a class has a grant or a waiter, and no two conflicting grants.

use crate::class::{Class, LAST, Ticket, Waiting};
use crate::fault::Fault;
use crate::grid::{Grid, Id};
use crate::range::{Access, ByteRange, Mode};
use smallvec::SmallVec;

/// The requests of one slot. `W` is what the caller gets back when a waiter is granted.
pub(crate) struct Queue<W> {
    classes: Grid<Class<W>>,
    waiting: u32,
    next_ticket: Ticket,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self { classes: Grid::default(), waiting: 0, next_ticket: 0 }
    }
}

impl<W> Queue<W> {
    /// Returns true if a request for `access` would have to wait now.
    #[inline]
    pub(crate) fn blocks(&self, access: Access) -> bool {
        self.blocks_before(access, LAST)
    }

    /// Grants `access`. No request may block it.
    #[inline]
    pub(crate) fn grant(&mut self, access: Access) {
        self.grant_many(access, 1);
    }

    /// Grants `count` requests for `access`. No request may block them.
    pub(crate) fn grant_many(&mut self, access: Access, count: u32) {
        let id = self.classes.find_or_add(access.range);
        *self.classes.value_mut(id).granted(access.mode) += count;
    }

    /// Makes a request for `access` wait. Another request must block it.
    pub(crate) fn wait(&mut self, access: Access, waker: W) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting += 1;
        let id = self.classes.find_or_add(access.range);
        self.classes.value_mut(id).push(Waiting { ticket, mode: access.mode, waker });
    }

    /// Releases a granted request, and appends the wakers of the waiters that this grants.
    #[inline]
    pub(crate) fn release(&mut self, access: Access, granted: &mut Vec<W>) {
        let Some(id) = self.classes.find(access.range) else {
            return invariant_broken("a granted range has a class");
        };
        let class = self.classes.value_mut(id);
        let count = class.granted(access.mode);
        *count -= 1;
        // Another grant of the class blocks the same requests.
        if *count == 0 {
            self.grant_after_removal(id, granted);
        }
    }

    /// Replaces the grant of `from` by `to`, and appends the wakers of the waiters that this
    /// grants. `to` must conflict only with requests that `from` conflicts with.
    pub(crate) fn narrow(&mut self, from: Access, to: Access, granted: &mut Vec<W>) {
        debug_assert!(from.range.contains(&to.range));
        self.grant(to);
        self.release(from, granted);
    }

    /// Removes a request, waiting or granted, and appends the wakers of the waiters that this
    /// grants. `is_it` recognises the request's waker. Takes time linear in the waiters for the
    /// same range.
    pub(crate) fn cancel(&mut self, access: Access, is_it: impl Fn(&W) -> bool, granted: &mut Vec<W>) {
        let Some(id) = self.classes.find(access.range) else {
            return invariant_broken("a request has a class");
        };
        let Some(index) = self.classes.value(id).waiting().position(|w| is_it(&w.waker)) else {
            return self.release(access, granted);
        };
        self.remove_waiter(id, index);
        if !Fault::CancelGrantsNothing.is_planted() {
            self.grant_after_removal(id, granted);
        }
    }

    /// Returns the number of distinct ranges that are held or waited for.
    pub(crate) fn ranges(&self) -> usize {
        self.classes.len()
    }

    /// Returns the granted access and the number of its holders, if there is only one access and no
    /// waiter.
    pub(crate) fn sole(&self) -> Option<(Access, u32)> {
        let id = self.classes.sole().filter(|_| self.waiting == 0)?;
        let (range, class) = (self.classes.range(id), self.classes.value(id));
        match (class.shared, class.exclusive) {
            (count, 0) => Some((Access { range, mode: Mode::Shared }, count)),
            (0, count) => Some((Access { range, mode: Mode::Exclusive }, count)),
            _ => None,
        }
    }

    /// Removes all holders of the access that [`sole`](Self::sole) returns.
    pub(crate) fn clear_sole(&mut self) {
        if let Some(id) = self.classes.sole() {
            self.classes.remove(id);
        }
    }

    /// Returns the waker of each waiter.
    pub(crate) fn wakers(&self) -> impl Iterator<Item = &W> {
        self.classes.iter().flat_map(|(_, class)| class.waiting()).map(|w| &w.waker)
    }

    /// Empties the queue. Returns the granted requests, and the waiting ones in arrival order.
    pub(crate) fn take_all(&mut self) -> (Vec<Access>, Vec<(Access, W)>) {
        let (mut granted, mut waiting) = (Vec::new(), Vec::new());
        for (range, class) in self.classes.take_all() {
            for (mode, count) in [(Mode::Shared, class.shared), (Mode::Exclusive, class.exclusive)] {
                granted.extend((0..count).map(|_| Access { range, mode }));
            }
            waiting.extend(class.into_waiting().into_iter().map(|w| (range, w)));
        }
        self.waiting = 0;
        waiting.sort_unstable_by_key(|(_, w)| w.ticket);
        let access = |(range, w): (ByteRange, Waiting<W>)| (Access { range, mode: w.mode }, w.waker);
        (granted, waiting.into_iter().map(access).collect())
    }

    #[inline]
    fn blocks_before(&self, access: Access, ticket: Ticket) -> bool {
        if Fault::SkipOverlapCheck.is_planted() {
            return false;
        }
        let ticket = if Fault::PassWaiters.is_planted() { 0 } else { ticket };
        self.classes.any_overlapping(access.range, |_, class| class.blocks(access.mode, ticket))
    }

    /// Restores Q5 and Q2 after a request of class `id` was removed.
    #[inline]
    fn grant_after_removal(&mut self, id: Id, granted: &mut Vec<W>) {
        let range = self.classes.range(id);
        if self.classes.value(id).is_empty() {
            self.classes.remove(id);
        }
        if self.waiting == 0 {
            return;
        }
        let mut queued = SmallVec::<[(Ticket, Id); 8]>::new();
        self.classes.any_overlapping(range, |id, class| {
            queued.extend(class.first().map(|first| (first.ticket, id)));
            false
        });
        // Any order grants the same requests, because a grant unblocks no request of another class.
        queued.sort_unstable();
        queued.dedup();
        for (_, id) in queued {
            self.grant_first(id, granted);
        }
    }

    /// Grants the waiters of class `id` in arrival order, up to the first that is blocked.
    fn grant_first(&mut self, id: Id, granted: &mut Vec<W>) {
        let range = self.classes.range(id);
        while let Some(&Waiting { ticket, mode, .. }) = self.classes.value(id).first() {
            if self.blocks_before(Access { range, mode }, ticket) {
                return;
            }
            let first = self.remove_waiter(id, 0);
            *self.classes.value_mut(id).granted(mode) += 1;
            if !Fault::LoseWakeups.is_planted() {
                granted.extend(first.map(|w| w.waker));
            }
        }
    }

    fn remove_waiter(&mut self, id: Id, index: usize) -> Option<Waiting<W>> {
        self.waiting -= 1;
        self.classes.value_mut(id).remove(index)
    }
}

/// Panics, unless the thread already unwinds: a second panic would abort the process.
#[cold]
fn invariant_broken(what: &str) {
    assert!(std::thread::panicking(), "{what}");
}

#[cfg(test)]
mod tests {
    use super::Queue;
    use crate::range::{Access, ByteRange, Mode};

    fn access(start: u64, end: u64, mode: Mode) -> Access {
        Access { range: ByteRange::new(start, end), mode }
    }

    /// Returns true if the request was granted at once.
    fn request(queue: &mut Queue<&'static str>, access: Access, name: &'static str) -> bool {
        let blocked = queue.blocks(access);
        if blocked {
            queue.wait(access, name);
        } else {
            queue.grant(access);
        }
        !blocked
    }

    fn release(queue: &mut Queue<&'static str>, access: Access) -> Vec<&'static str> {
        let mut granted = Vec::new();
        queue.release(access, &mut granted);
        granted
    }

    #[test]
    fn a_release_grants_in_arrival_order_and_stops_at_a_conflict() {
        let mut queue = Queue::default();
        let (all, reader) = (access(0, 10, Mode::Exclusive), access(0, 10, Mode::Shared));
        let writer = access(5, 6, Mode::Exclusive);
        assert!(request(&mut queue, all, "holder"));
        for (access, name) in [(reader, "first"), (reader, "second"), (writer, "writer"), (reader, "late")] {
            assert!(!request(&mut queue, access, name));
        }
        assert_eq!(queue.wakers().count(), 4);
        assert_eq!(release(&mut queue, all), ["first", "second"]);
        assert_eq!(release(&mut queue, reader), [""; 0]);
        assert_eq!(release(&mut queue, reader), ["writer"]);
        assert_eq!(release(&mut queue, writer), ["late"]);
        assert_eq!(release(&mut queue, reader), [""; 0]);
        assert_eq!(queue.ranges(), 0);
    }

    #[test]
    fn a_cancelled_waiter_blocks_no_request() {
        let mut queue = Queue::default();
        let (held, waiter) = (access(0, 10, Mode::Exclusive), access(5, 20, Mode::Exclusive));
        assert!(request(&mut queue, held, "holder"));
        assert!(!request(&mut queue, waiter, "waiter"));
        assert!(!request(&mut queue, access(15, 20, Mode::Exclusive), "after it"));
        assert!(!request(&mut queue, access(0, 5, Mode::Exclusive), "elsewhere"));
        let mut granted = Vec::new();
        queue.cancel(waiter, |name| *name == "waiter", &mut granted);
        assert_eq!(granted, ["after it"]);
        assert_eq!(release(&mut queue, held), ["elsewhere"]);
    }

    #[test]
    fn a_waiter_blocks_later_conflicts_only() {
        let mut queue = Queue::default();
        assert!(request(&mut queue, access(0, 10, Mode::Shared), "holder"));
        assert!(!request(&mut queue, access(5, 20, Mode::Exclusive), "waiter"));
        assert!(queue.blocks(access(15, 25, Mode::Shared)));
        assert!(!queue.blocks(access(0, 5, Mode::Shared)));
        assert!(!queue.blocks(access(20, 30, Mode::Exclusive)));
    }

    #[test]
    fn narrowing_grants_the_waiters_that_it_unblocks() {
        let mut queue = Queue::default();
        let [whole, head, read] = [(30, Mode::Exclusive), (10, Mode::Exclusive), (10, Mode::Shared)]
            .map(|(end, m)| access(0, end, m));
        assert!(request(&mut queue, whole, "holder"));
        assert!(!request(&mut queue, access(20, 30, Mode::Exclusive), "tail"));
        assert!(!request(&mut queue, access(0, 5, Mode::Shared), "reader"));
        assert!(!request(&mut queue, access(4, 6, Mode::Exclusive), "writer"));
        let mut granted = Vec::new();
        queue.narrow(whole, head, &mut granted);
        assert_eq!(granted, ["tail"]);
        queue.narrow(head, read, &mut granted);
        assert_eq!(granted, ["tail", "reader"]);
        assert_eq!(release(&mut queue, read), [""; 0]);
    }
}
