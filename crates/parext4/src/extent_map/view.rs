//! What readers look things up in: [regions](Region), which are shown without locks.
//!
//! A region is made from the leaves when somebody first looks for what is mapped there, and again when that
//! changes. So it takes memory only where a file was used, and a hole takes none. Whoever makes one or changes
//! leaves holds the view, so that no region is made of leaves that are just changing. A reader with an old version
//! sees what was, which for the range that it holds is what is (I2).

use std::ops::Range;

use parext4_format::extent::Extent;

use super::region::{BLOCKS, Region};
use crate::extent_map::leaf_index::LeafIndex;
use crate::fault::{Fault, planted};
use crate::sync::Rank;
use crate::sync::{Arc, ReadGuard, RwLock, Swap, SwapOption, WriteGuard};

/// Regions in a chunk of the table, except in the first chunk, which has one: most files are so small, and each slot costs
/// 8 bytes and, when it is dropped, a look at what every thread is loading.
const CHUNK: usize = 64;

/// The regions that are shown.
#[derive(Debug)]
pub(super) struct View {
    /// By the number of the region. Chunks come and stay.
    chunks: Swap<Vec<Option<Arc<Chunk>>>>,
    changing: RwLock<()>,
}

type Chunk = [SwapOption<Region>];

/// The right to show other regions, and to change the leaves behind them.
#[derive(Debug)]
pub(super) struct Showing<'a> {
    view: &'a View,
    _guard: Option<WriteGuard<'a, ()>>,
}

/// While there is one no region is made of leaves, in which holes are filled.
#[derive(Debug)]
#[must_use]
pub(super) struct Unmade<'a> {
    _guard: Option<ReadGuard<'a, ()>>,
}

impl View {
    pub(super) fn new() -> Self {
        Self { chunks: Swap::new(Arc::new(Vec::new())), changing: RwLock::new(Rank::MapView, ()) }
    }

    pub(super) fn lock(&self) -> Showing<'_> {
        let guard = (!planted(Fault::ViewUnheld)).then(|| self.changing.write());
        Showing { view: self, _guard: guard }
    }

    /// Many may have the right to fill holes in leaves at once.
    pub(super) fn share(&self) -> Unmade<'_> {
        Unmade { _guard: (!planted(Fault::ViewUnheld)).then(|| self.changing.read()) }
    }

    /// Shows `extent`, which was mapped where there was a hole. Nobody makes regions of leaves meanwhile.
    pub(super) fn fill(&self, extent: Extent) {
        let mapped = extent.logical.get().into()..extent.end();
        self.replace(&mapped, |_, region| region.filled(extent));
    }

    /// Puts what `next` makes of them into the place of the regions shown that file blocks `changed` touch, each
    /// given with its first block. Who was slower than somebody else makes it of what is there then.
    fn replace(&self, changed: &Range<u64>, next: impl Fn(u32, &Region) -> Option<Arc<Region>>) {
        let chunks = self.chunks.load();
        let at = |block: u64| place(u32::try_from(block).unwrap_or(u32::MAX)).0;
        let (from, to) = (at(changed.start), chunks.len().min(at(changed.end.saturating_sub(1)) + 1));
        for nth in from..to {
            let (Some(chunk), blocks) = (&chunks[nth], blocks_of(nth)) else { continue };
            let part = blocks.start.max(changed.start)..blocks.end.min(changed.end);
            for first in regions(&part) {
                chunk[place(first).1].update(|region| next(first, region));
            }
        }
    }

    /// What `f` makes of the region that `block` lies in; `None` if that is not shown.
    pub(super) fn with_region<R>(&self, block: u32, f: impl FnOnce(&Region) -> R) -> Option<R> {
        let (chunk, slot) = place(block);
        let chunks = self.chunks.load();
        let region = chunks.get(chunk)?.as_ref()?[slot].load();
        region.as_deref().map(f)
    }

    /// Notes that the file blocks `range` are written, which are mapped and held by the caller, and whose leaves say
    /// or are marked so.
    pub(super) fn set_written(&self, range: Range<u64>) {
        for first in regions(&range) {
            let set = || self.with_region(first, |region| region.set_written(&range));
            if set().is_none() {
                // Somebody may be making it who has not seen the mark.
                let _unmade = self.share();
                set();
            }
        }
    }

    /// Estimates the bytes that the regions shown take in memory: the first chunk by its regions, as most files have no
    /// other, and further ones as if all their regions were shown.
    pub(super) fn memory(&self) -> usize {
        const SHOWN: usize = size_of::<Region>() + 256;
        let chunks = self.chunks.load();
        let shown = |chunk: &Chunk| chunk.iter().filter(|slot| slot.load().is_some()).count();
        let mut present = chunks.iter().flatten();
        let first = present.next().map_or(0, |chunk| size_of_val(&**chunk) + shown(chunk) * SHOWN);
        let rest: usize = present.map(|chunk| size_of_val(&**chunk) + chunk.len() * SHOWN).sum();
        first + rest + size_of_val(&chunks[..])
    }

    /// Whether all that is shown is what the leaves say.
    #[cfg(any(test, debug_assertions, shuttle))]
    pub(super) fn agrees(&self, leaves: &LeafIndex) -> bool {
        let chunks = self.chunks.load();
        let mut shown = chunks.iter().flatten().flat_map(|chunk| chunk.iter());
        shown.all(|slot| slot.load().as_ref().is_none_or(|region| region.agrees(leaves)))
    }
}

