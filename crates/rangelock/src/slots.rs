//! The queues of a lock: offsets are cut into stripes, and stripes are hashed to [`Slot`]s. A
//! request is in the slot of each of its stripes.
//!
//! Requests that overlap share a byte, hence a stripe, hence a slot. A request enters the queues of
//! its slots while it has them all locked, so two requests have the same order in each slot that
//! they share. It is granted when each of its slots has granted it. Each slot is FIFO, so the lock
//! is FIFO.
//!
//! Every other operation, such as a release, locks one slot at a time. Until it reaches the last
//! slot, other threads see the request as still present.
//!
//! A request whose slots are all free acquires their words one by one and locks nothing. If one of
//! the words is not free, it releases the words that it has acquired before it queues, so that it
//! does not block later requests.
//!
//! A lock starts with a single slot for all offsets. When that slot becomes crowded, the lock
//! *expands*: it allocates a [`Table`] of slots and moves all requests there. The single slot stays
//! retired.
//!
//! Invariants:
//! - S1: the wide slot is locked before the slots of the table, and these in ascending order. No
//!   other lock is acquired while one of them is held. They are acquired with no lock held, or with
//!   only the single slot's lock held.
//! - S2: `table` is set while the single slot is locked and retires: its queue is empty, and its
//!   word never free.
//! - S3: if one of two conflicting requests that arrive after the expansion is wide, the later one
//!   enters the wide slot, or another slot, after the earlier one has entered it.

use crate::fault::Fault;
use crate::range::Access;
use crate::slot::{Locked, Queue, Slot};
use crate::slot_set::SlotSet;
use crate::sync::{AtomicUsize, Ordering};
use crate::table::{Placement, Table};
use crate::wake::{Waiter, wake_all};
use crate::word;
use std::sync::{Arc, OnceLock};

/// The models expand early, so that three requests suffice.
const MODEL: bool = cfg!(shuttle);
/// Ranges, held or waited for, at which the lock expands.
const EXPAND_AT_RANGES: usize = if MODEL { 3 } else { 16 };
/// Collisions at which the lock expands: requests that met another range, held or waited for, in
/// the single slot.
const EXPAND_AT_COLLISIONS: usize = if MODEL { 3 } else { 8 };

/// True if every request is granted at once and excludes nothing, so that a benchmark can measure
/// the lock's cost.
const UNLOCKED: bool = cfg!(rangelock_unlocked);

#[derive(Default)]
pub(crate) struct Slots {
    single: Slot,
    table: OnceLock<Box<Table>>,
    collisions: AtomicUsize,
}

impl Slots {
    /// Returns the table if the lock has expanded.
    #[inline(always)]
    pub(crate) fn table(&self) -> Option<&Table> {
        self.table.get().map(|table| &**table)
    }

    /// Grants `access` by the words of its slots, without a queue. Returns `None` if one of them is
    /// not free.
    #[inline(always)]
    pub(crate) fn try_acquire(&self, access: Access) -> Option<Placement> {
        if UNLOCKED {
            return Some(Placement::nowhere(access));
        }
        let (word, placement) = (word::of(access)?, Placement::of(access));
        let acquired = match self.table() {
            None => self.single.try_acquire(word),
            Some(table) => self.try_acquire_slots(table, placement, word),
        };
        acquired.then_some(placement)
    }

    /// Returns true if a slot that `access` failed to acquire may become free soon, because its
    /// holder is in its word.
    pub(crate) fn is_worth_a_retry(&self, access: Access) -> bool {
        let Some(table) = self.table() else {
            // Different ranges must not share the single slot for ever. Requests that queue make
            // the lock expand.
            return self
                .single
                .held()
                .is_some_and(|held| held.range == access.range || !self.count_collision());
        };
        let slots = Placement::of(access).slots;
        slots.sole().is_some_and(|slot| table.slot(slot).held().is_some())
    }

