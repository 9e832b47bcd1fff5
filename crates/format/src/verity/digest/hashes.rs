//! The hash functions of the crate sha2.

use sha2::{Digest as _, Sha256, Sha512};

use super::super::HashAlgorithm;
use super::Digest;

/// The state of a hash function.
#[derive(Clone)]
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    pub(crate) fn new(algorithm: HashAlgorithm) -> Self {
        match algorithm {
            HashAlgorithm::Sha256 => Self::Sha256(Sha256::new()),
            HashAlgorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// Returns the hash of all bytes so far and `bytes`.
    pub(crate) fn digest(mut self, bytes: &[u8]) -> Digest {
        self.update(bytes);
        match self {
            Self::Sha256(hasher) => Digest::new(&hasher.finalize()),
            Self::Sha512(hasher) => Digest::new(&hasher.finalize()),
        }
    }
}

/// Returns the SHA-256 of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
