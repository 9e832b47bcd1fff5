//! Finds names that occur twice in a directory, with one hash for each name.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

/// The largest number of names of a directory that are compared.
const MOST: usize = 16 << 20;

/// The names of one directory.
pub(crate) struct Names<'a> {
    /// Two names with one hash are taken for equal: a collision of 64 bits with a random key is
    /// less likely than an error of the memory.
    hashes: HashSet<u64, BuildHasherDefault<Hashed>>,
    hasher: &'a RandomState,
}

impl<'a> Names<'a> {
    pub(crate) fn new(hasher: &'a RandomState) -> Self {
        Self { hashes: HashSet::default(), hasher }
    }

    /// Adds a name. Returns false if it was added before.
    pub(crate) fn add(&mut self, name: &[u8]) -> bool {
        self.hashes.len() >= MOST || self.hashes.insert(self.hasher.hash_one(name))
    }
}

/// A hasher that returns a number unchanged, because the number is a hash already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, &byte| hash << 8 | u64::from(byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
