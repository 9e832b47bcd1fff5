//! Marks: what of a leaf was written since its extents were last changed, noted without a lock.
//!
//! Converting a range on its own costs a copy of the leaf under a lock. A mark costs one
//! compare-and-swap: the leaf keeps its unwritten extents and a bounded set of ranges that are written all
//! the same. Marks are *folded* into the extents when the leaf changes otherwise, when the set is full, or
//! when the transaction closes.
//!
//! A set is *armed* for one transaction: whoever armed it has registered the leaf's block and joined the
//! inode, so a mark under a handle of that transaction needs neither. Arming also saw to it that the leaf has
//! room for two more entries for each mark, so that folding never needs a block, a credit or a split (I5).

use smallvec::SmallVec;

use crate::fault::{Fault, planted};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The most marks of one leaf.
const MOST: usize = 128;

/// Set in a slot that takes no mark any more.
const RETIRED: u64 = 1 << 63;
/// The next slot of a set that takes no mark any more: behind every slot.
const CLOSED: usize = usize::MAX / 2;

/// Marked ranges, as `(start, end)` in file blocks.
pub(super) type Marked = SmallVec<[(u32, u32); MOST]>;

/// The set. Who marks comes by here in no order of leaves, and so it should take few lines of a processor's cache.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Marks {
    /// The transaction whose handles may mark.
    armed: u64,
    /// The first slot that nobody has claimed.
    next: AtomicUsize,
    /// How many slots are used.
    room: usize,
    /// `0`, or the first block and the length of a range; [`RETIRED`] may be added to either.
    slots: [AtomicU64; MOST],
}

/// What became of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marking {
    Done,
    /// The leaf is being changed: its successor may take the mark.
    Retired,
    /// Full, or armed for another transaction.
    Refused,
}

impl Marks {
    /// A set of `room` marks for transaction `tid`; `None` if there is no room.
    pub(super) fn armed(tid: u64, room: usize) -> Option<Arc<Self>> {
        let slots = || std::array::from_fn(|_| AtomicU64::new(0));
        let room = room.min(MOST);
        (room > 0).then(|| Arc::new(Self { armed: tid, next: AtomicUsize::new(0), room, slots: slots() }))
    }

    fn is_armed_for(&self, tid: u64) -> bool {
        self.armed == tid
    }

    /// Whether it takes no marks any more. A change that was not carried out leaves such a set behind.
    fn is_retired(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= CLOSED
    }

    /// Whether it takes the marks of transaction `tid`, which has registered the leaf then.
    pub(super) fn serve(&self, tid: u64) -> bool {
        self.is_armed_for(tid) && !self.is_retired()
    }

    /// How many marks the set has room for in all.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Marks `[start, start + len)`, which lies within the leaf, under a handle of `tid`.
    pub(super) fn set(&self, tid: u64, start: u32, len: u32) -> Marking {
        if !self.is_armed_for(tid) && !planted(Fault::MarkAnyTransaction) {
            return Marking::Refused;
        }
        // Relaxed: it only hands out slots, and the slot publishes the mark. Looked at first, so that a full
        // set is not written to.
        let mut at = self.next.load(Ordering::Relaxed);
        if at < self.room {
            at = self.next.fetch_add(1, Ordering::Relaxed);
        }
        match self.slots[..self.room].get(at) {
            // Release pairs with the Acquire in `iter`. Only `retire` can have been faster.
            Some(slot) => {
                match slot.compare_exchange(0, pack(start, len), Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => Marking::Done,
                    Err(_) => Marking::Retired,
                }
            }
            None if at >= CLOSED => Marking::Retired,
            None => Marking::Refused,
        }
    }

    /// Takes no marks from now on; those that were taken stay, for readers of this version of the leaf.
    pub(super) fn retire(&self) {
        let claimed = self.next.swap(CLOSED, Ordering::Relaxed).min(self.room);
        for slot in &self.slots[..claimed] {
            // Whoever claimed the slot has marked it before this, or will find it retired.
            slot.fetch_or(RETIRED, Ordering::AcqRel);
        }
    }

    /// What is marked, as `(start, end)` in file blocks, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let claimed = self.next.load(Ordering::Relaxed).min(self.room);
        self.slots[..claimed].iter().filter_map(|slot| unpack(slot.load(Ordering::Acquire) & !RETIRED))
    }
}

fn pack(start: u32, len: u32) -> u64 {
    debug_assert!(len > 0 && len < 1 << 31, "a mark lies within one leaf");
    u64::from(start) | u64::from(len) << 32
}

fn unpack(slot: u64) -> Option<(u32, u32)> {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    let (start, len) = (slot as u32, (slot >> 32) as u32);
    (len > 0).then(|| (start, start.saturating_add(len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_takes_what_it_has_room_for_under_its_own_transaction() {
        let marks = Marks::armed(7, 2).unwrap();
        assert!(Marks::armed(7, 0).is_none());
        assert_eq!(marks.set(8, 0, 1), Marking::Refused);
        assert_eq!(marks.set(7, 10, 2), Marking::Done);
        assert_eq!(marks.set(7, 30, 1), Marking::Done);
        assert_eq!(marks.set(7, 40, 1), Marking::Refused);
        assert_eq!(marks.iter().collect::<Vec<_>>(), [(10, 12), (30, 31)]);
    }

    #[test]
    fn a_retired_set_keeps_its_marks_and_takes_no_more() {
        let marks = Marks::armed(7, 4).unwrap();
        assert_eq!(marks.set(7, u32::MAX - 1, 1), Marking::Done);
        marks.retire();
        assert_eq!(marks.set(7, 5, 1), Marking::Retired);
        marks.retire();
        assert_eq!(marks.iter().collect::<Vec<_>>(), [(u32::MAX - 1, u32::MAX)]);
    }
}
