//! Indirect blocks: the map of a file without extents, as ext2 and ext3 have it.
//!
//! `i_block` holds 15 block numbers of 32 bits: 12 for the first blocks of the file, then one each
//! for the single, the double and the triple indirect block. A *pointer block* is full of block
//! numbers; 0 is a hole, or a missing pointer block. A *leaf* is a pointer block whose pointers are
//! blocks of the file. Pointer blocks have no header and no checksum.
//!
//! Source: kernel documentation, "Direct/Indirect Block Addressing".

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use crate::block_size::BlockSize;
use crate::convert::{index, widen};
use crate::number::FileBlock;

/// The blocks of a file whose pointers are in the inode.
pub const DIRECT: u32 = 12;
/// The pointers in the inode.
pub const ROOT_POINTERS: usize = 15;
/// The highest block number that a pointer can hold.
pub const MAX_BLOCK: u64 = widen(u32::MAX);

/// The shape of all trees of a volume, which follows from its block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Binary logarithm of the number of pointers in a block.
    bits: u32,
}

/// The place of a pointer block in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PointerBlock {
    /// The leaf of this number. Leaf 0 is the single indirect block; the next leaves are below the
    /// double indirect block, and all later ones below the triple one.
    Leaf(u32),
    /// The double indirect block, whose pointers are leaves.
    Double,
    /// The triple indirect block.
    Triple,
    /// The block of this number below the triple indirect block. Its pointers are leaves.
    Middle(u32),
}

/// The location of the pointer to a pointer block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// In the inode: pointer 12 + this number.
    Root(usize),
    /// In this pointer block, at this index.
    Block(PointerBlock, usize),
}

/// The place of the pointer to a block of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerPosition {
    /// In the inode, at this index.
    Direct(u32),
    /// In the leaf of this number, at this index.
    Leaf(u32, u32),
}

impl Shape {
    /// Returns the shape of the trees of a volume.
    #[must_use]
    pub const fn new(block_size: BlockSize) -> Self {
        Self { bits: block_size.bits() - 2 }
    }

    /// Returns the number of pointers in a block.
    #[inline]
    #[must_use]
    pub const fn pointers(self) -> u32 {
        1 << self.bits
    }

    /// Returns where the pointer to a file block is stored. The block is below
    /// [`max_blocks`](Self::max_blocks).
    #[inline]
    #[must_use]
    pub const fn place(self, block: FileBlock) -> PointerPosition {
        match block.get().checked_sub(DIRECT) {
            None => PointerPosition::Direct(block.get()),
            Some(after) => PointerPosition::Leaf(after >> self.bits, after & (self.pointers() - 1)),
        }
    }

    /// Returns the first file block of a leaf, which may be past the last block that a file can
    /// have.
    #[must_use]
    pub const fn first_of_leaf(self, leaf: u32) -> u64 {
        widen(DIRECT) + (widen(leaf) << self.bits)
    }

    /// Returns where the pointer to a pointer block is stored.
    #[must_use]
    pub const fn holder(self, block: PointerBlock) -> Holder {
        match block {
            PointerBlock::Leaf(0) => Holder::Root(0),
            PointerBlock::Leaf(leaf) if leaf <= self.pointers() => {
                Holder::Block(PointerBlock::Double, index(leaf) - 1)
            }
            PointerBlock::Leaf(leaf) => {
                let after = leaf - 1 - self.pointers();
                let nth = after & (self.pointers() - 1);
                Holder::Block(PointerBlock::Middle(after >> self.bits), index(nth))
            }
            PointerBlock::Double => Holder::Root(1),
            PointerBlock::Triple => Holder::Root(2),
            PointerBlock::Middle(number) => Holder::Block(PointerBlock::Triple, index(number)),
        }
    }

    /// Returns the pointer block to which pointer `index` of `holder` points.
    ///
    /// # Panics
    /// If `holder` is a leaf.
    #[must_use]
    pub fn child(self, holder: PointerBlock, index: u32) -> PointerBlock {
        match holder {
            PointerBlock::Leaf(_) => unreachable!("the pointers of a leaf are blocks of the file"),
            PointerBlock::Double => PointerBlock::Leaf(1 + index),
            PointerBlock::Triple => PointerBlock::Middle(index),
            PointerBlock::Middle(number) => {
                PointerBlock::Leaf(1 + self.pointers() + (number << self.bits) + index)
            }
        }
    }

    /// Returns the number of blocks that the tree can map.
    #[must_use]
    pub const fn addressable(self) -> u64 {
        let pointers = widen(self.pointers());
        widen(DIRECT) + pointers + pointers * pointers + pointers * pointers * pointers
    }

