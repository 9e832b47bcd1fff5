//! Marks: ranges of a leaf that are written although their extents are unwritten.
//!
//! This module records such ranges without a lock. [`leaf`](super::leaf) folds the marks into the
//! extents. A conversion without a mark copies the leaf under a lock; a mark costs one
//! fetch-and-add and one compare-and-swap.
//!
//! | State of a set | Meaning | Ends |
//! |---|---|---|
//! | armed | accepts marks under handles of one transaction | when it is full, or retired |
//! | retired | accepts no marks; keeps the marks that it has | when the leaf's next version replaces it |
//!
//! Marks are *folded* into the extents when a change of the leaf does not permit them to stay, when
//! the set is full, or when the transaction closes. The thread that *arms* a set has registered the
//! leaf's block and joined the inode, so a mark needs neither.
//!
//! Invariant: an armed leaf has room for two more entries for each mark, so folding needs no block,
//! no credit and no split (I5).

use parext4_format::BlockRange;
use smallvec::SmallVec;

use crate::fault::{Fault, guarded};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Maximum number of marks of one leaf.
const MAX_MARKS: usize = 128;

/// Bit of a slot that accepts no more marks.
const RETIRED: u64 = 1 << 63;
/// Value of `next` in a retired set; larger than any slot.
const CLOSED: usize = usize::MAX / 2;

/// Marked ranges, as `(start, end)` in file blocks.
pub(super) type Marked = SmallVec<[(u32, u32); MAX_MARKS]>;

/// A set of marks. Random writes visit leaves in random order, so a mark touches as few cache lines
/// as possible.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Marks {
    /// The transaction whose handles may mark.
    armed: u64,
    /// The next unclaimed slot.
    next: AtomicUsize,
    /// Number of usable slots.
    room: usize,
    /// `0`, or the first block (low half) and the length (high half) of a range. [`RETIRED`] may be
    /// set in either case.
    slots: [AtomicU64; MAX_MARKS],
}

/// The result of setting a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marking {
    Done,
    /// The leaf is being changed; the caller should retry with the leaf's next version.
    Retired,
    /// The set is full, or armed for another transaction.
    Refused,
}

impl Marks {
    /// Returns a set for transaction `tid` with room for `room` marks, at most 128; `None` if
    /// `room` is 0.
    pub(super) fn armed(tid: u64, room: usize) -> Option<Arc<Self>> {
        let slots = || std::array::from_fn(|_| AtomicU64::new(0));
        let room = room.min(MAX_MARKS);
        (room > 0).then(|| Arc::new(Self { armed: tid, next: AtomicUsize::new(0), room, slots: slots() }))
    }

    fn is_armed_for(&self, tid: u64) -> bool {
        self.armed == tid
    }

    /// Returns true if the set accepts no marks. A dropped plan may also leave a retired set.
    fn is_retired(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= CLOSED
    }

    /// Returns true if the set is armed for transaction `tid` and not retired. The transaction has
    /// then registered the leaf.
    pub(super) fn accepts(&self, tid: u64) -> bool {
        self.is_armed_for(tid) && !self.is_retired()
    }

    /// Returns the number of slots.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Marks `blocks`, which lie within the leaf, under a handle of `tid`.
    pub(super) fn set(&self, tid: u64, blocks: BlockRange) -> Marking {
        if guarded!(Fault::MarkAnyTransaction, !self.is_armed_for(tid)) {
            return Marking::Refused;
        }
        // Relaxed suffices: the counter only assigns slots, and the slot publishes the mark. The
        // load avoids a write to the cache line of a full set.
        let mut at = self.next.load(Ordering::Relaxed);
        if at < self.room {
            at = self.next.fetch_add(1, Ordering::Relaxed);
        }
        match self.slots[..self.room].get(at) {
            // Release pairs with the Acquire in `iter`. The exchange fails only if `retire` set the
            // bit before.
            Some(slot) => {
                match slot.compare_exchange(0, pack(blocks), Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => Marking::Done,
                    Err(_) => Marking::Retired,
                }
            }
            None if at >= CLOSED => Marking::Retired,
            None => Marking::Refused,
        }
    }

    /// Retires the set. Its marks stay valid for readers of this version of the leaf.
    pub(super) fn retire(&self) {
        let claimed = self.next.swap(CLOSED, Ordering::Relaxed).min(self.room);
        for slot in &self.slots[..claimed] {
            // A thread that claimed the slot has either stored its mark before this step, or finds
            // the slot retired.
            slot.fetch_or(RETIRED, Ordering::AcqRel);
        }
    }

    /// Returns the marked ranges as `(start, end)` in file blocks, unsorted.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let claimed = self.next.load(Ordering::Relaxed).min(self.room);
        self.slots[..claimed].iter().filter_map(|slot| unpack(slot.load(Ordering::Acquire) & !RETIRED))
    }
}

fn pack(blocks: BlockRange) -> u64 {
    debug_assert!(!blocks.is_empty() && blocks.len() < 1 << 31, "a mark lies within one leaf");
    blocks.start().to_u64() | blocks.len() << 32
}

fn unpack(slot: u64) -> Option<(u32, u32)> {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    let (start, len) = (slot as u32, (slot >> 32) as u32);
    (len > 0).then(|| (start, start.saturating_add(len)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parext4_format::FileBlock;

    fn blocks(start: u32, len: u32) -> BlockRange {
        BlockRange::with_len(FileBlock(start), len).unwrap()
    }

    #[test]
    fn a_set_takes_what_it_has_room_for_under_its_own_transaction() {
        let marks = Marks::armed(7, 2).unwrap();
        assert!(Marks::armed(7, 0).is_none());
        assert_eq!(marks.set(8, blocks(0, 1)), Marking::Refused);
        assert_eq!(marks.set(7, blocks(10, 2)), Marking::Done);
        assert_eq!(marks.set(7, blocks(30, 1)), Marking::Done);
        assert_eq!(marks.set(7, blocks(40, 1)), Marking::Refused);
        assert_eq!(marks.iter().collect::<Vec<_>>(), [(10, 12), (30, 31)]);
    }

    #[test]
    fn a_retired_set_keeps_its_marks_and_takes_no_more() {
        let marks = Marks::armed(7, 4).unwrap();
        assert_eq!(marks.set(7, blocks(u32::MAX - 1, 1)), Marking::Done);
        marks.retire();
        assert_eq!(marks.set(7, blocks(5, 1)), Marking::Retired);
        marks.retire();
        assert_eq!(marks.iter().collect::<Vec<_>>(), [(u32::MAX - 1, u32::MAX)]);
    }
}
