//! Where requests meet: the offsets of a lock are cut into stripes, which are hashed to a few [`Slot`]s. A
//! request stands in every slot that one of its stripes has.
//!
//! Requests that overlap share a byte, hence a stripe, hence a slot. A request enters all its slots while it
//! has them all locked, so two requests have the same order in each slot they share; it is granted when each
//! of its slots has granted it. So the queues of the slots, each FIFO by itself, make one FIFO lock.
//! Everything else, such as a release, goes from slot to slot and has one locked at a time: until it gets to
//! the last it looks to others as if it had only begun.
//!
//! A request that finds all its slots free takes their words, one by one, and locks nothing. If one of them is
//! not free after all, it leaves the others again before it queues; what came behind it meanwhile goes on.
//!
//! A *wide* request, of very many stripes, would spend its time in slots where nobody is. It stands in the
//! *gate* instead, a slot for all offsets, and in those that are not free when it comes. Others pass the gate,
//! which is one look, unless a wide request is present: then they queue there too. A wide request counts itself
//! before it looks for slots that are free, and others look for wide ones after they have their words: so at
//! least one of two sees the other. Whoever came first, both are then in a queue of both.
//!
//! A lock begins with one slot for all offsets. When that gets crowded its requests move to the others, which
//! are allocated then, and it is not used again.
//!
//! Invariants:
//! - S1: the gate is locked before slots, these in ascending order, and nothing else is locked under them. They
//!   are locked under nothing but `one`.
//! - S2: `spread` is set with `one` locked, which retires: it is empty and never free.
//! - S3: of two conflicting requests both of which came after the lock spread, of which one is wide, the later
//!   one stands in the gate or in a slot with the other, behind it.

use crate::ByteRange;
use crate::fault::{Fault, Planted};
use crate::queue::Claim;
use crate::slot::{Locked, Queue, Slot};
use crate::sync::{AtomicUsize, Ordering};
use crate::wake::{Waiter, wake_all};
use crate::word;
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

/// In the models a stripe is a byte and limits are low, so that a few small requests reach every state.
const MODEL: bool = cfg!(shuttle);
/// 64 KiB: most requests lie in one stripe or two, and threads at work in different parts of a file rarely in
/// the same.
const STRIPE_SHIFT: u32 = if MODEL { 0 } else { 16 };
const SLOTS_SHIFT: u32 = if MODEL { 2 } else { 6 };
const SLOTS: usize = 1 << SLOTS_SHIFT;
/// A range of more stripes is wide.
const MANY_STRIPES: u64 = SLOTS as u64 / 2;
/// Spread when so many ranges are held or wanted at once,
const MANY_RANGES: usize = if MODEL { 3 } else { 16 };
/// or when so often a request has met another range that was held or wanted.
const MANY_MEETINGS: usize = if MODEL { 3 } else { 8 };

/// Every request is granted at once and nobody is kept from anything, so that a benchmark can tell what the lock costs.
const UNLOCKED: bool = cfg!(rangelock_unlocked);

/// One bit for each slot.
type Set = u64;
const ALL: Set = Set::MAX >> (Set::BITS - SLOTS as u32);

#[derive(Default)]
pub(crate) struct Slots {
    one: Slot,
    spread: OnceLock<Box<Table>>,
    meetings: AtomicUsize,
    planted: Planted,
}

struct Table {
    slots: [Slot; SLOTS],
    gate: Slot,
    wide: Wide,
}

/// How many wide requests came since the lock spread and are present. Written only by them, so that to look at
/// it costs others nothing.
#[derive(Default)]
#[repr(align(64))]
struct Wide(AtomicUsize);

/// A request, and where it stands. As long as the lock has not spread that is where it would be moved to.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) claim: Claim,
    gate: AtGate,
    slots: Set,
}

/// As wide as a word for the reason that [`Mode`](crate::Mode) is.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum AtGate {
    Absent,
    /// A wide one was there.
    Behind,
    /// It is counted as a wide one.
    Wide,
}

impl Slots {
    #[cfg(shuttle)]
    pub(crate) fn new(planted: Planted) -> Self {
        Self { one: Slot::new(planted), planted, ..Self::default() }
    }

    /// Grants `claim` if that takes no queue.
    #[inline(always)]
    pub(crate) fn take(&self, claim: Claim) -> Option<Entry> {
        if UNLOCKED {
            return Some(Entry { claim, gate: AtGate::Absent, slots: 0 });
        }
        let (word, entry) = (word::of(claim)?, self.entry(claim));
        let taken = match self.spread.get() {
            None => self.one.take(word),
            Some(table) => self.take_slots(table, entry, word),
        };
        taken.then_some(entry)
    }