    /// Returns the number of pointer blocks of a file of `blocks` blocks without holes.
    #[must_use]
    pub const fn pointer_blocks(self, blocks: u64) -> u64 {
        let pointers = widen(self.pointers());
        let mut rest = blocks.saturating_sub(widen(DIRECT));
        if rest <= pointers {
            return if rest > 0 { 1 } else { 0 };
        }
        rest -= pointers;
        if rest <= pointers * pointers {
            return 2 + rest.div_ceil(pointers);
        }
        rest -= pointers * pointers;
        3 + pointers + rest.div_ceil(pointers) + rest.div_ceil(pointers * pointers)
    }

    /// Returns the maximum number of blocks of a file: what the tree can map, unless `i_blocks`
    /// could not count a file of that size without holes. `i_blocks` counts sectors in 32 bits, or
    /// blocks in 48 bits with the feature `huge_file`. The kernel has the same limit
    /// (`ext4_max_bitmap_size`).
    #[must_use]
    pub const fn max_blocks(self, huge_file: bool) -> u64 {
        let countable = if huge_file { (1 << 48) - 1 } else { widen(u32::MAX) >> (self.bits + 2 - 9) };
        let all = self.addressable();
        let most = if all + self.pointer_blocks(all) <= countable {
            all
        } else {
            countable - self.pointer_blocks(countable)
        };
        // The number of a file block has 32 bits.
        if most < FileBlock::LIMIT { most } else { FileBlock::LIMIT - 1 }
    }
}

/// Returns the pointers of a pointer block, or of an inode's `i_block`.
pub fn parse(bytes: &[u8]) -> impl ExactSizeIterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|raw| U32::read_from_bytes(raw).map_or(0, U32::get))
}

/// Writes pointers to the start of `out`.
pub fn encode(out: &mut [u8], pointers: impl Iterator<Item = u32>) {
    for (raw, pointer) in out.chunks_exact_mut(4).zip(pointers) {
        raw.copy_from_slice(U32::new(pointer).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes() -> impl Iterator<Item = Shape> {
        (10..=16).filter_map(BlockSize::from_bits).map(Shape::new)
    }

    #[test]
    fn each_leaf_is_reached_through_the_pointer_that_holds_it() {
        for shape in shapes() {
            let pointers = shape.pointers();
            for leaf in [1, pointers, pointers + 1, 2 * pointers, 2 * pointers + 1, pointers * pointers] {
                let Holder::Block(holder, index) = shape.holder(PointerBlock::Leaf(leaf)) else { panic!() };
                assert_eq!(shape.child(holder, u32::try_from(index).unwrap()), PointerBlock::Leaf(leaf));
                // The triple indirect block of large blocks reaches past the last block that a file
                // can have.
                let Some(first) = FileBlock::from_u64(shape.first_of_leaf(leaf)) else { continue };
                assert_eq!(shape.place(first), PointerPosition::Leaf(leaf, 0));
                assert_eq!(
                    shape.place(FileBlock(first.get() - 1)),
                    PointerPosition::Leaf(leaf - 1, pointers - 1)
                );
            }
            assert_eq!(shape.holder(PointerBlock::Leaf(0)), Holder::Root(0));
            assert_eq!(shape.place(FileBlock(11)), PointerPosition::Direct(11));
            assert_eq!(shape.place(FileBlock(12)), PointerPosition::Leaf(0, 0));
        }
    }

    #[test]
    fn files_are_as_large_as_in_the_kernel() {
        // The largest sizes to which Linux sets a file with blocks of up to 4 KiB, in bytes. With
        // larger ones the same formula holds without `huge_file`, and with it the numbers of file
        // blocks end first.
        let limits: Vec<_> = shapes()
            .zip(10..)
            .flat_map(|(shape, bits)| [false, true].map(|huge| shape.max_blocks(huge) << bits))
            .collect();
        assert_eq!(
            limits,
            [
                17_247_252_480,
                17_247_252_480,
                275_415_851_008,
                275_415_851_008,
                2_196_873_666_560,
                4_402_345_721_856,
                2_197_948_973_056,
                ((1 << 32) - 1) << 13,
                2_198_486_220_800,
                ((1 << 32) - 1) << 14,
                2_198_754_754_560,
                ((1 << 32) - 1) << 15,
                2_198_888_906_752,
                ((1 << 32) - 1) << 16,
            ]
        );
    }

    #[test]
    fn pointers_are_little_endian() {
        let mut bytes = [0xff; 12];
        encode(&mut bytes, [1, 0x0203_0405].into_iter());
        assert_eq!(bytes, [1, 0, 0, 0, 5, 4, 3, 2, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(parse(&bytes).collect::<Vec<_>>(), [1, 0x0203_0405, u32::MAX]);
    }
}