    #[inline(always)]
    fn try_acquire_slots(&self, table: &Table, placement: Placement, word: u64) -> bool {
        let acquired = match placement.slots.sole() {
            Some(slot) => table.slot(slot).try_acquire(word),
            None => self.try_acquire_several(table, placement, word),
        };
        if acquired && table.has_wide() && !Fault::IgnoreWide.is_planted() {
            self.release(placement);
            return false;
        }
        acquired
    }

    #[inline(never)]
    fn try_acquire_several(&self, table: &Table, placement: Placement, word: u64) -> bool {
        if placement.slots == SlotSet::ALL {
            return false;
        }
        let mut acquired = SlotSet::EMPTY;
        for slot in placement.slots.iter() {
            if !table.slot(slot).try_acquire(word) {
                if acquired != SlotSet::EMPTY && !Fault::KeepPartialGrant.is_planted() {
                    self.release_queued(placement.with_slots(acquired));
                }
                return false;
            }
            acquired.insert(slot);
        }
        true
    }

    /// Releases a granted request.
    #[inline(always)]
    pub(crate) fn release(&self, placement: Placement) {
        if UNLOCKED {
            return;
        }
        let released = word::of(placement.access).is_some_and(|word| match self.table() {
            None => self.single.try_release(word),
            Some(table) => placement.sole_slot().is_some_and(|slot| table.slot(slot).try_release(word)),
        });
        if !released && !Fault::ReleaseIgnoresQueue.is_planted() {
            self.release_queued(placement);
        }
    }

    #[cold]
    fn release_queued(&self, placement: Placement) {
        let mut granted = Vec::new();
        let word = word::of(placement.access);
        match self.lock_single() {
            Ok(mut single) => single.release(placement.access, &mut granted),
            Err(table) => {
                for slot in table.slots_of(placement) {
                    if !word.is_some_and(|word| slot.try_release(word)) {
                        slot.lock().release(placement.access, &mut granted);
                    }
                }
                table.uncount_wide(placement);
            }
        }
        wake_all(granted);
    }

