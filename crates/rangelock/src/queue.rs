//! Who is granted when: the pure state machine of one slot, with no threads in it.
//!
//! A request waits for every earlier one that conflicts with it, whether that one is granted or waits itself;
//! this makes it FIFO among overlapping requests, and means that a whole-file request cannot be starved by
//! small ones that keep arriving.
//!
//! Requests for exactly the same range form a *class*. It counts those granted, who need no names since they
//! are all alike, and queues those that wait. The classes stand in a [`Grid`], so requests elsewhere cost next
//! to nothing, and of a thousand that wait for one range only the first is ever looked at.
//!
//! Invariants:
//! - Q1: tickets are in arrival order, and those of a class's waiters rise.
//! - Q2: the first waiter of each class conflicts with a granted request, or with an earlier waiter. Then those
//!   behind it wait too: they conflict with the first or, if both are shared, with whatever blocks the first.
//! - Q3: no two granted requests conflict.
//! - Q4: a granted request that conflicts with a waiter is earlier, as it would have had to wait otherwise.
//!   So grants need no tickets.
//! - Q5: a class is neither without grants and waiters, nor has two grants that conflict.

use crate::fault::{Fault, Planted};
use crate::grid::{Grid, Id};
use crate::{ByteRange, Mode};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) range: ByteRange,
    pub(crate) mode: Mode,
}

type Ticket = u64;

/// After every ticket given out.
const LAST: Ticket = Ticket::MAX;

struct Waiting<W> {
    ticket: Ticket,
    mode: Mode,
    waker: W,
}

/// The requests for exactly one range.
struct Class<W> {
    shared: u32,
    exclusive: u32,
    /// Boxed, as most classes never need it.
    line: Option<Box<Line<W>>>,
}

/// Those who wait for one range.
struct Line<W> {
    waiting: VecDeque<Waiting<W>>,
    /// The ticket of the first exclusive waiter, or `LAST`.
    first_exclusive: Ticket,
}

impl<W> Default for Class<W> {
    fn default() -> Self {
        Self { shared: 0, exclusive: 0, line: None }
    }
}

impl<W> Default for Line<W> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), first_exclusive: LAST }
    }
}

impl<W> Class<W> {
    fn granted(&mut self, mode: Mode) -> &mut u32 {
        match mode {
            Mode::Shared => &mut self.shared,
            Mode::Exclusive => &mut self.exclusive,
        }
    }

    /// Whether it has a grant, or a waiter before `ticket`, that excludes `mode`.
    #[inline]
    fn blocks(&self, mode: Mode, ticket: Ticket) -> bool {
        let waiting = self.line.as_ref().map_or(LAST, |line| line.first(mode));
        let granted = match mode {
            Mode::Shared => self.exclusive,
            Mode::Exclusive => self.shared + self.exclusive,
        };
        granted > 0 || waiting < ticket
    }

    fn is_empty(&self) -> bool {
        self.shared + self.exclusive == 0 && self.first().is_none()
    }

    fn first(&self) -> Option<&Waiting<W>> {
        self.waiting().next()
    }

    fn waiting(&self) -> impl Iterator<Item = &Waiting<W>> {
        self.line.iter().flat_map(|line| &line.waiting)
    }
}

impl<W> Line<W> {
    /// The ticket of the first waiter that excludes `mode`, or `LAST`.
    fn first(&self, mode: Mode) -> Ticket {
        match mode {
            Mode::Shared => self.first_exclusive,
            Mode::Exclusive => self.waiting.front().map_or(LAST, |first| first.ticket),
        }
    }

    fn push(&mut self, waiting: Waiting<W>) {
        if waiting.mode == Mode::Exclusive {
            self.first_exclusive = self.first_exclusive.min(waiting.ticket);
        }
        self.waiting.push_back(waiting);
    }

    fn take(&mut self, index: usize) -> Option<Waiting<W>> {
        let taken = self.waiting.remove(index)?;
        if taken.ticket == self.first_exclusive {
            // Looks at each shared waiter once for each exclusive one before it that leaves: once, mostly.
            let exclusive = self.waiting.iter().find(|w| w.mode == Mode::Exclusive);
            self.first_exclusive = exclusive.map_or(LAST, |w| w.ticket);
        }
        Some(taken)
    }
}

/// The requests of one slot. `W` is what the caller wants back when a waiter is granted.
pub(crate) struct Queue<W> {
    classes: Grid<Class<W>>,
    waiting: u32,
    next_ticket: Ticket,
    planted: Planted,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self::new(Planted::default())
    }
}

impl<W> Queue<W> {
    pub(crate) fn new(planted: Planted) -> Self {
        Self { classes: Grid::default(), waiting: 0, next_ticket: 0, planted }
    }

    pub(crate) fn planted(&self) -> Planted {
        self.planted
    }

