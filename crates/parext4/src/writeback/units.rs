//! Conversion between the blocks of a page and its units: dirty and reserved marks count in units of 1 KiB, and a page has up
//! to four blocks.

use parext4_format::FileBlock;

use crate::node::Node;
use crate::page_cache::{PAGE, PageIndex};

const UNIT: u32 = 1024;

/// The number of units in a block of one volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    block_size: u32,
}

impl Node {
    /// Returns the conversion for the file's volume.
    pub(crate) fn units(&self) -> Units {
        Units::new(self.engine.layout.block_size.bytes())
    }
}

impl Units {
    pub(crate) fn new(block_size: u32) -> Self {
        Self { block_size }
    }

    /// Returns the number of units in a block.
    fn per_block(self) -> u32 {
        self.block_size / UNIT
    }

    /// Returns the units of the blocks that the bytes `[at, at + len)` of a page touch.
    pub(crate) fn touched(self, at: usize, len: usize) -> u8 {
        let block = self.block_size as usize;
        let (first, end) = (at / block * block, (at + len).next_multiple_of(block));
        let unit = UNIT as usize;
        mask(end / unit) & !mask(first / unit)
    }

    /// Returns the number of blocks of the units in a mask.
    pub(crate) fn blocks_in(self, units: u8) -> u32 {
        units.count_ones() / self.per_block()
    }

    /// Returns the number of blocks that `bytes` bytes fill, the last one possibly in part.
    pub(crate) fn blocks(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.block_size.into())
    }

    /// Returns the blocks of a page, each with its units.
    pub(crate) fn of_page(self, index: PageIndex) -> impl Iterator<Item = (FileBlock, u8)> {
        let per_page = 4096 / self.block_size;
        let of_one = mask(self.per_block() as usize);
        (0..per_page)
            .map(move |nth| (FileBlock(index.get() * per_page + nth), of_one << (nth * self.per_block())))
    }
}

/// Returns the mask of the first `units` units.
fn mask(units: usize) -> u8 {
    u8::try_from((1_u32 << units.min(PAGE / UNIT as usize)) - 1).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_make_blocks() {
        let rows = [
            (1024, (0, 1), 0b0001, 1),
            (1024, (1000, 100), 0b0011, 2),
            (1024, (3072, 1024), 0b1000, 1),
            (2048, (100, 1), 0b0011, 1),
            (2048, (2000, 100), 0b1111, 2),
            (4096, (4095, 1), 0b1111, 1),
        ];
        for (block_size, (at, len), units, blocks) in rows {
            let of = Units::new(block_size);
            assert_eq!(
                (of.touched(at, len), of.blocks_in(units)),
                (units, blocks),
                "{block_size} {at} {len}"
            );
        }
        assert_eq!(
            Units::new(2048).of_page(PageIndex(3)).collect::<Vec<_>>(),
            [(FileBlock(6), 0b0011), (FileBlock(7), 0b1100)]
        );
        assert_eq!(Units::new(1024).blocks(1025), 2);
    }
}
