//! The view: the table of [regions](Region) that lookups read without locks.
//!
//! Responsible for building regions from the leaves, publishing them and replacing them. Not responsible for the
//! leaves. Invariant: no region is built from leaves that are being changed, because both a thread that builds a region
//! and a thread that changes leaves hold the view's lock.
//!
//! | Thread | Lock of the view |
//! |---|---|
//! | reads a region | none |
//! | sets bits of a published region | none |
//! | changes one leaf, replaces regions by compare-and-swap | shared |
//! | builds a region, or makes any other change | exclusive |
//!
//! A region is built on the first lookup in it, so the view uses memory only for the parts of a file that are used. A
//! region without mapped blocks is not stored. A reader may still hold an old version. That is safe: nothing inside the
//! range it has locked can have changed (I2).

use parext4_format::extent::Extent;
use parext4_format::{BlockRange, FileBlock};

use super::region::{BLOCKS, Region};
use crate::extent_map::leaf_index::LeafIndex;
use crate::fault::{Fault, guarded};
use crate::sync::Rank;
use crate::sync::{Arc, ReadGuard, RwLock, Swap, SwapOption, WriteGuard};

/// Regions in a chunk of the table. The first chunk has one region, because most files are no larger. An empty slot
/// costs 8 bytes, and dropping it checks what each thread is loading.
const CHUNK: usize = 64;

/// The table of published regions of one file.
#[derive(Debug)]
pub(super) struct View {
    /// Indexed by the number of the chunk. Chunks are added and never removed.
    chunks: Swap<Vec<Option<Arc<Chunk>>>>,
    changing: RwLock<()>,
}

type Chunk = [SwapOption<Region>];

/// Exclusive access to the view: permits building regions and changing leaves.
#[derive(Debug)]
pub(super) struct ExclusiveView<'a> {
    view: &'a View,
    _guard: Option<WriteGuard<'a, ()>>,
}

/// Shared access to the view: permits changing single leaves. No thread builds a region meanwhile.
#[derive(Debug)]
#[must_use]
pub(super) struct SharedView<'a> {
    view: &'a View,
    _guard: Option<ReadGuard<'a, ()>>,
}

impl View {
    pub(super) fn new() -> Self {
        Self { chunks: Swap::new(Arc::new(Vec::new())), changing: RwLock::new(Rank::MapView, ()) }
    }

    pub(super) fn lock_exclusive(&self) -> ExclusiveView<'_> {
        let guard = guarded!(Fault::ViewUnlocked, Some(self.changing.write()));
        ExclusiveView { view: self, _guard: guard }
    }

    /// Acquires the view shared. Blocks while a thread holds it exclusively.
    pub(super) fn lock_shared(&self) -> SharedView<'_> {
        SharedView { view: self, _guard: guarded!(Fault::ViewUnlocked, Some(self.changing.read())) }
    }

    fn fill(&self, extent: Extent) {
        self.replace(extent.blocks(), |_, region| region.with_filled(extent));
    }

    /// Replaces each published region that the file blocks `changed` overlap by the result of `next`, which gets the
    /// region's first block and current version. Calls `next` again if another thread replaced the region meanwhile.
    fn replace(&self, changed: BlockRange, next: impl Fn(FileBlock, &Region) -> Option<Arc<Region>>) {
        let chunks = self.chunks.load();
        let Some(last) = changed.last() else { return };
        let (from, to) = (slot_of(changed.start()).0, chunks.len().min(slot_of(last).0 + 1));
        for nth in from..to {
            let Some(chunk) = &chunks[nth] else { continue };
            for first in regions(blocks_of(nth).intersection(changed)) {
                chunk[slot_of(first).1].update(|region| next(first, region));
            }
        }
    }

    /// Calls `f` with the region of `block`. Returns `None` if that region is not published.
    #[inline]
    pub(super) fn with_region<R>(&self, block: FileBlock, f: impl FnOnce(&Region) -> R) -> Option<R> {
        let (chunk, slot) = slot_of(block);
        let chunks = self.chunks.load();
        let region = chunks.get(chunk)?.as_ref()?[slot].load();
        region.as_deref().map(f)
    }

    /// Sets the bits of `blocks`, which are mapped. The caller holds their range, and has changed or marked their
    /// leaves.
    pub(super) fn set_written(&self, blocks: BlockRange) {
        for first in regions(blocks) {
            let set = || self.with_region(first, |region| region.set_written(blocks));
            if set().is_none() {
                // Another thread may be building the region and may have read the leaf before the mark.
                let _shared = self.lock_shared();
                set();
            }
        }
    }

    /// Estimates the memory of the published regions, in bytes. Counts the regions of the first chunk, and assumes that
    /// further chunks are full.
    pub(super) fn memory(&self) -> usize {
        const REGION_BYTES: usize = size_of::<Region>() + 256;
        let chunks = self.chunks.load();
        let count_in = |chunk: &Chunk| chunk.iter().filter(|slot| slot.load().is_some()).count();
        let mut present = chunks.iter().flatten();
        let first = present.next().map_or(0, |chunk| size_of_val(&**chunk) + count_in(chunk) * REGION_BYTES);
        let rest: usize = present.map(|chunk| size_of_val(&**chunk) + chunk.len() * REGION_BYTES).sum();
        first + rest + size_of_val(&chunks[..])
    }

    /// Returns true if all published regions equal the contents of the leaves.
    #[cfg(any(test, debug_assertions, shuttle))]
    pub(super) fn agrees(&self, leaves: &LeafIndex) -> bool {
        let chunks = self.chunks.load();
        let mut published = chunks.iter().flatten().flat_map(|chunk| chunk.iter());
        published.all(|slot| slot.load().as_ref().is_none_or(|region| region.agrees(leaves)))
    }
}

