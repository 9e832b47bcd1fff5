//! Half-open ranges of file blocks.

use std::fmt;

use crate::convert::{low_32, widen};
use crate::number::FileBlock;

/// A range of file blocks: `start..end`, where `end` is at most 2^32 ([`FileBlock::LIMIT`]).
///
/// The end is a `u64`, because a range that contains the last block number ends after it. A range
/// may be empty; empty ranges with different starts are not equal.
///
/// ```
/// use parext4_format::{BlockRange, FileBlock};
///
/// let range = BlockRange::with_len(FileBlock(8), 4).unwrap();
/// assert_eq!((range.start(), range.end(), range.len()), (FileBlock(8), 12, 4));
/// let (head, tail) = range.split_at(FileBlock(10));
/// assert_eq!((head.len(), tail.start()), (2, FileBlock(10)));
/// assert!(BlockRange::starting_at(FileBlock(11)).overlaps(tail));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockRange {
    start: FileBlock,
    /// Invariant: `start <= end <= FileBlock::LIMIT`.
    end: u64,
}

impl BlockRange {
    /// All blocks that a file can have.
    pub const ALL: Self = Self::starting_at(FileBlock::ZERO);

    /// Returns `start..end`, or `None` if `end` is before `start` or above [`FileBlock::LIMIT`].
    #[inline]
    #[must_use]
    pub const fn new(start: FileBlock, end: u64) -> Option<Self> {
        if start.to_u64() <= end && end <= FileBlock::LIMIT { Some(Self { start, end }) } else { None }
    }

    /// Returns the range of `len` blocks from `start`, or `None` if it passes [`FileBlock::LIMIT`].
    #[inline]
    #[must_use]
    pub const fn with_len(start: FileBlock, len: u32) -> Option<Self> {
        Self::new(start, start.to_u64() + widen(len))
    }

    /// Returns the range of all blocks from `start`.
    #[inline]
    #[must_use]
    pub const fn starting_at(start: FileBlock) -> Self {
        Self { start, end: FileBlock::LIMIT }
    }

    /// Returns the range of one block.
    #[inline]
    #[must_use]
    pub const fn of_block(block: FileBlock) -> Self {
        Self { start: block, end: block.to_u64() + 1 }
    }

    /// Returns the blocks of `start..end` that a file can have: both bounds are reduced to
    /// [`FileBlock::LIMIT`]. Returns an empty range if `end` is not after `start`.
    #[inline]
    #[must_use]
    pub const fn clamped(start: u64, end: u64) -> Self {
        match FileBlock::from_u64(start) {
            Some(start) if start.to_u64() >= end => Self { start, end: start.to_u64() },
            Some(start) if end < FileBlock::LIMIT => Self { start, end },
            Some(start) => Self::starting_at(start),
            None => Self { start: FileBlock::MAX, end: FileBlock::MAX.to_u64() },
        }
    }

    /// Returns the first block. In an empty range it is not part of the range.
    #[inline]
    #[must_use]
    pub const fn start(self) -> FileBlock {
        self.start
    }

    /// Returns the number of the block after the last one; at most [`FileBlock::LIMIT`].
    #[inline]
    #[must_use]
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Returns the last block, or `None` if the range is empty.
    #[inline]
    #[must_use]
    pub const fn last(self) -> Option<FileBlock> {
        if self.is_empty() { None } else { FileBlock::from_u64(self.end - 1) }
    }

    /// Returns the number of blocks; at most [`FileBlock::LIMIT`].
    #[inline]
    #[must_use]
    pub const fn len(self) -> u64 {
        self.end - self.start.to_u64()
    }

    /// Returns the number of blocks as a `u32`: exact except for [`ALL`](Self::ALL), which counts
    /// as 2^32 - 1.
    #[inline]
    #[must_use]
    pub const fn count(self) -> u32 {
        let len = self.len();
        if len < FileBlock::LIMIT { low_32(len) } else { u32::MAX }
    }

