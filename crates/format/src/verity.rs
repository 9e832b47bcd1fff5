//! Files that fs-verity protects: their descriptor, and the shape and the hashes of their Merkle
//! tree.
//!
//! The tree has one hash for each block of the file, in blocks of the same size; the next level has
//! one hash for each of these blocks, and so on up to a single block, whose hash is in the
//! descriptor. The level of that block comes first in the tree. This module reads nothing: the
//! caller finds the tree and the descriptor, which ext4 stores after the end of the file.
//!
//! Source: kernel documentation, "fs-verity: read-only file-based authenticity protection" and
//! "Verity files" of ext4, whose field names are kept.

mod digest;

use std::fmt;
use std::ops::Range;

pub use digest::Digest;
use digest::Hasher;
pub(crate) use digest::sha256;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::block_size::BlockSize;
use crate::convert::index;
use crate::error::{FormatError, Result};

/// Length of the descriptor without its signature, in bytes.
pub const DESCRIPTOR: usize = 256;
/// The largest descriptor with its signature, in bytes (`FS_VERITY_MAX_DESCRIPTOR_SIZE`).
pub const MAX_DESCRIPTOR: usize = 16384;
/// The tree begins at the first multiple of this number of bytes after the end of the file.
const ALIGNMENT: u64 = 65536;
/// Maximum number of levels of a tree (`FS_VERITY_MAX_LEVELS`).
const MAX_LEVELS: usize = 8;
/// Binary logarithm of the smallest block of a tree.
const MIN_BLOCK_BITS: u8 = 10;
const STRUCTURE: &str = "verity descriptor";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawDescriptor {
    version: u8,
    hash_algorithm: u8,
    log_blocksize: u8,
    salt_size: u8,
    sig_size: U32,
    data_size: U64,
    root_hash: [u8; 64],
    salt: [u8; 32],
    reserved: [u8; 144],
}

const _: () = assert!(size_of::<RawDescriptor>() == DESCRIPTOR);

/// The hash function of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HashAlgorithm {
    /// SHA-256, with hashes of 32 bytes.
    Sha256,
    /// SHA-512, with hashes of 64 bytes.
    Sha512,
}

impl HashAlgorithm {
    /// Returns the function with a number, if this crate has it.
    fn from_number(number: u8) -> Option<Self> {
        match number {
            _ if !cfg!(feature = "sha2") => None,
            1 => Some(Self::Sha256),
            2 => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Returns the number that descriptors and ioctls have for the function.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    /// Returns the name, as fsverity(1) prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Returns the length of a hash in bytes.
    fn output_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Returns the unit of input in bytes.
    fn block_len(self) -> usize {
        2 * self.output_len()
    }
}

/// Returns the offset in the file where the tree begins; `None` if no file is that long.
#[must_use]
pub fn tree_offset(size: u64) -> Option<u64> {
    size.checked_next_multiple_of(ALIGNMENT)
}

/// The Merkle tree of a file, without its blocks.
#[derive(Clone)]
pub struct MerkleTree {
    algorithm: HashAlgorithm,
    block_bits: u8,
    /// Size of the file.
    size: u64,
    root: [u8; 64],
    salt: Vec<u8>,
    signature: Vec<u8>,
    /// The digest of the file: the hash of the descriptor without its signature.
    digest: Digest,
    /// The state of the hash function after the salt.
    salted: Hasher,
    /// The first block of each level in the tree. Level 0 has the hashes of the file's blocks.
    starts: Vec<u64>,
    /// Number of blocks of the tree.
    blocks: u64,
}

impl fmt::Debug for MerkleTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, size, digest, starts, .. } = self;
        write!(f, "MerkleTree({algorithm:?}, {size} bytes, {digest:?}, levels at {starts:?})")
    }
}

/// The location of the hash of a block of the file, or of another block of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashPlace {
    /// The block of the tree, counted from its start.
    pub block: u64,
    /// The number of that block within its level, by which the next level has its hash.
    pub index: u64,
    /// The bytes of the hash in the block.
    pub bytes: Range<usize>,
}