    /// Removes a request that `waiter` waited for, whether it has been granted or not.
    pub(crate) fn cancel(&self, placement: Placement, waiter: &Arc<Waiter>) {
        let mut granted = Vec::new();
        let mut cancel = |mut queue: Locked<'_>| {
            queue.cancel(placement.access, |other| Arc::ptr_eq(other, waiter), &mut granted);
        };
        match self.lock_single() {
            Ok(single) => cancel(single),
            Err(table) => {
                table.slots_of(placement).for_each(|slot| cancel(slot.lock()));
                table.uncount_wide(placement);
            }
        }
        wake_all(granted);
    }

    /// Replaces a granted access by `to`, which it must contain.
    pub(crate) fn narrow(&self, from: Placement, to: Access) -> Placement {
        if UNLOCKED {
            return Placement::nowhere(to);
        }
        let mut granted = Vec::new();
        let placement = match self.lock_single() {
            Ok(mut single) => {
                single.narrow(from.access, to, &mut granted);
                Placement::of(to)
            }
            Err(table) => {
                let placement = from.narrowed(to);
                for slot in table.slots_of(placement) {
                    slot.lock().narrow(from.access, to, &mut granted);
                }
                if !Fault::ShrinkKeepsSlots.is_planted() {
                    for slot in from.slots.without(placement.slots).iter() {
                        table.slot(slot).lock().release(from.access, &mut granted);
                    }
                }
                placement
            }
        };
        wake_all(granted);
        placement
    }

    /// Locks the queues of all slots that a request for `access` must enter, and calls `enter` with
    /// them. Returns the request's placement, or `None` if `enter` returns false because it did not
    /// enter the queues.
    #[cold]
    pub(crate) fn enter(
        &self,
        access: Access,
        mut enter: impl FnMut(&mut [Locked<'_>], Placement) -> bool,
    ) -> Option<Placement> {
        let placement = Placement::of(access);
        match self.lock_single() {
            Ok(mut single) => {
                let entered = enter(std::slice::from_mut(&mut single), placement);
                self.expand_if_crowded(single);
                entered.then_some(placement)
            }
            Err(table) => table.enter(placement, enter),
        }
    }

    /// Returns true if no request is present.
    pub(crate) fn is_idle(&self) -> bool {
        self.table().map_or_else(|| self.single.is_free(), Table::is_idle)
    }

    /// Calls `f` with each queue, one after the other.
    pub(crate) fn for_each_queue(&self, mut f: impl FnMut(&Queue)) {
        match self.lock_single() {
            Ok(single) => f(&single),
            Err(table) => table.all().for_each(|slot| f(&slot.lock())),
        }
    }

    /// Locks the single slot, or returns the table if the lock has expanded.
    fn lock_single(&self) -> Result<Locked<'_>, &Table> {
        if let Some(table) = self.table() {
            return Err(table);
        }
        let retired = || self.table().is_some() && !Fault::MissExpansion.is_planted();
        let single = self.single.lock_unless(retired);
        single.ok_or_else(|| self.table().expect("the single slot retires only when the table is set"))
    }

    fn expand_if_crowded(&self, mut single: Locked<'_>) {
        // Requests that all want one range would share a slot of the table as well.
        let ranges = single.ranges();
        if ranges > 1 && (ranges >= EXPAND_AT_RANGES || self.count_collision()) {
            self.table.get_or_init(|| self.expand(&mut single));
            single.retire();
        }
    }

    /// Counts a collision in the single slot. Returns true if there were enough of them to expand.
    fn count_collision(&self) -> bool {
        self.collisions.fetch_add(1, Ordering::Relaxed) + 1 >= EXPAND_AT_COLLISIONS
    }

    /// Returns a new table with all requests of `single` in its slots.
    #[cold]
    fn expand(&self, single: &mut Queue) -> Box<Table> {
        let table = Box::new(Table::new());
        let (granted, waiting) = single.take_all();
        if !Fault::ExpandDropsHolders.is_planted() {
            for access in granted {
                let placement = Placement::of(access);
                table.slots_of(placement).for_each(|slot| slot.lock().grant(access));
            }
        }
        if !Fault::ExpandDropsWaiters.is_planted() {
            for (access, waiter) in waiting {
                let slots = table.slots_of(Placement::of(access));
                let blocked = slots.filter(|slot| grant_or_wait(&mut slot.lock(), access, &waiter)).count();
                // The waiter has counted the single slot. At least one slot of the table blocks it,
                // too, because what blocked it there has moved.
                waiter.add_slots(blocked - 1);
            }
        }
        table
    }
}

/// Enters `queue`, granted or waiting. Returns true if the request waits.
pub(crate) fn grant_or_wait(queue: &mut Queue, access: Access, waiter: &Arc<Waiter>) -> bool {
    let blocked = queue.blocks(access);
    if blocked {
        queue.wait(access, Arc::clone(waiter));
    } else {
        queue.grant(access);
    }
    blocked
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use crate::{ByteRange, RangeLock};

    fn byte(at: u64) -> ByteRange {
        ByteRange::new(at, at + 1)
    }

    #[test]
    fn requests_for_one_range_do_not_expand_the_lock() {
        let lock = RangeLock::new();
        drop((0..40).map(|_| lock.shared(byte(0))).collect::<Vec<_>>());
        assert!(lock.slots.table().is_none());
    }

    #[test]
    fn eight_collisions_expand_the_lock() {
        let lock = RangeLock::new();
        // The second request counts twice: before it tries again, and when it queues.
        let held: Vec<_> = (0..7).map(|at| lock.shared(byte(at))).collect();
        assert!(lock.slots.table().is_none());
        let last = lock.shared(byte(7));
        assert!(lock.slots.table().is_some());
        drop((held, last));
        assert!(lock.is_idle());
    }
}