    /// Returns true if the range has no blocks.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start.to_u64() == self.end
    }

    /// Returns true if `block` is in the range.
    #[inline]
    #[must_use]
    pub const fn contains(self, block: FileBlock) -> bool {
        self.start.to_u64() <= block.to_u64() && block.to_u64() < self.end
    }

    /// Returns true if each block of `other` is in this range; true if `other` is empty.
    #[inline]
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        other.is_empty() || (self.start.to_u64() <= other.start.to_u64() && other.end <= self.end)
    }

    /// Returns true if the two ranges have a block in common.
    #[inline]
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        !self.intersection(other).is_empty()
    }

    /// Returns the blocks that the two ranges have in common; an empty range if there are none.
    #[inline]
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        let start = if self.start.0 > other.start.0 { self.start } else { other.start };
        let end = if self.end < other.end { self.end } else { other.end };
        Self { start, end: if start.to_u64() < end { end } else { start.to_u64() } }
    }

    /// Returns the first `blocks` blocks, or all if there are fewer.
    #[inline]
    #[must_use]
    pub const fn take(self, blocks: u32) -> Self {
        let end = self.start.to_u64() + widen(blocks);
        Self { start: self.start, end: if end < self.end { end } else { self.end } }
    }

    /// Returns the blocks after the first `blocks` ones; an empty range if there are none.
    #[inline]
    #[must_use]
    pub const fn skip(self, blocks: u32) -> Self {
        let start = self.start.to_u64() + widen(blocks);
        Self::clamped(if start < self.end { start } else { self.end }, self.end)
    }

    /// Splits the range into the blocks before `at` and the blocks from `at`. One part is empty if
    /// `at` is not inside.
    #[inline]
    #[must_use]
    pub const fn split_at(self, at: FileBlock) -> (Self, Self) {
        let at = at.to_u64();
        if at <= self.start.to_u64() {
            (Self { start: self.start, end: self.start.to_u64() }, self)
        } else if let Some(middle) = FileBlock::from_u64(at)
            && at < self.end
        {
            (Self { start: self.start, end: at }, Self { start: middle, end: self.end })
        } else {
            (self, Self::clamped(self.end, self.end))
        }
    }

    /// Returns the blocks in ascending order.
    pub fn blocks(self) -> impl DoubleEndedIterator<Item = FileBlock> {
        (self.start.to_u64()..self.end).filter_map(FileBlock::from_u64)
    }
}

impl fmt::Debug for BlockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// Prints the range as `start..end`.
impl fmt::Display for BlockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_reach_the_last_block_and_no_further() {
        let last = BlockRange::of_block(FileBlock::MAX);
        assert_eq!(last, BlockRange::with_len(FileBlock::MAX, 1).unwrap());
        assert_eq!(last, BlockRange::starting_at(FileBlock::MAX));
        assert_eq!((last.end(), last.len(), last.last()), (FileBlock::LIMIT, 1, Some(FileBlock::MAX)));
        assert_eq!(BlockRange::with_len(FileBlock::MAX, 2), None);
        assert_eq!(BlockRange::new(FileBlock(2), 1), None);
        assert_eq!(BlockRange::ALL.len(), FileBlock::LIMIT);
        assert!(BlockRange::ALL.covers(last) && BlockRange::ALL.contains(FileBlock::MAX));
    }

    #[test]
    fn clamping_removes_the_blocks_that_no_file_has() {
        assert_eq!(BlockRange::clamped(3, u64::MAX), BlockRange::starting_at(FileBlock(3)));
        assert!(BlockRange::clamped(FileBlock::LIMIT, u64::MAX).is_empty());
        assert!(BlockRange::clamped(5, 4).is_empty());
    }

    /// Ranges near the start and near the limit, small enough to list their blocks.
    fn range() -> impl Strategy<Value = BlockRange> {
        let base = prop_oneof![Just(0), Just(FileBlock::LIMIT - 20)];
        (base, 0_u64..20, 0_u64..20)
            .prop_map(|(base, start, len)| BlockRange::clamped(base + start, base + start + len))
    }

    fn set(range: BlockRange) -> BTreeSet<FileBlock> {
        range.blocks().collect()
    }

    proptest! {
        #[test]
        fn operations_agree_with_sets(a in range(), b in range(), at in 0_u32..40) {
            let at = FileBlock(if a.end() > 1000 { u32::MAX - at } else { at });
            let (set_a, set_b) = (set(a), set(b));
            let common: BTreeSet<_> = set_a.intersection(&set_b).copied().collect();
            prop_assert_eq!(set_a.len() as u64, a.len());
            prop_assert_eq!(a.is_empty(), set_a.is_empty());
            prop_assert_eq!(a.last(), set_a.last().copied());
            prop_assert_eq!(a.contains(at), set_a.contains(&at));
            prop_assert_eq!(a.covers(b), set_b.is_subset(&set_a));
            prop_assert_eq!(a.overlaps(b), !common.is_empty());
            prop_assert_eq!(set(a.intersection(b)), common);
            let (before, after) = a.split_at(at);
            prop_assert_eq!(set(before), set_a.iter().copied().filter(|&block| block < at).collect());
            prop_assert_eq!(set(after), set_a.iter().copied().filter(|&block| block >= at).collect());
        }

        #[test]
        fn taking_and_skipping_split_a_range_and_count_its_blocks(a in range(), blocks in 0_u32..40) {
            let all = set(a);
            prop_assert_eq!(set(a.take(blocks)), all.iter().copied().take(blocks as usize).collect());
            prop_assert_eq!(set(a.skip(blocks)), all.iter().copied().skip(blocks as usize).collect());
            prop_assert_eq!(a.count() as usize, all.len());
        }

        #[test]
        fn constructors_agree(start: u32, len: u32) {
            let start = FileBlock(start);
            let end = start.to_u64() + u64::from(len);
            let range = BlockRange::with_len(start, len);
            prop_assert_eq!(range, BlockRange::new(start, end));
            prop_assert_eq!(range.is_some(), end <= FileBlock::LIMIT);
            let clamped = BlockRange::clamped(start.to_u64(), end);
            prop_assert_eq!(clamped.start(), start);
            prop_assert_eq!(clamped.end(), end.min(FileBlock::LIMIT));
        }
    }
}
