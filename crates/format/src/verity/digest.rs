//! One type for the two hash functions of Merkle trees.

#[cfg(feature = "sha2")]
mod hashes;
#[cfg(not(feature = "sha2"))]
mod no_hashes;

#[cfg(feature = "sha2")]
pub(crate) use hashes::{Hasher, sha256};
#[cfg(not(feature = "sha2"))]
pub(crate) use no_hashes::{Hasher, sha256};

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
