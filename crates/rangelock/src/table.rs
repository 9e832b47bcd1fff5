//! The slots of an expanded lock, and the *wide slot*, in which requests queue that span more than
//! half as many stripes as there are slots.
//!
//! A wide request would spend most of its time in slots that are free. It enters only the slots
//! that are not free when it arrives, and the wide slot, which covers all offsets. Narrow requests
//! enter the wide slot only while a wide request is present. Checking that costs one load from a
//! cache line that only wide requests write.
//!
//! A wide request increments [`WideCount`] before it checks which slots are free. A narrow request
//! writes the words of its slots before it reads the count. All four accesses are sequentially
//! consistent, so at least one of two such requests sees the other, and enters a queue in which the
//! other is, too.

use crate::fault::Fault;
use crate::range::Access;
use crate::slot::{Locked, Slot};
use crate::slot_set::{SLOTS, SlotSet, is_wide};
use crate::sync::{AtomicUsize, Ordering};
use smallvec::SmallVec;

/// The slots of an expanded lock.
pub(crate) struct Table {
    slots: [Slot; SLOTS],
    wide_slot: Slot,
    wide_count: WideCount,
}

/// Number of wide requests, waiting or granted, that arrived after the lock expanded. It is alone
/// in its cache line, because every narrow request reads it.
#[derive(Default)]
#[repr(align(64))]
struct WideCount(AtomicUsize);

/// The slots and the range of a request. Before the lock expands, the slots to which an expansion
/// moves it.
#[derive(Clone, Copy)]
pub(crate) struct Placement {
    pub(crate) access: Access,
    in_wide_slot: InWideSlot,
    pub(crate) slots: SlotSet,
}

/// Whether a request is in the wide slot. One word wide, so that copying a guard copies no padding
/// (see [`Mode`](crate::Mode)).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum InWideSlot {
    No,
    /// A narrow request that arrived while a wide one was present.
    Narrow,
    /// A wide request, counted in [`WideCount`].
    Wide,
}

impl Placement {
    /// Returns the placement of `access` in the slots of its range, without the wide slot.
    #[inline(always)]
    pub(crate) fn of(access: Access) -> Self {
        let slots = SlotSet::of(access.range);
        let slots = if Fault::EnterFirstSlotOnly.is_planted() { slots.lowest() } else { slots };
        Self { access, in_wide_slot: InWideSlot::No, slots }
    }

    /// Returns a placement in no slot, for builds whose lock is disabled.
    #[inline(always)]
    pub(crate) fn nowhere(access: Access) -> Self {
        Self { access, in_wide_slot: InWideSlot::No, slots: SlotSet::EMPTY }
    }

    /// Returns the placement of the same request in `slots` only.
    pub(crate) fn with_slots(self, slots: SlotSet) -> Self {
        Self { slots, ..self }
    }

    /// Returns the only slot of the request, or `None` if it is in several, or in the wide slot.
    #[inline(always)]
    pub(crate) fn sole_slot(self) -> Option<usize> {
        self.slots.sole().filter(|_| self.in_wide_slot == InWideSlot::No)
    }

    /// Returns the placement of this request after its access shrinks to `to`.
    pub(crate) fn narrowed(self, to: Access) -> Self {
        // A wide request keeps its slots. A narrow request that waits for it may be granted in a
        // slot of `to` that the wide request never entered: it must not find itself queued after it
        // there.
        let keeps_slots = self.in_wide_slot == InWideSlot::Wide && !Fault::ShrinkMovesWide.is_planted();
        let slots = if keeps_slots { self.slots } else { Self::of(to).slots };
        Self { access: to, slots, ..self }
    }
}

impl Table {
    pub(crate) fn new() -> Self {
        let slot = |_| Slot::default();
        Self { slots: std::array::from_fn(slot), wide_slot: slot(0), wide_count: WideCount::default() }
    }

    #[inline(always)]
    pub(crate) fn slot(&self, slot: usize) -> &Slot {
        &self.slots[slot]
    }

