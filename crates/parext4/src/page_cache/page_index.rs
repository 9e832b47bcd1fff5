//! The index of a page in its file, and ranges of pages.
//!
//! [`PageSize`](super::PageSize) converts pages to bytes. Frames, nodes and slots have numbers of
//! other types. Arithmetic is that of `u32`: the callers stay below [`PageIndex::END`].

use std::fmt;
#[cfg(any(test, shuttle))]
use std::ops::Range;
use std::ops::{Add, Sub};

/// The index of a page in its file: the file offset divided by the page size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PageIndex(pub u32);

impl PageIndex {
    /// The first page of a file.
    pub const ZERO: Self = Self(0);
    /// The end of a range that contains all pages after its start. No page of a file has this
    /// index.
    pub const END: Self = Self(u32::MAX);

    /// Converts a number. If no page of a file has this index, returns [`END`](Self::END).
    #[inline]
    #[must_use]
    pub fn from_u64(index: u64) -> Self {
        u32::try_from(index).map_or(Self::END, Self)
    }

    /// Returns the bare index.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the page that is `pages` after this one, or [`END`](Self::END) if no page of a file
    /// has that index.
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, pages: u32) -> Self {
        Self(self.0.saturating_add(pages))
    }
}

impl Add<u32> for PageIndex {
    type Output = Self;

    /// Returns the page that is `pages` after this one.
    #[inline]
    fn add(self, pages: u32) -> Self {
        Self(self.0 + pages)
    }
}

impl Sub for PageIndex {
    type Output = u32;

    /// Returns the number of pages from `start` to this one.
    #[inline]
    fn sub(self, start: Self) -> u32 {
        self.0 - start.0
    }
}

impl fmt::Display for PageIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A range of pages of one file: `start..end`. It may be empty; empty ranges with different starts
/// are not equal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PageRange {
    start: PageIndex,
    /// The page after the last one. The range is empty if it is not after `start`.
    end: PageIndex,
}

impl PageRange {
    /// All pages that a file can have.
    pub const ALL: Self = Self::starting_at(PageIndex::ZERO);

    /// Returns `start..end`, which is empty if `end` is not after `start`.
    #[inline]
    #[must_use]
    pub const fn new(start: PageIndex, end: PageIndex) -> Self {
        Self { start, end }
    }

    /// Returns the range of all pages from `start`.
    #[inline]
    #[must_use]
    pub const fn starting_at(start: PageIndex) -> Self {
        Self::new(start, PageIndex::END)
    }

    /// Returns the range of one page.
    #[inline]
    #[must_use]
    pub fn of_page(page: PageIndex) -> Self {
        Self::new(page, page + 1)
    }

    /// Returns the first page. In an empty range it is not part of the range.
    #[inline]
    #[must_use]
    pub const fn start(self) -> PageIndex {
        self.start
    }

    /// Returns the page after the last one.
    #[inline]
    #[must_use]
    pub const fn end(self) -> PageIndex {
        self.end
    }

    /// Returns the number of pages.
    #[inline]
    #[must_use]
    pub const fn len(self) -> u32 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Returns true if the range has no pages.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.end.0 <= self.start.0
    }

    /// Returns true if each page of `other` is in this range; true if `other` is empty.
    #[inline]
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        other.is_empty() || self.start <= other.start && other.end <= self.end
    }

    /// Returns the first `pages` pages, or all if there are fewer.
    #[inline]
    #[must_use]
    pub fn take(self, pages: u32) -> Self {
        Self::new(self.start, self.end.min(self.start.saturating_add(pages)))
    }

    /// Returns the pages before `end`.
    #[inline]
    #[must_use]
    pub fn before(self, end: PageIndex) -> Self {
        Self::new(self.start, self.end.min(end))
    }

    /// Returns the pages in ascending order.
    #[inline]
    pub fn pages(self) -> impl Iterator<Item = PageIndex> {
        (self.start.0..self.end.0).map(PageIndex)
    }
}

impl fmt::Debug for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// Prints the range as `start..end`.
impl fmt::Display for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Makes ranges short to write in tests.
#[cfg(any(test, shuttle))]
impl From<Range<u32>> for PageRange {
    fn from(pages: Range<u32>) -> Self {
        Self::new(PageIndex(pages.start), PageIndex(pages.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_as_large_as_what_they_wrap() {
        assert_eq!((size_of::<PageIndex>(), align_of::<PageIndex>()), (4, 4));
        assert_eq!(size_of::<PageRange>(), size_of::<Range<u32>>());
    }

    #[test]
    fn ranges_are_shortened_and_compared() {
        let range = PageRange::from(3..9);
        assert_eq!((range.len(), range.take(2), range.take(99)), (6, (3..5).into(), range));
        assert_eq!((range.before(PageIndex(5)), range.before(PageIndex(20))), ((3..5).into(), range));
        for empty in [range.before(PageIndex(1)), PageRange::new(PageIndex(9), PageIndex(3))] {
            assert_eq!((empty.is_empty(), empty.len(), empty.pages().next()), (true, 0, None));
        }
        assert!(
            range.covers((4..9).into()) && range.covers((20..20).into()) && !range.covers((4..10).into())
        );
        assert!(PageRange::ALL.covers(PageRange::of_page(PageIndex(u32::MAX - 1))));
        assert!(range.pages().map(PageIndex::get).eq(3..9));
        assert_eq!(range.to_string(), "3..9");
        assert_eq!(PageIndex(7).saturating_add(u32::MAX), PageIndex::END);
    }
}