    /// Whether a request for `claim` would have to wait now.
    #[inline]
    pub(crate) fn blocks(&self, claim: Claim) -> bool {
        self.blocks_before(claim, LAST)
    }

    /// Grants `claim`, which nothing must block.
    #[inline]
    pub(crate) fn grant(&mut self, claim: Claim) {
        self.grant_many(claim, 1);
    }

    /// Grants `claim` to so many.
    pub(crate) fn grant_many(&mut self, claim: Claim, count: u32) {
        let id = self.classes.find_or_add(claim.range);
        *self.classes.value_mut(id).granted(claim.mode) += count;
    }

    /// Makes `claim` wait, which something must block.
    pub(crate) fn wait(&mut self, claim: Claim, waker: W) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting += 1;
        let id = self.classes.find_or_add(claim.range);
        let line = self.classes.value_mut(id).line.get_or_insert_default();
        line.push(Waiting { ticket, mode: claim.mode, waker });
    }

    /// Takes a grant back, and appends the wakers of the waiters that this grants.
    #[inline]
    pub(crate) fn release(&mut self, claim: Claim, granted: &mut Vec<W>) {
        let Some(id) = self.classes.find(claim.range) else { return lost("a granted range has a class") };
        let class = self.classes.value_mut(id);
        let count = class.granted(claim.mode);
        *count -= 1;
        // Another just like it blocks whom it blocked.
        if *count == 0 {
            self.left(id, granted);
        }
    }

    /// Replaces the grant of `from` by `to`, which must conflict with nothing that `from` does not conflict
    /// with, and appends the wakers of the waiters that this grants.
    pub(crate) fn narrow(&mut self, from: Claim, to: Claim, granted: &mut Vec<W>) {
        debug_assert!(from.range.contains(&to.range));
        self.grant(to);
        self.release(from, granted);
    }

    /// Removes a request that may wait or be granted; `is_it` knows its waker. Appends the wakers of the
    /// waiters that this grants. Takes time linear in the waiters for the same range.
    pub(crate) fn give_up(&mut self, claim: Claim, is_it: impl Fn(&W) -> bool, granted: &mut Vec<W>) {
        let Some(id) = self.classes.find(claim.range) else { return lost("a request has a class") };
        let Some(index) = self.classes.value(id).waiting().position(|w| is_it(&w.waker)) else {
            return self.release(claim, granted);
        };
        self.take(id, index);
        if !self.planted.is(Fault::GiveUpSilently) {
            self.left(id, granted);
        }
    }

    /// How many different ranges are held or waited for.
    pub(crate) fn ranges(&self) -> usize {
        self.classes.len()
    }

    /// What is granted, and to how many, if that is one claim, and nobody waits.
    pub(crate) fn sole(&self) -> Option<(Claim, u32)> {
        let id = self.classes.sole().filter(|_| self.waiting == 0)?;
        let (range, class) = (self.classes.range(id), self.classes.value(id));
        match (class.shared, class.exclusive) {
            (count, 0) => Some((Claim { range, mode: Mode::Shared }, count)),
            (0, count) => Some((Claim { range, mode: Mode::Exclusive }, count)),
            _ => None,
        }
    }

    /// Empties the queue of the one claim that [`sole`](Self::sole) shows.
    pub(crate) fn forget_sole(&mut self) {
        if let Some(id) = self.classes.sole() {
            self.classes.remove(id);
        }
    }

    /// The waker of each waiter.
    pub(crate) fn wakers(&self) -> impl Iterator<Item = &W> {
        self.classes.iter().flat_map(|(_, class)| class.waiting()).map(|w| &w.waker)
    }

    /// Empties the queue: what is granted, and who waits, in arrival order.
    pub(crate) fn take_all(&mut self) -> (Vec<Claim>, Vec<(Claim, W)>) {
        let (mut granted, mut waiting) = (Vec::new(), Vec::new());
        for (range, class) in self.classes.take_all() {
            for (mode, count) in [(Mode::Shared, class.shared), (Mode::Exclusive, class.exclusive)] {
                granted.extend((0..count).map(|_| Claim { range, mode }));
            }
            let line = class.line.map_or_else(VecDeque::new, |line| line.waiting);
            waiting.extend(line.into_iter().map(|w| (range, w)));
        }
        self.waiting = 0;
        waiting.sort_unstable_by_key(|(_, w)| w.ticket);
        let claim = |(range, w): (ByteRange, Waiting<W>)| (Claim { range, mode: w.mode }, w.waker);
        (granted, waiting.into_iter().map(claim).collect())
    }

    #[inline]
    fn blocks_before(&self, claim: Claim, ticket: Ticket) -> bool {
        if self.planted.is(Fault::SkipOverlapCheck) {
            return false;
        }
        let ticket = if self.planted.is(Fault::PassWaiters) { 0 } else { ticket };
        self.classes.any_overlapping(claim.range, |_, class| class.blocks(claim.mode, ticket))
    }

    /// After a request of class `id` has left: restores Q5 and Q2.
    #[inline]
    fn left(&mut self, id: Id, granted: &mut Vec<W>) {
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
        // The order makes no difference to who is granted: a grant unblocks nobody of another class.
        queued.sort_unstable();
        queued.dedup();
        for (_, id) in queued {
            self.grant_first(id, granted);
        }
    }

    /// Grants the waiters of class `id`, from the first up to one that is blocked.
    fn grant_first(&mut self, id: Id, granted: &mut Vec<W>) {
        let range = self.classes.range(id);
        while let Some(&Waiting { ticket, mode, .. }) = self.classes.value(id).first() {
            if self.blocks_before(Claim { range, mode }, ticket) {
                return;
            }
            let first = self.take(id, 0);
            *self.classes.value_mut(id).granted(mode) += 1;
            if !self.planted.is(Fault::LoseWakeUps) {
                granted.extend(first.map(|w| w.waker));
            }
        }
    }

    fn take(&mut self, id: Id, index: usize) -> Option<Waiting<W>> {
        self.waiting -= 1;
        self.classes.value_mut(id).line.as_mut()?.take(index)
    }
}

