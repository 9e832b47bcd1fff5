//! The block size of a volume, and all conversions between bytes and blocks.

use std::ops::Range;

use crate::block_range::BlockRange;
use crate::convert::low_32;
use crate::number::{FileBlock, FsBlock};

/// The size of a block: a power of two from 1 to 64 KiB.
///
/// Conversions are shifts. None of them overflows or truncates: a byte offset that belongs to no
/// block gives `None` or lies outside the returned range.
///
/// ```
/// use parext4_format::{BlockSize, FileBlock};
///
/// let size = BlockSize::from_bits(12).unwrap();
/// assert_eq!(size.block_at(5000), Some(FileBlock(1)));
/// assert_eq!(size.blocks_touching(100..5000).len(), 2);
/// assert!(size.blocks_within(100..5000).is_empty());
/// assert_eq!(size.bytes_of(size.blocks_touching(100..5000)), 0..8192);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct BlockSize {
    /// Invariant: 10 to 16.
    bits: u32,
}

impl BlockSize {
    /// The smallest supported block size: 1024 bytes.
    pub const MIN: Self = Self { bits: 10 };
    /// The largest supported block size: 65536 bytes (`EXT4_MAX_BLOCK_SIZE`).
    pub const MAX: Self = Self { bits: 16 };

    /// Returns the block size of 2^`bits` bytes, or `None` if it is not supported.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if Self::MIN.bits <= bits && bits <= Self::MAX.bits { Some(Self { bits }) } else { None }
    }

    /// Returns the binary logarithm of the size.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Returns the size in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> u32 {
        1 << self.bits
    }

    /// Returns the file block that contains the byte at `offset`, or `None` if it is past the last
    /// block that a file can have.
    #[inline]
    #[must_use]
    pub const fn block_at(self, offset: u64) -> Option<FileBlock> {
        FileBlock::from_u64(offset >> self.bits)
    }

    /// Returns the number of bytes between the start of its block and `offset`.
    #[inline]
    #[must_use]
    pub const fn offset_in_block(self, offset: u64) -> u32 {
        low_32(offset) & (self.bytes() - 1)
    }

    /// Returns the number of blocks that `len` bytes from the start of a block touch.
    #[inline]
    #[must_use]
    pub const fn blocks_for(self, len: u64) -> u64 {
        len.div_ceil(1 << self.bits)
    }

    /// Returns the file blocks that have at least one byte in `bytes`. An empty range of bytes
    /// touches no block.
    #[inline]
    #[must_use]
    pub const fn blocks_touching(self, bytes: Range<u64>) -> BlockRange {
        let first = bytes.start >> self.bits;
        BlockRange::clamped(first, if bytes.start < bytes.end { self.blocks_for(bytes.end) } else { first })
    }

    /// Returns the file blocks that have all their bytes in `bytes`.
    #[inline]
    #[must_use]
    pub const fn blocks_within(self, bytes: Range<u64>) -> BlockRange {
        BlockRange::clamped(self.blocks_for(bytes.start), bytes.end >> self.bits)
    }

    /// Returns the file blocks that begin at or after `offset`.
    #[inline]
    #[must_use]
    pub const fn blocks_from(self, offset: u64) -> BlockRange {
        BlockRange::clamped(self.blocks_for(offset), FileBlock::LIMIT)
    }

    /// Returns the offset in the file of the first byte of `block`; below 2^48.
    #[inline]
    #[must_use]
    pub const fn offset_of(self, block: FileBlock) -> u64 {
        block.to_u64() << self.bits
    }

    /// Returns the bytes of the file that `blocks` contain.
    #[inline]
    #[must_use]
    pub const fn bytes_of(self, blocks: BlockRange) -> Range<u64> {
        self.offset_of(blocks.start())..blocks.end() << self.bits
    }

    /// Returns the offset on the device of the first byte of `block`.
    ///
    /// # Panics
    /// If the offset is 2^64 or more. A block that was checked against the volume is far below.
    #[inline]
    #[must_use]
    pub const fn device_offset(self, block: FsBlock) -> u64 {
        assert!(block.get() <= u64::MAX >> self.bits, "a block past the end of any device");
        block.get() << self.bits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn size() -> impl Strategy<Value = BlockSize> {
        (10_u32..=16).prop_map(|bits| BlockSize::from_bits(bits).unwrap())
    }

    /// Offsets near zero, near the last block of a file, and near 2^64.
    fn offset() -> impl Strategy<Value = u64> {
        (
            prop_oneof![Just(0), (10_u32..=16).prop_map(|bits| FileBlock::LIMIT << bits), Just(u64::MAX)],
            0_u64..200_000,
        )
            .prop_flat_map(|(base, n)| {
                prop_oneof![Just(base.saturating_add(n)), Just(base.saturating_sub(n))]
            })
    }

    #[test]
    fn only_supported_sizes_exist() {
        assert_eq!([9, 17, u32::MAX].map(BlockSize::from_bits), [None; 3]);
        let sizes = [10, 12, 13, 16].map(|bits| BlockSize::from_bits(bits).unwrap().bytes());
        assert_eq!(sizes, [1024, 4096, 8192, 65536]);
    }

    proptest! {
        #[test]
        fn a_block_contains_the_byte_that_it_is_found_for(size in size(), offset in offset()) {
            match size.block_at(offset) {
                Some(block) => {
                    let bytes = size.bytes_of(BlockRange::of_block(block));
                    prop_assert!(bytes.contains(&offset));
                    prop_assert_eq!(bytes.start, size.offset_of(block));
                    prop_assert_eq!(bytes.start + u64::from(size.offset_in_block(offset)), offset);
                }
                None => prop_assert!(offset >= FileBlock::LIMIT << size.bits()),
            }
        }

        #[test]
        fn touching_and_within_agree_with_their_definitions(size in size(), a in offset(), b in offset()) {
            let bytes = a.min(b)..a.max(b);
            let (touching, within) = (size.blocks_touching(bytes.clone()), size.blocks_within(bytes.clone()));
            prop_assert!(touching.covers(within));
            for block in [touching.start(), within.start(), FileBlock::ZERO, FileBlock::MAX] {
                for block in [block.checked_sub(1), Some(block), block.checked_add(1)].into_iter().flatten() {
                    let of_block = size.bytes_of(BlockRange::of_block(block));
                    let touches = of_block.start.max(bytes.start) < of_block.end.min(bytes.end);
                    let is_within = bytes.start <= of_block.start && of_block.end <= bytes.end;
                    prop_assert_eq!(touching.contains(block), touches);
                    prop_assert_eq!(within.contains(block), is_within);
                }
            }
        }

        #[test]
        fn blocks_and_bytes_round_trip(size in size(), start: u32, len: u32) {
            let blocks = BlockRange::clamped(start.into(), u64::from(start) + u64::from(len));
            let bytes = size.bytes_of(blocks);
            prop_assert_eq!(size.blocks_touching(bytes.clone()), blocks);
            prop_assert_eq!(size.blocks_within(bytes), blocks);
            prop_assert_eq!(size.device_offset(FsBlock(start.into())), size.offset_of(FileBlock(start)));
        }
    }
}
