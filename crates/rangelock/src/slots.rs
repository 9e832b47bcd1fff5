//! Where requests meet: the offsets of a lock are cut into stripes, which are hashed to a few slots, each with
//! a queue and a mutex of its own. A range takes part in every slot that one of its stripes has.
//!
//! Requests that overlap share a byte, hence a stripe, hence a slot. A request enters all its slots while it
//! has them all locked, so two requests have the same order in each slot they share; it is granted when each
//! of its slots has granted it. So the queues of the slots, each FIFO by itself, make one FIFO lock.
//! Everything else, such as a release, goes from slot to slot and has one locked at a time: until it gets to
//! the last it looks to others as if it had only begun.
//!
//! A lock begins with one queue for all offsets. When that gets crowded its requests move to the slots, which
//! are allocated then, and it is not used again.
//!
//! Invariants:
//! - S1: slots are locked in ascending order, nothing else is locked under them, and they are locked under
//!   nothing but `one`.
//! - S2: `spread` is set with `one` locked, and `one` is empty afterwards.

use crate::ByteRange;
use crate::fault::{Fault, Planted};
use crate::queue::{self, Claim};
use crate::sync::{self, AtomicU32, Mutex, MutexGuard, Ordering};
use crate::wake::Waiter;
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

pub(crate) type Queue = queue::Queue<Arc<Waiter>>;
type Locked<'a> = MutexGuard<'a, Queue>;

/// In the models a stripe is a byte and limits are low, so that a few small requests reach every state.
const MODEL: bool = cfg!(shuttle);
/// 64 KiB: most requests lie in one stripe or two, and threads at work in different parts of a file rarely in
/// the same.
const STRIPE_SHIFT: u32 = if MODEL { 0 } else { 16 };
const SLOTS_SHIFT: u32 = if MODEL { 2 } else { 5 };
const SLOTS: usize = 1 << SLOTS_SHIFT;
/// Spread when so many ranges are held or wanted at once,
const MANY_RANGES: usize = if MODEL { 3 } else { 16 };
/// or when threads with different ranges have met at the mutex so often.
const MANY_COLLISIONS: u32 = if MODEL { 1 } else { 8 };

/// A slot, alone in its cache lines; processors fetch them in pairs.
#[repr(align(128))]
struct Slot(Mutex<Queue>);

type Table = [Slot; SLOTS];

#[derive(Default)]
pub(crate) struct Slots {
    one: Mutex<Queue>,
    spread: OnceLock<Box<Table>>,
    collisions: AtomicU32,
    planted: Planted,
}

/// Which queue a closure is shown.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    One,
    Slot(usize),
}

impl Place {
    /// Whether requests for `range` stand here.
    pub(crate) fn is_of(self, range: ByteRange) -> bool {
        match self {
            Self::One => true,
            Self::Slot(slot) => slots_of(range) & (1 << slot) != 0,
        }
    }

    /// Whether this is the one place where requests for `range` are counted.
    pub(crate) fn is_home_of(self, range: ByteRange) -> bool {
        match self {
            Self::One => true,
            Self::Slot(slot) => slot_of(range.start() >> STRIPE_SHIFT) == slot,
        }
    }
}

impl Slots {
    #[cfg(shuttle)]
    pub(crate) fn new(planted: Planted) -> Self {
        Self { one: Mutex::new(Queue::new(planted)), planted, ..Self::default() }
    }

    pub(crate) fn planted(&self) -> Planted {
        self.planted
    }

    /// Shows `f` the queues of `range`, one after the other.
    #[inline]
    pub(crate) fn each(&self, range: ByteRange, mut f: impl FnMut(Place, &mut Queue)) {
        let table = match self.lock_one() {
            Ok((mut one, _)) => return f(Place::One, &mut one),
            Err(table) => table,
        };
        for slot in bits(self.slots_of(range)) {
            f(Place::Slot(slot), &mut sync::lock(&table[slot].0));
        }
    }