    /// Whether a slot that could not be taken for `claim` may be free in a moment: its word says who holds it.
    pub(crate) fn may_be_free_soon(&self, claim: Claim) -> bool {
        let Some(table) = self.spread.get() else {
            // Others that want something else should not share the slot for ever. A request that enters a queue
            // sees to that.
            return self.one.held().is_some_and(|held| held.range == claim.range || !self.has_met_often());
        };
        sole(self.entry(claim).slots).is_some_and(|slot| table.slots[slot].held().is_some())
    }

    #[inline(always)]
    fn take_slots(&self, table: &Table, entry: Entry, word: u64) -> bool {
        let taken = match sole(entry.slots) {
            Some(slot) => table.slots[slot].take(word),
            None => self.take_several(table, entry, word),
        };
        if taken && table.wide.any() && !self.planted.is(Fault::IgnoreGate) {
            self.leave(entry);
            return false;
        }
        taken
    }

    #[inline(never)]
    fn take_several(&self, table: &Table, entry: Entry, word: u64) -> bool {
        if entry.slots == ALL {
            return false;
        }
        let mut taken = 0;
        for slot in bits(entry.slots) {
            if !table.slots[slot].take(word) {
                if taken != 0 && !self.planted.is(Fault::KeepSomeSlots) {
                    self.leave_queues(Entry { slots: taken, ..entry });
                }
                return false;
            }
            taken |= 1 << slot;
        }
        true
    }

    /// Takes back a grant.
    #[inline(always)]
    pub(crate) fn leave(&self, entry: Entry) {
        if UNLOCKED {
            return;
        }
        let left = word::of(entry.claim).is_some_and(|word| match self.spread.get() {
            None => self.one.leave(word),
            Some(table) => match sole(entry.slots) {
                Some(slot) if entry.gate == AtGate::Absent => table.slots[slot].leave(word),
                _ => false,
            },
        });
        if !left && !self.planted.is(Fault::ReleaseIgnoresQueue) {
            self.leave_queues(entry);
        }
    }

    #[cold]
    fn leave_queues(&self, entry: Entry) {
        let mut granted = Vec::new();
        let word = word::of(entry.claim);
        match self.lock_one() {
            Ok(mut one) => one.release(entry.claim, &mut granted),
            Err(table) => {
                for slot in table.places(entry) {
                    if !word.is_some_and(|word| slot.leave(word)) {
                        slot.lock().release(entry.claim, &mut granted);
                    }
                }
                table.forget_wide(entry);
            }
        }
        wake_all(granted, self.planted);
    }

