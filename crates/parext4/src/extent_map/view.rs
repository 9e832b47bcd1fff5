//! The view: the [regions](Region) that lookups read without locks.
//!
//! This module builds regions from the leaves, publishes them and replaces them. It does not change
//! leaves; `chunk_table` is the table of the regions. Invariant: no region is built from leaves
//! that are being changed, because a thread that builds a region and a thread that changes leaves
//! hold the view's lock.
//!
//! | Thread | Lock of the view |
//! |---|---|
//! | reads a region | none |
//! | sets bits of a published region | none |
//! | changes one leaf, replaces regions by compare-and-swap | shared |
//! | builds a region, or makes any other change | exclusive |
//!
//! A region is built on the first lookup in it, so the view uses memory only for the parts of a
//! file that are used. A region without mapped blocks is not stored. A reader may still hold an old
//! version. That is safe: no block inside the range that it has locked can have changed (I2).

use parext4_format::extent::Extent;
use parext4_format::{BlockRange, FileBlock};

use super::chunk_table::{ChunkTable, region_of, regions};
use super::region::{BLOCKS, Region};
use crate::extent_map::leaf_index::LeafIndex;
use crate::fault::{Fault, guarded};
use crate::sync::Rank;
use crate::sync::{Arc, ReadGuard, RwLock, WriteGuard};

/// The table of published regions of one file.
#[derive(Debug)]
pub(super) struct View {
    regions: ChunkTable,
    changing: RwLock<()>,
}

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
        Self { regions: ChunkTable::new(), changing: RwLock::new(Rank::MapView, ()) }
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

    /// Replaces each published region that overlaps the file blocks `changed` by the result of
    /// `next`, which gets the region's first block and current version. Calls `next` again if
    /// another thread replaced the region meanwhile.
    fn replace(&self, changed: BlockRange, next: impl Fn(FileBlock, &Region) -> Option<Arc<Region>>) {
        self.regions.for_each_in(changed, |first, slot| slot.update(|region| next(first, region)));
    }

    /// Calls `f` with the region of `block`. Returns `None` if that region is not published.
    #[inline]
    pub(super) fn with_region<R>(&self, block: FileBlock, f: impl FnOnce(&Region) -> R) -> Option<R> {
        self.regions.with(block, |slot| slot.load().as_deref().map(f))?
    }

    /// Sets the bits of `blocks`, which are mapped. The caller holds their range, and has changed
    /// or marked their leaves.
    pub(super) fn set_written(&self, blocks: BlockRange) {
        for first in regions(blocks) {
            let set = || self.with_region(first, |region| region.set_written(blocks));
            if set().is_none() {
                // Another thread may be building the region and may have read the leaf before the
                // mark.
                let _shared = self.lock_shared();
                set();
            }
        }
    }

    /// Estimates the memory of the published regions, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.regions.memory()
    }

    /// Returns true if all published regions equal the contents of the leaves.
    #[cfg(any(test, debug_assertions, shuttle))]
    pub(super) fn agrees(&self, leaves: &LeafIndex) -> bool {
        let mut agree = true;
        self.regions.for_each(|slot| {
            agree &= slot.load().as_ref().is_none_or(|region| region.agrees(leaves));
        });
        agree
    }
}

impl SharedView<'_> {
    /// Maps `extent`, which was a hole, in the published regions.
    pub(super) fn fill(&self, extent: Extent) {
        self.view.fill(extent);
    }
}

impl ExclusiveView<'_> {
    /// Maps `extent`, which was a hole, in the published regions.
    pub(super) fn fill(&self, extent: Extent) {
        self.view.fill(extent);
    }

    /// Calls `f` with the region of `block`, and builds it first if needed. Returns `None` if the
    /// region is a hole.
    pub(super) fn find_or_build<R>(
        &self,
        leaves: &LeafIndex,
        block: FileBlock,
        f: impl FnOnce(&Region) -> R,
    ) -> Option<R> {
        self.view.regions.with_or_insert(block, |slot| {
            if slot.load().is_none() {
                slot.store(Region::build(leaves, region_of(block), None, BlockRange::ALL.take(0)));
            }
            slot.load().as_deref().map(f)
        })
    }

    /// Rebuilds the published regions that overlap `changed`, after blocks were mapped, unmapped or
    /// moved. The caller holds the ranges of the blocks that were mapped.
    pub(super) fn rebuild(&self, leaves: &LeafIndex, changed: BlockRange) {
        self.view.replace(changed, |first, before| {
            let whole = changed.covers(BlockRange::starting_at(first).take(BLOCKS));
            // The next lookup builds a region that changed as a whole.
            if whole { None } else { Region::build(leaves, first, Some(before), changed) }
        });
    }
}