    /// Shows `f` the queues of `range`, all locked, so that a request can enter them in one moment.
    #[inline]
    pub(crate) fn all<R>(&self, range: ByteRange, mut f: impl FnMut(&mut [Locked<'_>]) -> R) -> R {
        let table = match self.lock_one() {
            Ok((mut one, collided)) => {
                let result = f(std::slice::from_mut(&mut one));
                self.spread_if_crowded(&mut one, collided);
                return result;
            }
            Err(table) => table,
        };
        let slots = self.slots_of(range);
        if slots.is_power_of_two() {
            let slot = slots.trailing_zeros() as usize;
            return f(std::slice::from_mut(&mut sync::lock(&table[slot].0)));
        }
        let mut locked = SmallVec::<[Locked<'_>; SLOTS]>::new();
        for slot in bits(slots) {
            if self.planted.is(Fault::SlotsOneByOne) && !locked.is_empty() {
                f(&mut locked);
                locked.clear();
            }
            locked.push(sync::lock(&table[slot].0));
        }
        f(&mut locked)
    }

    /// Shows `f` every queue, all locked.
    pub(crate) fn everything(&self, mut f: impl FnMut(Place, &Queue)) {
        self.all(ByteRange::ALL, |queues| match queues {
            [one] => f(Place::One, one),
            slots => slots.iter().enumerate().for_each(|(slot, queue)| f(Place::Slot(slot), queue)),
        });
    }

    /// The one queue, and whether it was waited for; or the slots, if it is not in use any more.
    #[inline]
    fn lock_one(&self) -> Result<(Locked<'_>, bool), &Table> {
        if let Some(table) = self.spread.get() {
            return Err(table);
        }
        let (one, collided) = sync::lock_and_look(&self.one);
        match self.spread.get() {
            Some(table) if !self.planted.is(Fault::MissSpread) => Err(table),
            _ => Ok((one, collided)),
        }
    }

    #[inline]
    fn spread_if_crowded(&self, one: &mut Queue, collided: bool) {
        // One range that all want would be no better off in a slot.
        let ranges = one.ranges();
        let collided =
            collided && ranges > 1 && self.collisions.fetch_add(1, Ordering::Relaxed) + 1 >= MANY_COLLISIONS;
        if collided || ranges >= MANY_RANGES {
            let table = self.spread.get_or_init(|| self.spread_out(one));
            debug_assert!(table.len() == SLOTS);
        }
    }

    /// The slots, with all requests of `one` in them.
    #[cold]
    fn spread_out(&self, one: &mut Queue) -> Box<Table> {
        let mut table: Box<Table> =
            Box::new(std::array::from_fn(|_| Slot(Mutex::new(Queue::new(self.planted)))));
        let (granted, waiting) = one.take_all();
        if !self.planted.is(Fault::SpreadForgetsHolders) {
            for claim in granted {
                self.for_each_slot(&mut table, claim, |queue| queue.grant(claim));
            }
        }
        if !self.planted.is(Fault::SpreadForgetsWaiters) {
            for (claim, waiter) in waiting {
                let mut blocked = 0;
                self.for_each_slot(&mut table, claim, |queue| {
                    blocked += usize::from(enter(queue, claim, &waiter));
                });
                // What blocked it in the one queue does so in at least one slot; that is counted already.
                waiter.add_slots(blocked - 1);
            }
        }
        table
    }

    fn for_each_slot(&self, table: &mut Table, claim: Claim, mut f: impl FnMut(&mut Queue)) {
        for slot in bits(self.slots_of(claim.range)) {
            f(sync::get_mut(&mut table[slot].0));
        }
    }

    fn slots_of(&self, range: ByteRange) -> u32 {
        let slots = slots_of(range);
        if self.planted.is(Fault::FirstSlotOnly) { slots & slots.wrapping_neg() } else { slots }
    }
}

/// Enters `queue`, granted or waiting; whether it waits.
pub(crate) fn enter(queue: &mut Queue, claim: Claim, waiter: &Arc<Waiter>) -> bool {
    let blocked = queue.blocks(claim);
    if blocked {
        queue.wait(claim, Arc::clone(waiter));
    } else {
        queue.grant(claim);
    }
    blocked
}

/// One bit for each slot that `range` takes part in.
fn slots_of(range: ByteRange) -> u32 {
    let (first, last) = (range.start() >> STRIPE_SHIFT, (range.end() - 1) >> STRIPE_SHIFT);
    // So many stripes would take nearly all slots in any case.
    if last - first >= SLOTS as u64 {
        return u32::MAX >> (u32::BITS - SLOTS as u32);
    }
    (first..=last).fold(0, |slots, stripe| slots | 1 << slot_of(stripe))
}

/// Fibonacci hashing (Knuth, volume 3, section 6.4): stripes in a row get different slots, and threads that
/// advance side by side at some power of two apart do not meet at each step.
fn slot_of(stripe: u64) -> usize {
    (stripe.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOTS_SHIFT)) as usize
}

/// The places of the bits that are set, ascending.
fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = set.trailing_zeros() as usize;
        (set != 0).then(|| {
            set &= set - 1;
            bit
        })
    })
}