    /// Gives up the place of a request that `waiter` has waited for, granted meanwhile or not.
    pub(crate) fn give_up(&self, entry: Entry, waiter: &Arc<Waiter>) {
        let mut granted = Vec::new();
        let mut give_up = |mut queue: Locked<'_>| {
            queue.give_up(entry.claim, |other| Arc::ptr_eq(other, waiter), &mut granted);
        };
        match self.lock_one() {
            Ok(one) => give_up(one),
            Err(table) => {
                table.places(entry).for_each(|slot| give_up(slot.lock()));
                table.forget_wide(entry);
            }
        }
        wake_all(granted, self.planted);
    }

    /// Replaces a grant by one of `to`, which it must contain.
    pub(crate) fn narrow(&self, from: Entry, to: Claim) -> Entry {
        if UNLOCKED {
            return Entry { claim: to, ..from };
        }
        let mut granted = Vec::new();
        let mut entry = self.entry(to);
        match self.lock_one() {
            Ok(mut one) => one.narrow(from.claim, to, &mut granted),
            Err(table) => {
                entry.gate = from.gate;
                // Some who must wait for a wide one stand in a slot of `to` where it does not, granted.
                let stays = from.gate == AtGate::Wide && !self.planted.is(Fault::ShrinkMovesWide);
                let slots = if stays { from.slots } else { entry.slots };
                entry.slots = slots;
                for slot in table.places(entry) {
                    slot.lock().narrow(from.claim, to, &mut granted);
                }
                if !self.planted.is(Fault::ShrinkKeepsSlots) {
                    for slot in bits(from.slots & !slots) {
                        table.slots[slot].lock().release(from.claim, &mut granted);
                    }
                }
            }
        }
        wake_all(granted, self.planted);
        entry
    }

    /// Shows `enter` the queues in which a request for `claim` must stand, all locked, so that it can enter them
    /// in one moment. It may return false if it does not, for which there is no entry then.
    #[cold]
    pub(crate) fn enter(
        &self,
        claim: Claim,
        mut enter: impl FnMut(&mut [Locked<'_>], Entry) -> bool,
    ) -> Option<Entry> {
        let mut entry = self.entry(claim);
        let table = match self.lock_one() {
            Ok(mut one) => {
                let entered = enter(std::slice::from_mut(&mut one), entry);
                self.spread_if_crowded(one);
                return entered.then_some(entry);
            }
            Err(table) => table,
        };
        let mut locked = SmallVec::<[Locked<'_>; 4]>::new();
        loop {
            if is_wide(claim.range) {
                locked.push(table.gate.lock());
                table.wide.0.fetch_add(1, Ordering::SeqCst);
                entry.gate = AtGate::Wide;
                entry.slots = if self.planted.is(Fault::WideIgnoresSlots) { 0 } else { table.busy() };
            } else if table.wide.any() {
                locked.push(table.gate.lock());
                entry.gate = AtGate::Behind;
            }
            for slot in bits(entry.slots) {
                if self.planted.is(Fault::SlotsOneByOne) && !locked.is_empty() {
                    enter(&mut locked, entry);
                    locked.clear();
                }
                locked.push(table.slots[slot].lock());
            }
            // A wide one that came just now may have found the slots free.
            let passed = entry.gate == AtGate::Absent && table.wide.any();
            if !passed || self.planted.is(Fault::GateOnlyOnce) {
                break;
            }
            locked.clear();
        }
        let entered = enter(&mut locked, entry);
        if !entered {
            table.forget_wide(entry);
        }
        entered.then_some(entry)
    }

    /// Whether nobody is there.
    pub(crate) fn is_idle(&self) -> bool {
        match self.spread.get() {
            None => self.one.is_free(),
            Some(table) => table.gate.is_free() && table.busy() == 0,
        }
    }

    /// Shows `f` every queue, one after the other.
    pub(crate) fn each(&self, mut f: impl FnMut(&Queue)) {
        match self.lock_one() {
            Ok(one) => f(&one),
            Err(table) => table.slots.iter().chain([&table.gate]).for_each(|slot| f(&slot.lock())),
        }
    }

    /// The one queue, or the slots if it is not in use any more.
    fn lock_one(&self) -> Result<Locked<'_>, &Table> {
        let spread = || self.spread.get();
        if let Some(table) = spread() {
            return Err(table);
        }
        let one = self.one.lock_unless(|| spread().is_some() && !self.planted.is(Fault::MissSpread));
        one.ok_or_else(|| &**spread().expect("the one queue retires when there are slots"))
    }

    fn spread_if_crowded(&self, mut one: Locked<'_>) {
        // One range that all want would be no better off in a slot.
        let ranges = one.ranges();
        if ranges > 1 && (ranges >= MANY_RANGES || self.has_met_often()) {
            let table = self.spread.get_or_init(|| self.spread_out(&mut one));
            debug_assert!(table.slots.len() == SLOTS);
            one.retire();
        }
    }

    fn has_met_often(&self) -> bool {
        self.meetings.fetch_add(1, Ordering::Relaxed) + 1 >= MANY_MEETINGS
    }

    /// The slots, with all requests of `one` in them.
    #[cold]
    fn spread_out(&self, one: &mut Queue) -> Box<Table> {
        let slot = |_| Slot::new(self.planted);
        let slots = std::array::from_fn(slot);
        let table = Box::new(Table { slots, gate: slot(0), wide: Wide::default() });
        let (granted, waiting) = one.take_all();
        if !self.planted.is(Fault::SpreadForgetsHolders) {
            for claim in granted {
                table.places(self.entry(claim)).for_each(|slot| slot.lock().grant(claim));
            }
        }
        if !self.planted.is(Fault::SpreadForgetsWaiters) {
            for (claim, waiter) in waiting {
                let places = table.places(self.entry(claim));
                let blocked = places.filter(|slot| queue_up(&mut slot.lock(), claim, &waiter)).count();
                // What blocked it in the one queue does so in at least one slot; that is counted already.
                waiter.add_slots(blocked - 1);
            }
        }
        table
    }

    #[inline(always)]
    fn entry(&self, claim: Claim) -> Entry {
        let slots = slots_of(claim.range);
        let slots = if self.planted.is(Fault::FirstSlotOnly) { slots & slots.wrapping_neg() } else { slots };
        Entry { claim, gate: AtGate::Absent, slots }
    }
}

impl Table {
    /// The gate, if a request stands there, and its slots.
    fn places(&self, entry: Entry) -> impl Iterator<Item = &Slot> {
        let gate = (entry.gate != AtGate::Absent).then_some(&self.gate);
        gate.into_iter().chain(bits(entry.slots).map(|slot| &self.slots[slot]))
    }

    /// The slots that are not free.
    fn busy(&self) -> Set {
        (0..SLOTS).rev().fold(0, |busy, slot| busy << 1 | Set::from(!self.slots[slot].is_free()))
    }

    fn forget_wide(&self, entry: Entry) {
        if entry.gate == AtGate::Wide {
            // What was done under the range comes before whoever passes the gate now.
            self.wide.0.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Wide {
    #[inline(always)]
    fn any(&self) -> bool {
        // After the words were written; see the module.
        self.0.load(Ordering::SeqCst) != 0
    }
}

/// Enters `queue`, granted or waiting; whether it waits.
pub(crate) fn queue_up(queue: &mut Queue, claim: Claim, waiter: &Arc<Waiter>) -> bool {
    let blocked = queue.blocks(claim);
    if blocked {
        queue.wait(claim, Arc::clone(waiter));
    } else {
        queue.grant(claim);
    }
    blocked
}

#[inline(always)]
fn stripes(range: ByteRange) -> (u64, u64) {
    (range.start() >> STRIPE_SHIFT, (range.end() - 1) >> STRIPE_SHIFT)
}

fn is_wide(range: ByteRange) -> bool {
    let (first, last) = stripes(range);
    last - first >= MANY_STRIPES
}

/// The slots of the stripes of `range`.
#[inline(always)]
fn slots_of(range: ByteRange) -> Set {
    let (first, last) = stripes(range);
    if first == last { 1 << slot_of(first) } else { slots_of_several(range) }
}

#[inline(never)]
fn slots_of_several(range: ByteRange) -> Set {
    let (first, last) = stripes(range);
    if is_wide(range) { ALL } else { (first..=last).fold(0, |slots, stripe| slots | 1 << slot_of(stripe)) }
}

/// Fibonacci hashing (Knuth, volume 3, section 6.4): stripes in a row get different slots, and threads that
/// advance side by side at some power of two apart do not meet at each step.
#[inline(always)]
fn slot_of(stripe: u64) -> usize {
    (stripe.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOTS_SHIFT)) as usize
}

/// The only one of `slots`.
#[inline(always)]
fn sole(slots: Set) -> Option<usize> {
    slots.is_power_of_two().then(|| slots.trailing_zeros() as usize % SLOTS)
}

/// The places of the bits that are set, ascending.
fn bits(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = set.trailing_zeros() as usize;
        (set != 0).then(|| {
            set &= set - 1;
            bit
        })
    })
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::Entry;
    use crate::{ByteRange, Mode, RangeLock};
    use std::sync::atomic::Ordering;

    #[test]
    fn wide_requests_leave_no_trace() {
        let (lock, byte) = (RangeLock::new(), |i| ByteRange::new(i, i + 1));
        drop((0..32).map(|i| lock.shared(byte(i))).collect::<Vec<_>>());
        let table = lock.slots().spread.get().expect("it has spread");
        let wide = || table.wide.0.load(Ordering::Relaxed);
        let small = lock.shared(byte(0));
        assert!(lock.try_lock(ByteRange::ALL, Mode::Exclusive).is_none());
        assert_eq!(wide(), 0);
        let waiting = lock.request(ByteRange::ALL, Mode::Exclusive);
        let behind = lock.request(byte(1), Mode::Shared);
        assert_eq!((wide(), lock.waiters()), (1, 2));
        drop((waiting, behind));
        let mut all = lock.shared(ByteRange::ALL);
        all.shrink(byte(0));
        assert_eq!(wide(), 1);
        drop((all, small));
        assert!(wide() == 0 && lock.is_idle());
    }

    #[test]
    fn an_entry_moves_no_padding() {
        // A guard that is moved as soon as it is made would wait for bytes that were written one by one.
        assert_eq!(size_of::<Entry>(), 5 * size_of::<u64>());
    }
}
