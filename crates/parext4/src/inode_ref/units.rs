//! Conversion between the blocks of a page and its units: dirty and reserved marks count in units
//! of a quarter of a page, and a page has one, two or four blocks.

use parext4_format::{BlockSize, FileBlock};

use super::InodeRef;
use crate::engine::Engine;
use crate::page_cache::{PageIndex, PageSize};

/// The number of units in a block of one volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    block_size: BlockSize,
}

impl InodeRef {
    /// Returns the conversion for the file's volume.
    pub(crate) fn units(&self) -> Units {
        Units::of_volume(&self.engine)
    }
}

impl Units {
    pub(crate) fn of_volume(engine: &Engine) -> Self {
        Self::new(engine.layout().block_size)
    }

    fn new(block_size: BlockSize) -> Self {
        Self { block_size }
    }

    fn page_size(self) -> PageSize {
        PageSize::of(self.block_size)
    }

    /// Returns the number of units in a block.
    fn per_block(self) -> u32 {
        self.block_size.bytes() / self.page_size().unit()
    }

    /// Returns the units of the blocks that the bytes `[at, at + len)` of a page touch.
    pub(crate) fn touched(self, at: usize, len: usize) -> u8 {
        let (block, unit) = (self.block_size.bytes() as usize, self.page_size().unit() as usize);
        let (first, end) = (at / block * block, (at + len).next_multiple_of(block));
        mask(end / unit) & !mask(first / unit)
    }

    /// Returns the number of blocks of the units in a mask.
    pub(crate) fn blocks_in(self, units: u8) -> u32 {
        units.count_ones() / self.per_block()
    }

    /// Returns the number of blocks that `bytes` bytes fill, the last one possibly in part.
    pub(crate) fn blocks(self, bytes: u64) -> u64 {
        self.block_size.blocks_for(bytes)
    }

    /// Returns the blocks of a page that have a unit in a mask.
    pub(crate) fn blocks_of(self, index: PageIndex, units: u8) -> impl Iterator<Item = FileBlock> {
        self.of_page(index).filter(move |(_, mask)| units & mask != 0).map(|(block, _)| block)
    }

    /// Returns the units of the blocks of a page that lie past the end of a file of `size` bytes.
    pub(crate) fn past_end(self, index: PageIndex, size: u64) -> u8 {
        let end = self.blocks(size);
        let past = self.of_page(index).filter(|(block, _)| block.to_u64() >= end);
        past.fold(0, |units, (_, mask)| units | mask)
    }

    /// Returns the blocks of a page, each with its units.
    pub(crate) fn of_page(self, index: PageIndex) -> impl Iterator<Item = (FileBlock, u8)> {
        let (per_page, per_block) = (PageSize::UNITS / self.per_block(), self.per_block());
        let of_one = mask(per_block as usize);
        (0..per_page).map(move |nth| (FileBlock(index.get() * per_page + nth), of_one << (nth * per_block)))
    }
}

/// Returns the mask of the first `units` units.
fn mask(units: usize) -> u8 {
    u8::try_from((1_u32 << units.min(PageSize::UNITS as usize)) - 1).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_blocks(bytes: u32) -> Units {
        Units::new(BlockSize::from_bits(bytes.ilog2()).unwrap())
    }

    #[test]
    fn units_make_blocks() {
        let rows = [
            (1024, (0, 1), 0b0001, 1),
            (1024, (1000, 100), 0b0011, 2),
            (1024, (3072, 1024), 0b1000, 1),
            (2048, (100, 1), 0b0011, 1),
            (2048, (2000, 100), 0b1111, 2),
            (4096, (4095, 1), 0b1111, 1),
            (8192, (4097, 1), 0b1111, 1),
            (65536, (0, 65536), 0b1111, 1),
        ];
        for (block_size, (at, len), units, blocks) in rows {
            let of = of_blocks(block_size);
            assert_eq!(
                (of.touched(at, len), of.blocks_in(units)),
                (units, blocks),
                "{block_size} {at} {len}"
            );
        }
        assert_eq!(
            of_blocks(2048).of_page(PageIndex(3)).collect::<Vec<_>>(),
            [(FileBlock(6), 0b0011), (FileBlock(7), 0b1100)]
        );
        for block_size in [4096, 16384, 65536] {
            assert!(of_blocks(block_size).of_page(PageIndex(3)).eq([(FileBlock(3), 0b1111)]));
        }
        assert_eq!((of_blocks(1024).blocks(1025), of_blocks(65536).blocks(1025)), (2, 1));
        let rows = [
            (1024, 0, 0b1111),
            (1024, 12289, 0b1110),
            (2048, 12289, 0b1100),
            (4096, 12288, 0b1111),
            (4096, 12289, 0),
        ];
        for (block_size, size, units) in rows {
            assert_eq!(of_blocks(block_size).past_end(PageIndex(3), size), units, "{block_size} {size}");
        }
    }
}