impl MerkleTree {
    /// Parses the descriptor, with its signature, of a file of `size` bytes on a volume with blocks
    /// of 2^`volume_bits` bytes.
    ///
    /// # Errors
    /// Names the field that fails a check of the kernel (`validate_fsverity_descriptor`).
    pub fn parse(bytes: &[u8], size: u64, volume_bits: u32) -> Result<Self> {
        let bad = |field, problem: String| FormatError::new(STRUCTURE, field, problem);
        let Ok((raw, signature)) = RawDescriptor::ref_from_prefix(bytes) else {
            return Err(bad("size", format!("{} bytes", bytes.len())));
        };
        let algorithm = HashAlgorithm::from_number(raw.hash_algorithm)
            .ok_or_else(|| bad("hash_algorithm", format!("{} is not known", raw.hash_algorithm)))?;
        let block_bits = raw.log_blocksize;
        let salt = raw.salt.get(..raw.salt_size.into());
        let (sig_size, data_size) = (raw.sig_size.get(), raw.data_size.get());
        let signature = usize::try_from(sig_size).ok().and_then(|len| signature.get(..len));
        if raw.version != 1 {
            return Err(bad("version", format!("{} is not known", raw.version)));
        } else if block_bits < MIN_BLOCK_BITS || u32::from(block_bits) > volume_bits {
            return Err(bad("log_blocksize", format!("{block_bits} on blocks of 2^{volume_bits} bytes")));
        } else if data_size != size {
            return Err(bad("data_size", format!("{data_size}, but the file has {size} bytes")));
        } else if raw.reserved.iter().any(|&byte| byte != 0) {
            return Err(bad("reserved", "not zero".to_owned()));
        }
        let salt = salt.ok_or_else(|| bad("salt_size", format!("{} bytes", raw.salt_size)))?;
        let signature =
            signature.ok_or_else(|| bad("sig_size", format!("{sig_size} in {} bytes", bytes.len())))?;
        let (starts, blocks) = levels(size, algorithm, block_bits)
            .ok_or_else(|| bad("data_size", format!("{size} needs more than {MAX_LEVELS} levels")))?;
        let unsigned = RawDescriptor { sig_size: U32::ZERO, ..raw.clone() };
        Ok(Self {
            algorithm,
            block_bits,
            size,
            root: raw.root_hash,
            salt: salt.to_vec(),
            signature: signature.to_vec(),
            digest: Hasher::new(algorithm).digest(unsigned.as_bytes()),
            salted: salted(algorithm, salt),
            starts,
            blocks,
        })
    }

    /// Returns the hash function.
    #[must_use]
    pub fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }

    /// Returns the digest of the file, as `fsverity measure` prints it.
    #[must_use]
    pub fn digest(&self) -> &[u8] {
        self.digest.as_ref()
    }

    /// Returns the salt.
    #[must_use]
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Returns the signature of the digest, empty if there is none. It is not checked.
    #[must_use]
    pub fn signature(&self) -> &[u8] {
        &self.signature
    }

    /// Returns the size of a block, in bytes: at most the size of a block of the volume.
    #[must_use]
    pub fn block_size(&self) -> usize {
        1 << self.block_bits
    }

    /// Returns the number of blocks of the tree.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the offset in the tree of a block of it, in bytes.
    #[must_use]
    pub fn offset_of(&self, block: u64) -> u64 {
        block << self.block_bits
    }

    /// Returns the length of the tree in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.offset_of(self.blocks)
    }

    /// Returns true if the file has at most one block, so that the tree has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Returns where level `level` has the hash of block `index` of the level below, or of the file
    /// for level 0. `None` for the level above the highest, whose hash is the [`root`](Self::root).
    #[must_use]
    pub fn place(&self, level: usize, index: u64) -> Option<HashPlace> {
        let start = self.starts.get(level)?;
        let bits = arity_bits(self.algorithm, self.block_bits);
        let len = self.algorithm.output_len();
        let slot = usize::try_from(index & ((1 << bits) - 1)).ok()?;
        Some(HashPlace {
            block: start + (index >> bits),
            index: index >> bits,
            bytes: slot * len..(slot + 1) * len,
        })
    }

    /// Returns the hash of the highest block of the tree, or of the only block of the file.
    #[must_use]
    pub fn root(&self) -> &[u8] {
        &self.root[..self.algorithm.output_len()]
    }

    /// Returns the hash of a block. A `data` that is shorter than a block is extended with zeros.
    #[must_use]
    pub fn hash(&self, data: &[u8]) -> Digest {
        static ZEROS: [u8; index(BlockSize::MAX.bytes())] = [0; index(BlockSize::MAX.bytes())];
        let mut hasher = self.salted.clone();
        hasher.update(data);
        hasher.digest(&ZEROS[..self.block_size().saturating_sub(data.len())])
    }
}

/// Returns the binary logarithm of the number of hashes in a block.
fn arity_bits(algorithm: HashAlgorithm, block_bits: u8) -> u32 {
    u32::from(block_bits) - algorithm.output_len().ilog2()
}

/// Returns the first block of each level, and the number of all blocks; `None` if the tree would be
/// too high.
fn levels(size: u64, algorithm: HashAlgorithm, block_bits: u8) -> Option<(Vec<u64>, u64)> {
    let arity = 1 << arity_bits(algorithm, block_bits);
    let mut blocks = size.div_ceil(1 << block_bits);
    let mut counts = Vec::new();
    while blocks > 1 {
        if counts.len() == MAX_LEVELS {
            return None;
        }
        blocks = blocks.div_ceil(arity);
        counts.push(blocks);
    }
    let mut start = 0;
    for count in counts.iter_mut().rev() {
        start += std::mem::replace(count, start);
    }
    Some((counts, start))
}

/// Returns the state of the hash function after the salt, which is padded to the function's unit of
/// input.
fn salted(algorithm: HashAlgorithm, salt: &[u8]) -> Hasher {
    let mut hasher = Hasher::new(algorithm);
    if !salt.is_empty() {
        let mut padded = salt.to_vec();
        padded.resize(algorithm.block_len(), 0);
        hasher.update(&padded);
    }
    hasher
}

#[cfg(all(test, feature = "sha2"))]
mod tests;
