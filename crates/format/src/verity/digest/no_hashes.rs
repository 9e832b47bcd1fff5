//! Stands for the hash functions if this crate is built without them. No hash is ever made:
//! descriptors have no known algorithm then, and volumes with encrypted names are refused.

use super::super::HashAlgorithm;
use super::Digest;

/// The state of a hash function.
#[derive(Clone)]
pub(crate) struct Hasher;

impl Hasher {
    pub(crate) fn new(_: HashAlgorithm) -> Self {
        Self
    }

    pub(crate) fn update(&mut self, _: &[u8]) {}

    pub(crate) fn digest(self, _: &[u8]) -> Digest {
        Digest::new(&[])
    }
}

pub(crate) fn sha256(_: &[u8]) -> [u8; 32] {
    [0; 32]
}