impl SharedView<'_> {
    /// Maps `extent` in the published regions. It was a hole.
    pub(super) fn fill(&self, extent: Extent) {
        self.view.fill(extent);
    }
}

impl ExclusiveView<'_> {
    /// Maps `extent` in the published regions. It was a hole.
    pub(super) fn fill(&self, extent: Extent) {
        self.view.fill(extent);
    }

    /// Calls `f` with the region of `block`, and builds it first if needed. Returns `None` if nothing in it is mapped.
    pub(super) fn find_or_build<R>(
        &self,
        leaves: &LeafIndex,
        block: FileBlock,
        f: impl FnOnce(&Region) -> R,
    ) -> Option<R> {
        let (chunk, slot) = slot_of(block);
        let chunk = self.chunk_or_insert(chunk);
        if chunk[slot].load().is_none() {
            chunk[slot].store(Region::build(leaves, region_of(block), None, BlockRange::ALL.take(0)));
        }
        chunk[slot].load().as_deref().map(f)
    }

    fn chunk_or_insert(&self, at: usize) -> Arc<Chunk> {
        let chunks = self.view.chunks.load();
        if let Some(Some(chunk)) = chunks.get(at) {
            return Arc::clone(chunk);
        }
        let mut more = Vec::clone(&chunks);
        more.resize(more.len().max(at + 1), None);
        let slots = if at == 0 { 1 } else { CHUNK };
        let chunk: Arc<Chunk> = (0..slots).map(|_| SwapOption::new(None)).collect();
        more[at] = Some(Arc::clone(&chunk));
        self.view.chunks.store(Arc::new(more));
        chunk
    }

    /// Rebuilds the published regions that `changed` touches, after blocks were mapped, unmapped or moved. The caller
    /// holds the ranges of the blocks that were mapped.
    pub(super) fn rebuild(&self, leaves: &LeafIndex, changed: BlockRange) {
        self.view.replace(changed, |first, before| {
            let whole = changed.covers(BlockRange::starting_at(first).take(BLOCKS));
            // A region that changed as a whole is built on its next lookup.
            if whole { None } else { Region::build(leaves, first, Some(before), changed) }
        });
    }
}

/// Returns the first block of the region of `block`.
fn region_of(block: FileBlock) -> FileBlock {
    FileBlock(block.get() - block.get() % BLOCKS)
}

/// Returns the first block of each region that `blocks` overlap.
fn regions(blocks: BlockRange) -> impl Iterator<Item = FileBlock> {
    let last = blocks.last().map(region_of);
    let first = last.map(|_| region_of(blocks.start()));
    std::iter::successors(first, move |&at| at.checked_add(BLOCKS).filter(|&next| Some(next) <= last))
}

/// Returns the chunk and the slot of the region of `block`.
fn slot_of(block: FileBlock) -> (usize, usize) {
    match (block.get() / BLOCKS).checked_sub(1) {
        None => (0, 0),
        Some(after_first) => (1 + after_first as usize / CHUNK, after_first as usize % CHUNK),
    }
}

/// Returns the file blocks of a chunk.
fn blocks_of(chunk: usize) -> BlockRange {
    let region = |chunk: usize| if chunk == 0 { 0 } else { 1 + (chunk as u64 - 1) * CHUNK as u64 };
    BlockRange::clamped(region(chunk) * u64::from(BLOCKS), region(chunk + 1) * u64::from(BLOCKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_region_has_a_chunk_of_its_own_and_every_block_lies_in_the_chunk_of_its_place() {
        assert_eq!(blocks_of(0), BlockRange::ALL.take(BLOCKS));
        let chunk_blocks = CHUNK as u32 * BLOCKS;
        for block in [0, BLOCKS - 1, BLOCKS, BLOCKS + chunk_blocks - 1, BLOCKS + chunk_blocks, u32::MAX] {
            let (chunk, slot) = slot_of(FileBlock(block));
            let blocks = blocks_of(chunk);
            assert!(blocks.contains(FileBlock(block)), "block {block} in chunk {chunk} of {blocks:?}");
            assert_eq!((block / BLOCKS) as usize, (blocks.start().get() / BLOCKS) as usize + slot);
            assert!(block > u32::MAX - BLOCKS || blocks.end() == blocks_of(chunk + 1).start().to_u64());
        }
    }
}