    /// Returns all slots, the wide slot included.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().chain([&self.wide_slot])
    }

    /// Returns the slots of a request: the wide slot first, then ascending.
    pub(crate) fn slots_of(&self, placement: Placement) -> impl Iterator<Item = &Slot> {
        let wide_slot = (placement.in_wide_slot != InWideSlot::No).then_some(&self.wide_slot);
        wide_slot.into_iter().chain(placement.slots.iter().map(|slot| &self.slots[slot]))
    }

    /// Returns true if a wide request waits or holds a range.
    #[inline(always)]
    pub(crate) fn has_wide(&self) -> bool {
        self.wide_count.any()
    }

    /// Returns true if no request is in any slot.
    pub(crate) fn is_idle(&self) -> bool {
        self.wide_slot.is_free() && self.busy() == SlotSet::EMPTY
    }

    /// Returns the slots that are not free.
    fn busy(&self) -> SlotSet {
        SlotSet::filter(|slot| !self.slots[slot].is_free())
    }

    /// Locks the queues of all slots that a request must enter, and calls `enter` with them.
    /// Returns the request's placement, or `None` if `enter` returns false because it did not enter
    /// the queues.
    pub(crate) fn enter(
        &self,
        mut placement: Placement,
        mut enter: impl FnMut(&mut [Locked<'_>], Placement) -> bool,
    ) -> Option<Placement> {
        let mut locked = SmallVec::<[Locked<'_>; 4]>::new();
        loop {
            if is_wide(placement.access.range) {
                locked.push(self.wide_slot.lock());
                self.wide_count.increment();
                placement.in_wide_slot = InWideSlot::Wide;
                placement.slots =
                    if Fault::WideSkipsSlots.is_planted() { SlotSet::EMPTY } else { self.busy() };
            } else if self.has_wide() {
                locked.push(self.wide_slot.lock());
                placement.in_wide_slot = InWideSlot::Narrow;
            }
            for slot in placement.slots.iter() {
                if Fault::EnterSlotsOneByOne.is_planted() && !locked.is_empty() {
                    enter(&mut locked, placement);
                    locked.clear();
                }
                locked.push(self.slots[slot].lock());
            }
            // A wide request that arrived after the first check may have found these slots free.
            let missed_wide = placement.in_wide_slot == InWideSlot::No && self.has_wide();
            if !missed_wide || Fault::CheckWideOnce.is_planted() {
                break;
            }
            locked.clear();
        }
        let entered = enter(&mut locked, placement);
        if !entered {
            self.uncount_wide(placement);
        }
        entered.then_some(placement)
    }

    /// Removes a request that has left all slots from the count of wide requests, if it is wide.
    pub(crate) fn uncount_wide(&self, placement: Placement) {
        if placement.in_wide_slot == InWideSlot::Wide {
            self.wide_count.decrement();
        }
    }
}

impl WideCount {
    /// Returns true if a wide request is counted. The load is sequentially consistent, after the
    /// writes of the caller's words; see the module.
    #[inline(always)]
    fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// Counts a wide request. Sequentially consistent, before the caller checks which slots are
    /// free; see the module.
    fn increment(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Uncounts a wide request. Publishes its holder's writes to narrow requests that skip the wide
    /// slot from now on.
    fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::{Placement, Table};
    use crate::{ByteRange, Mode, RangeLock};
    use std::sync::atomic::Ordering;

    #[test]
    fn the_count_of_wide_requests_returns_to_zero() {
        let (lock, byte) = (RangeLock::new(), |i| ByteRange::new(i, i + 1));
        drop((0..32).map(|i| lock.shared(byte(i))).collect::<Vec<_>>());
        let table: &Table = lock.slots.table().expect("the lock has expanded");
        let wide = || table.wide_count.0.load(Ordering::Relaxed);
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
    fn a_placement_has_no_padding() {
        // A guard that is moved right after its creation would wait for fields that were stored one
        // by one.
        assert_eq!(size_of::<Placement>(), 5 * size_of::<u64>());
    }
}