/// What must be is not. A guard that is dropped by a thread which unwinds already says no more.
#[cold]
fn lost(what: &str) {
    assert!(std::thread::panicking(), "{what}");
}

#[cfg(test)]
mod tests {
    use super::{Claim, Queue};
    use crate::{ByteRange, Mode};

    fn claim(start: u64, end: u64, mode: Mode) -> Claim {
        Claim { range: ByteRange::new(start, end), mode }
    }

    /// Whether it was granted at once.
    fn request(queue: &mut Queue<&'static str>, claim: Claim, name: &'static str) -> bool {
        let blocked = queue.blocks(claim);
        if blocked {
            queue.wait(claim, name)
        } else {
            queue.grant(claim)
        }
        !blocked
    }

    fn release(queue: &mut Queue<&'static str>, claim: Claim) -> Vec<&'static str> {
        let mut granted = Vec::new();
        queue.release(claim, &mut granted);
        granted
    }

    #[test]
    fn a_release_grants_in_arrival_order_and_stops_at_a_conflict() {
        let mut queue = Queue::default();
        let (all, reader) = (claim(0, 10, Mode::Exclusive), claim(0, 10, Mode::Shared));
        let writer = claim(5, 6, Mode::Exclusive);
        assert!(request(&mut queue, all, "holder"));
        for (claim, name) in [(reader, "first"), (reader, "second"), (writer, "writer"), (reader, "late")] {
            assert!(!request(&mut queue, claim, name));
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
    fn a_waiter_that_gives_up_blocks_nobody() {
        let mut queue = Queue::default();
        let (held, waiter) = (claim(0, 10, Mode::Exclusive), claim(5, 20, Mode::Exclusive));
        assert!(request(&mut queue, held, "holder"));
        assert!(!request(&mut queue, waiter, "waiter"));
        assert!(!request(&mut queue, claim(15, 20, Mode::Exclusive), "behind it"));
        assert!(!request(&mut queue, claim(0, 5, Mode::Exclusive), "elsewhere"));
        let mut granted = Vec::new();
        queue.give_up(waiter, |name| *name == "waiter", &mut granted);
        assert_eq!(granted, ["behind it"]);
        assert_eq!(release(&mut queue, held), ["elsewhere"]);
    }

    #[test]
    fn a_waiter_blocks_later_conflicts_but_nobody_else() {
        let mut queue = Queue::default();
        assert!(request(&mut queue, claim(0, 10, Mode::Shared), "holder"));
        assert!(!request(&mut queue, claim(5, 20, Mode::Exclusive), "waiter"));
        assert!(queue.blocks(claim(15, 25, Mode::Shared)));
        assert!(!queue.blocks(claim(0, 5, Mode::Shared)));
        assert!(!queue.blocks(claim(20, 30, Mode::Exclusive)));
    }

    #[test]
    fn narrowing_grants_what_it_gives_back() {
        let mut queue = Queue::default();
        let [whole, head, read] = [(30, Mode::Exclusive), (10, Mode::Exclusive), (10, Mode::Shared)]
            .map(|(end, m)| claim(0, end, m));
        assert!(request(&mut queue, whole, "holder"));
        assert!(!request(&mut queue, claim(20, 30, Mode::Exclusive), "tail"));
        assert!(!request(&mut queue, claim(0, 5, Mode::Shared), "reader"));
        assert!(!request(&mut queue, claim(4, 6, Mode::Exclusive), "writer"));
        let mut granted = Vec::new();
        queue.narrow(whole, head, &mut granted);
        assert_eq!(granted, ["tail"]);
        queue.narrow(head, read, &mut granted);
        assert_eq!(granted, ["tail", "reader"]);
        assert_eq!(release(&mut queue, read), [""; 0]);
    }
}
