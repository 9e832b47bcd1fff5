//! Choices that a test makes: random ones, or from the bytes of a fuzzer, which learns which bytes
//! lead where.

use crate::rng::Rng;

/// A source of choices.
pub trait Choices {
    /// Returns a number below `limit`, which must not be 0.
    fn below(&mut self, limit: u64) -> u64;

    /// Returns true in `percent` of 100 cases.
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns a number in `1..=max` that is uniform on a logarithmic scale.
    fn log_uniform(&mut self, max: u64) -> u64 {
        let bits = u64::from(64 - max.leading_zeros());
        let limit = 1 << self.below(bits + 1);
        (1 + self.below(limit)).min(max)
    }

    /// Returns one of `all`, which must not be empty.
    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T
    where
        Self: Sized,
    {
        let index = self.below(all.len() as u64);
        &all[usize::try_from(index).expect("an index")]
    }
}

impl Choices for Rng {
    fn below(&mut self, limit: u64) -> u64 {
        Self::below(self, limit)
    }
}

/// Choices from bytes. After the last byte, all choices are 0.
#[derive(Clone, Debug)]
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// Returns the choices that `bytes` stand for.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns true after the last byte.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next `len` bytes, or fewer at the end.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

impl Choices for Bytes<'_> {
    /// Uses as many bytes as the largest number needs.
    fn below(&mut self, limit: u64) -> u64 {
        let bytes = (64 - (limit - 1).leading_zeros()).div_ceil(8) as usize;
        self.take(bytes).iter().fold(0, |number, byte| number << 8 | u64::from(*byte)) % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_make_choices_until_they_end() {
        let mut bytes = Bytes::new(&[3, 1, 0, 200]);
        assert_eq!((bytes.below(1), bytes.below(2), bytes.below(1000)), (0, 1, 256));
        assert_eq!((bytes.below(256), bytes.is_empty(), bytes.below(256)), (200, true, 0));
    }
}
