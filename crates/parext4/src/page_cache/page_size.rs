//! The size of the pages of a volume, and all conversions between bytes of a file and pages.
//!
//! A page is 4 KiB, or one block if blocks are larger. So a page consists of whole blocks: no block
//! is dirty, reserved or written back in part, and the index of a page has 32 bits, as the number
//! of a file block has.

use std::ops::Range;

use parext4_format::BlockSize;
use rangelock::ByteRange;

use super::page_index::{PageIndex, PageRange};
use super::state::UNITS;
use crate::convert::to_usize;

/// The size of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// Binary logarithm of the size in bytes.
    log: u32,
}

impl PageSize {
    /// The smallest page: 4 KiB.
    pub const MIN: Self = Self { log: 12 };
    /// The number of units of a page.
    pub const UNITS: u32 = UNITS;

    /// Returns the size of the pages of a volume with blocks of this size.
    #[inline]
    #[must_use]
    pub const fn of(block_size: BlockSize) -> Self {
        Self { log: if block_size.bits() > Self::MIN.log { block_size.bits() } else { Self::MIN.log } }
    }

    /// Returns the size in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        1 << self.log
    }

    /// Returns the size of a unit, in which dirty and reserved marks count, in bytes.
    #[inline]
    #[must_use]
    pub const fn unit(self) -> u32 {
        (1 << self.log) / Self::UNITS
    }

    /// Returns the number of whole pages in `bytes` bytes, and 1 for less than a page.
    #[inline]
    #[must_use]
    pub fn pages_in(self, bytes: u64) -> u32 {
        u32::try_from(bytes >> self.log).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the page that contains byte `at` of a file, or [`PageIndex::END`] if no page can
    /// contain it.
    #[inline]
    #[must_use]
    pub fn page_at(self, at: u64) -> PageIndex {
        PageIndex::from_u64(at >> self.log)
    }

    /// Returns the page that contains byte `at` of a file, as [`page_at`](Self::page_at) does, and
    /// the byte's offset in it.
    #[inline]
    #[must_use]
    pub fn locate(self, at: u64) -> (PageIndex, usize) {
        (self.page_at(at), to_usize(at - self.round_down(at)))
    }

    /// Returns the offset of the first byte of the page that contains byte `at`. Exact for every
    /// `at`.
    #[inline]
    #[must_use]
    pub const fn round_down(self, at: u64) -> u64 {
        at >> self.log << self.log
    }

    /// Returns the offset of the first byte of a page in the file.
    #[inline]
    #[must_use]
    pub const fn start(self, index: PageIndex) -> u64 {
        (index.get() as u64) << self.log
    }

    /// Returns the pages that contain a byte of `bytes`.
    #[inline]
    #[must_use]
    pub fn touching(self, bytes: ByteRange) -> PageRange {
        let end = bytes.end().div_ceil(1 << self.log);
        PageRange::new(self.page_at(bytes.start()), PageIndex::from_u64(end))
    }

    /// Returns the pages whose bytes are all in `bytes`.
    #[inline]
    #[must_use]
    pub fn inside(self, bytes: Range<u64>) -> PageRange {
        let (start, end) = (bytes.start.div_ceil(1 << self.log), bytes.end >> self.log);
        PageRange::new(PageIndex::from_u64(start), PageIndex::from_u64(end.max(start)))
    }

    /// Returns the offsets in the file of the first byte of `pages` and of the first byte after
    /// them.
    #[inline]
    #[must_use]
    pub const fn bytes_of(self, pages: PageRange) -> Range<u64> {
        self.start(pages.start())..self.start(pages.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: u64 = (u32::MAX - 1) as u64;

    fn sizes() -> impl Iterator<Item = PageSize> {
        (10..=16).filter_map(BlockSize::from_bits).map(PageSize::of)
    }

    #[test]
    fn pages_are_4_kib_or_a_block() {
        assert!(sizes().map(|size| size.bytes() >> 10).eq([4, 4, 4, 8, 16, 32, 64]));
        assert!(sizes().map(|size| size.unit() >> 8).eq([4, 4, 4, 8, 16, 32, 64]));
        assert!(sizes().map(|size| size.pages_in(1 << 16)).eq([16, 16, 16, 8, 4, 2, 1]));
        assert_eq!((PageSize::MIN.pages_in(4095), PageSize::MIN.pages_in(u64::MAX)), (1, u32::MAX));
    }

    #[test]
    fn bytes_and_pages_are_converted() {
        for size in sizes() {
            let page = size.bytes() as u64;
            let rows = [
                (0, (0, 0)),
                (page - 1, (0, page - 1)),
                (page, (1, 0)),
                (LAST * page + 7, (u32::MAX - 1, 7)),
            ];
            for (at, (index, within)) in rows {
                assert_eq!(size.locate(at), (PageIndex(index), to_usize(within)), "byte {at}");
                assert_eq!(size.start(PageIndex(index)) + within, at);
                assert_eq!(size.round_down(at), size.start(PageIndex(index)));
            }
            assert_eq!(size.page_at(u64::MAX), PageIndex::END, "no page has this byte");
        }
    }

    #[test]
    fn ranges_of_bytes_touch_and_contain_pages() {
        for size in sizes() {
            let page = size.bytes() as u64;
            let rows = [
                ((0, 1), 0..1, 0..0),
                ((0, page), 0..1, 0..1),
                ((1, page + 1), 0..2, 1..1),
                ((page - 96, 3 * page + 1), 0..4, 1..3),
                ((LAST * page, u64::MAX), u32::MAX - 1..u32::MAX, u32::MAX - 1..u32::MAX),
            ];
            for ((start, end), touched, inside) in rows {
                assert_eq!(size.touching(ByteRange::new(start, end)), touched.into(), "{start}..{end}");
                assert_eq!(size.inside(start..end), inside.into(), "{start}..{end}");
            }
            assert!(size.inside(5000..5000).is_empty());
            assert_eq!(size.bytes_of(PageRange::from(2..4)), 2 * page..4 * page);
        }
    }
}
