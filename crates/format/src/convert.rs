//! Conversions of counts and offsets to narrower types.
//!
//! This module alone decides what becomes of a number that does not fit, and alone of the crate
//! converts with `as`, which [`From`] cannot replace in constant functions. `BlockSize` and
//! `FileBlock` convert block numbers.
#![allow(clippy::as_conversions)]

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

/// Returns `number` as a `u64`.
#[must_use]
#[inline]
pub const fn widen(number: u32) -> u64 {
    number as u64
}

/// Returns `number` as a `usize`, which has at least 32 bits on Linux.
#[must_use]
#[inline]
pub const fn index(number: u32) -> usize {
    number as usize
}

/// Returns a length as a `u64`.
#[must_use]
#[inline]
pub const fn length(len: usize) -> u64 {
    len as u64
}

/// Returns the low 32 bits of a number.
#[must_use]
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the function returns the low half")]
pub const fn low_32(number: u64) -> u32 {
    number as u32
}

/// Returns the low 16 bits of a number.
#[must_use]
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the function returns the low half")]
pub const fn low_16(number: u32) -> u16 {
    number as u16
}
