//! Half-open byte ranges, and the modes in which they are held.

use std::fmt;

/// A non-empty range of byte offsets: `start..end`, `end` exclusive.
///
/// An `end` of `u64::MAX` means infinity: such a range overlaps every range that ends after its
/// start, also ranges past the end of the file.
///
/// ```
/// use rangelock::ByteRange;
///
/// let header = ByteRange::new(0, 512);
/// assert!(header.overlaps(&ByteRange::ALL) && !header.overlaps(&ByteRange::starting_at(512)));
/// assert_eq!(header.round_out(4096), ByteRange::new(0, 4096));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// Invariant: `start < end`.
    start: u64,
    end: u64,
}

impl ByteRange {
    /// All bytes: `[0, infinity)`.
    pub const ALL: Self = Self::starting_at(0);

    /// Returns the range `start..end`.
    ///
    /// # Panics
    /// If the range is empty (`start >= end`): an empty range excludes no request, so asking for
    /// one is a bug.
    #[inline]
    #[must_use]
    pub const fn new(start: u64, end: u64) -> Self {
        assert!(start < end, "a byte range must not be empty");
        Self { start, end }
    }

    /// Returns the range from `start` to infinity.
    ///
    /// # Panics
    /// If `start` is itself infinity (`u64::MAX`).
    #[inline]
    #[must_use]
    pub const fn starting_at(start: u64) -> Self {
        Self::new(start, u64::MAX)
    }

    /// Returns the offset of the first byte.
    #[inline]
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Returns the offset after the last byte; `u64::MAX` means infinity.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Returns the length in bytes, never zero. Not meaningful if `end` is infinity.
    #[expect(clippy::len_without_is_empty, reason = "a byte range is never empty")]
    #[inline]
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Returns true if the two ranges share a byte.
    #[inline]
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Returns true if every byte of `other` is in `self`.
    #[inline]
    #[must_use]
    pub const fn contains(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Returns the smallest range of whole units that contains this one. An end above `u64::MAX`
    /// becomes infinity.
    ///
    /// # Panics
    /// If `unit_power_of_two` (bytes) is not a power of two.
    #[inline]
    #[must_use]
    pub const fn round_out(self, unit_power_of_two: u64) -> Self {
        assert!(unit_power_of_two.is_power_of_two(), "the unit must be a power of two");
        let end = match self.end.checked_next_multiple_of(unit_power_of_two) {
            Some(end) => end,
            None => u64::MAX,
        };
        Self { start: self.start & !(unit_power_of_two - 1), end }
    }
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            u64::MAX => write!(f, "[{}, inf)", self.start),
            end => write!(f, "[{}, {end})", self.start),
        }
    }
}

/// The mode in which a range is held.
// One word wide: a guard copied right after its creation would otherwise read a byte and its
// padding as one word, which stalls on store forwarding for as long as both compare-and-swaps take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Mode {
    /// Overlapping ranges may be held shared at the same time.
    Shared,
    /// No overlapping range may be held at the same time.
    Exclusive,
}

/// The range and mode of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) range: ByteRange,
    pub(crate) mode: Mode,
}

#[cfg(test)]
mod tests {
    use super::ByteRange;

    #[test]
    fn overlap_is_symmetric_and_excludes_touching() {
        let (a, b, c) = (ByteRange::new(0, 10), ByteRange::new(10, 20), ByteRange::new(9, 11));
        assert!(!a.overlaps(&b) && !b.overlaps(&a));
        assert!(a.overlaps(&c) && c.overlaps(&a) && b.overlaps(&c));
        assert!(ByteRange::ALL.overlaps(&ByteRange::new(u64::MAX - 1, u64::MAX)));
        assert!(!ByteRange::starting_at(20).overlaps(&b));
    }

    #[test]
    fn contains_needs_both_ends() {
        let r = ByteRange::new(10, 20);
        assert!(r.contains(&r) && r.contains(&ByteRange::new(12, 13)));
        assert!(!r.contains(&ByteRange::new(9, 20)) && !r.contains(&ByteRange::new(10, 21)));
        assert!(ByteRange::starting_at(5).contains(&r) && !r.contains(&ByteRange::starting_at(10)));
    }

    #[test]
    fn round_out_keeps_infinity_and_does_not_overflow() {
        assert_eq!(ByteRange::new(1, 4097).round_out(4096), ByteRange::new(0, 8192));
        assert_eq!(ByteRange::new(4096, 8192).round_out(4096), ByteRange::new(4096, 8192));
        assert_eq!(ByteRange::starting_at(5000).round_out(4096), ByteRange::starting_at(4096));
        assert_eq!(ByteRange::new(5, u64::MAX - 1).round_out(1 << 63), ByteRange::ALL);
        assert_eq!(ByteRange::new(7, 9).round_out(1), ByteRange::new(7, 9));
    }

    #[test]
    #[should_panic(expected = "must not be empty")]
    fn an_empty_range_is_refused() {
        let _ = ByteRange::new(3, 3);
    }

    #[test]
    fn debug_names_infinity() {
        assert_eq!(format!("{:?} {:?}", ByteRange::ALL, ByteRange::new(1, 2)), "[0, inf) [1, 2)");
    }
}