impl Showing<'_> {
    /// Shows the region that `block` lies in and gives it to `f`; `None` if nothing is mapped there.
    pub(super) fn show<R>(&self, leaves: &LeafIndex, block: u32, f: impl FnOnce(&Region) -> R) -> Option<R> {
        let (chunk, slot) = place(block);
        let chunk = self.chunk(chunk);
        if chunk[slot].load().is_none() {
            chunk[slot].store(Region::build(leaves, block - block % BLOCKS, None, &(0..0)));
        }
        chunk[slot].load().as_deref().map(f)
    }

    fn chunk(&self, at: usize) -> Arc<Chunk> {
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

    /// Shows what the leaves have now for the file blocks `changed`, where blocks came or went. Nobody else holds
    /// those that were mapped.
    pub(super) fn renew(&self, leaves: &LeafIndex, changed: &Range<u64>) {
        self.view.replace(changed, |first, before| {
            let whole = changed.start <= first.into() && u64::from(first) + u64::from(BLOCKS) <= changed.end;
            // What was changed as a whole is made again when somebody looks for it.
            if whole { None } else { Region::build(leaves, first, Some(before), changed) }
        });
    }
}

/// The first blocks of the regions that file blocks `range` touch.
fn regions(range: &Range<u64>) -> impl Iterator<Item = u32> + use<> {
    let first = range.start - range.start % u64::from(BLOCKS);
    (first..range.end).step_by(BLOCKS as usize).map_while(|first| u32::try_from(first).ok())
}

/// The chunk and the slot of the region that `block` lies in.
fn place(block: u32) -> (usize, usize) {
    match (block / BLOCKS).checked_sub(1) {
        None => (0, 0),
        Some(after_first) => (1 + after_first as usize / CHUNK, after_first as usize % CHUNK),
    }
}

/// The file blocks of a chunk.
fn blocks_of(chunk: usize) -> Range<u64> {
    let region = |chunk: usize| if chunk == 0 { 0 } else { 1 + (chunk as u64 - 1) * CHUNK as u64 };
    region(chunk) * u64::from(BLOCKS)..region(chunk + 1) * u64::from(BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_region_has_a_chunk_of_its_own_and_every_block_lies_in_the_chunk_of_its_place() {
        assert_eq!(blocks_of(0), 0..u64::from(BLOCKS));
        let chunk_blocks = CHUNK as u32 * BLOCKS;
        for block in [0, BLOCKS - 1, BLOCKS, BLOCKS + chunk_blocks - 1, BLOCKS + chunk_blocks, u32::MAX] {
            let (chunk, slot) = place(block);
            let blocks = blocks_of(chunk);
            assert!(blocks.contains(&block.into()), "block {block} in chunk {chunk} of {blocks:?}");
            assert_eq!(u64::from(block) / u64::from(BLOCKS), blocks.start / u64::from(BLOCKS) + slot as u64);
            assert_eq!(blocks.end, blocks_of(chunk + 1).start);
        }
    }
}
