//! Conversions of counts and offsets to narrower types.
//!
//! This module alone decides what becomes of a number that does not fit. `BlockSize` and
//! `FileBlock` convert block numbers.

/// Converts a number that fits `usize` because it counts or indexes what is in memory. A number
/// that does not fit becomes `usize::MAX`, which no slice contains.
#[must_use]
#[inline]
pub fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns `number` as a `u32`, or `u32::MAX` if it does not fit.
#[must_use]
#[inline]
pub fn saturating_u32(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}
