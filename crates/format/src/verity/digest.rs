//! One type for the two hash functions of Merkle trees.

use sha2::{Digest as _, Sha256, Sha512};

use super::HashAlgorithm;

/// A hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The hash, with zeros after `len` bytes.
    bytes: [u8; 64],
    len: usize,
}

impl AsRef<[u8]> for Digest {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Digest {
    fn new(hash: &[u8]) -> Self {
        let mut bytes = [0; 64];
        bytes[..hash.len()].copy_from_slice(hash);
        Self { bytes, len: hash.len() }
    }
}

/// The state of a hash function.
#[derive(Clone)]
pub(super) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    pub(super) fn new(algorithm: HashAlgorithm) -> Self {
        match algorithm {
            HashAlgorithm::Sha256 => Self::Sha256(Sha256::new()),
            HashAlgorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// Returns the hash of all bytes so far and `bytes`.
    pub(super) fn digest(mut self, bytes: &[u8]) -> Digest {
        self.update(bytes);
        match self {
            Self::Sha256(hasher) => Digest::new(&hasher.finalize()),
            Self::Sha512(hasher) => Digest::new(&hasher.finalize()),
        }
    }
}
