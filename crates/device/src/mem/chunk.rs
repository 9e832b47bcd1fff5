//! Chunks: the units in which a device in memory allocates, locks and shares its contents.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::aligned::zeros;

/// Bytes that are allocated, locked and copied on write together.
pub(super) const CHUNK: usize = 64 << 10;
/// Chunks in one leaf of the table. The first write to a leaf allocates it, so a large empty device
/// takes little memory.
pub(super) const LEAF: usize = 1024;
/// Bytes in one leaf.
pub(super) const LEAF_BYTES: u64 = (CHUNK * LEAF) as u64;

/// A chunk, or `None` for a hole: never written or discarded, and read as zeros.
pub(super) type Slot = RwLock<Option<Arc<[u8]>>>;

/// Part of a request that lies in one chunk, in bytes.
pub(super) struct ChunkRange {
    /// Index of the chunk's leaf.
    pub(super) leaf: usize,
    /// Index of the chunk in its leaf.
    pub(super) slot: usize,
    /// Start in the chunk.
    pub(super) start: usize,
    pub(super) len: usize,
}

impl ChunkRange {
    /// Returns the range at `offset`, at most `left` bytes long.
    pub(super) fn at(offset: u64, left: u64) -> Self {
        // The casts are exact: the remainder is below LEAF_BYTES, and the quotient indexes
        // `leaves`.
        let in_leaf = (offset % LEAF_BYTES) as usize;
        let start = in_leaf % CHUNK;
        let len = (CHUNK - start).min(usize::try_from(left).unwrap_or(usize::MAX));
        Self { leaf: (offset / LEAF_BYTES) as usize, slot: in_leaf / CHUNK, start, len }
    }

    /// Returns the end of the range in the chunk, bytes.
    pub(super) fn end(&self) -> usize {
        self.start + self.len
    }
}

/// Splits a range of the device, in bytes, into chunks.
pub(super) fn chunk_ranges(offset: u64, len: u64) -> impl Iterator<Item = ChunkRange> {
    let end = offset + len;
    let mut next = offset;
    std::iter::from_fn(move || {
        (next < end).then(|| {
            let range = ChunkRange::at(next, end - next);
            next += range.len as u64;
            range
        })
    })
}

/// Returns the chunk's bytes for writing. Allocates a hole, and copies a chunk that a fork shares.
pub(super) fn writable(slot: &mut Option<Arc<[u8]>>) -> &mut [u8] {
    const { assert!(CHUNK == 64 << 10, "zeros() is one chunk") };
    Arc::make_mut(slot.get_or_insert_with(|| Arc::from(zeros())))
}
