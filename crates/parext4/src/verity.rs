//! The Merkle tree of a file that fs-verity protects, in memory.
//!
//! Responsible for keeping blocks of the tree that were verified, so that reads of neighbouring
//! blocks of the file neither read nor hash them again. Not responsible for reading and verifying:
//! [`block_io`](crate::block_io) does that. Invariant: each kept block was verified up to the root,
//! so the device is not trusted with it again.

use std::fmt;

use parext4_format::verity::{HashPlace, MerkleTree};
use smallvec::SmallVec;

use crate::convert::to_usize;
use crate::sync::Arc;
use crate::sync::SwapOption;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// The hash of a block: 32 or 64 bytes.
pub(crate) type Hash = SmallVec<[u8; 64]>;

/// Limit of blocks that are kept of one tree. In blocks of 4 KiB with SHA-256 they have the hashes
/// of 512 MiB.
const MAX_KEPT: u64 = 1024;

/// The tree of one file.
pub(crate) struct VerifiedTree {
    pub shape: MerkleTree,
    /// Where the tree begins in the file, past its end.
    pub offset: u64,
    /// Verified blocks. A block has one slot, by its number; another block replaces it there.
    kept: Box<[SwapOption<KeptBlock>]>,
    /// Memory of the kept blocks, in bytes.
    memory: AtomicUsize,
}

#[derive(Debug)]
struct KeptBlock {
    block: u64,
    bytes: Box<[u8]>,
}

impl VerifiedTree {
    /// Returns a tree of which no block is verified yet.
    pub(crate) fn new(shape: MerkleTree, offset: u64) -> Self {
        let kept = (0..shape.blocks().min(MAX_KEPT)).map(|_| SwapOption::new(None)).collect();
        Self { shape, offset, kept, memory: AtomicUsize::new(0) }
    }

    /// Returns a hash, if the block that contains it is kept.
    pub(crate) fn kept_hash(&self, place: &HashPlace) -> Option<Hash> {
        let kept = self.slot(place.block)?.load();
        let kept = kept.as_ref().filter(|kept| kept.block == place.block)?;
        kept.bytes.get(place.bytes.clone()).map(SmallVec::from_slice)
    }

    /// Keeps a block that was verified.
    pub(crate) fn keep(&self, block: u64, bytes: &[u8]) {
        let Some(slot) = self.slot(block) else { return };
        if slot.load().is_none() {
            // Two threads may fill one slot and count it twice. The sum is an estimate, and stays
            // bounded by the slots.
            self.memory.fetch_add(bytes.len(), Ordering::Relaxed);
        }
        slot.store(Some(Arc::new(KeptBlock { block, bytes: bytes.into() })));
    }

    /// Estimates the memory that the tree uses, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(self) + size_of_val(&*self.kept) + self.memory.load(Ordering::Relaxed)
    }

    fn slot(&self, block: u64) -> Option<&SwapOption<KeptBlock>> {
        self.kept.get(to_usize(block % (self.kept.len() as u64).max(1)))
    }
}

impl fmt::Debug for VerifiedTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifiedTree({:?} at {}, {} bytes)", self.shape, self.offset, self.memory())
    }
}
