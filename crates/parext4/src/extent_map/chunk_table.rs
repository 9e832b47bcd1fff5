//! The table of the regions of one file. Readers find the slot of a region without a lock.
//!
//! This module manages the slots. The module `view` builds and publishes the regions in them.
//!
//! The first region has a slot in the table itself, because most files have only one region. The
//! slots of all other regions are in chunks of 64, because an empty slot costs 8 bytes, and
//! dropping a slot checks the loads of all threads. 64 chunks make a group. So an insertion copies
//! only the list of the groups, of which a file has at most 1024.
//!
//! Invariants: a group or a chunk is published once, with empty slots, and stays until the table is
//! dropped. Its memory is counted before it is published.

use std::sync::atomic::Ordering;

// once_cell's memory orders are visible to ThreadSanitizer, unlike those inside
// `std::sync::OnceLock`.
use once_cell::race::OnceBox;
use parext4_format::{BlockRange, FileBlock};

use super::region::{BLOCKS, Region};
use crate::sync::{Arc, Swap, SwapOption};

// This is not the type of `sync`: only the sum matters, so a model could not observe the order of
// the changes.
type Bytes = std::sync::atomic::AtomicUsize;

/// Slots in a chunk.
const CHUNK: usize = 64;
/// Chunks in a group.
const GROUP: usize = 64;

type Slot = SwapOption<Region>;
type Chunk = [Slot; CHUNK];
type Group = [OnceBox<Chunk>; GROUP];

#[derive(Debug)]
pub(super) struct ChunkTable {
    first: Slot,
    /// The groups, indexed by number.
    groups: Swap<Vec<Option<Arc<Group>>>>,
    /// Memory of groups and of chunks that are full, in bytes.
    memory: Bytes,
}

/// The position of the slot of a region that is not the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotPosition {
    group: usize,
    chunk: usize,
    slot: usize,
}

impl SlotPosition {
    /// Returns the position of the region of `block`; `None` for the first region.
    fn of(block: FileBlock) -> Option<Self> {
        let region = (block.get() / BLOCKS).checked_sub(1)? as usize;
        let chunk = region / CHUNK;
        Some(Self { group: chunk / GROUP, chunk: chunk % GROUP, slot: region % CHUNK })
    }
}

impl ChunkTable {
    pub(super) fn new() -> Self {
        Self { first: SwapOption::new(None), groups: Swap::new(Arc::new(Vec::new())), memory: Bytes::new(0) }
    }

    /// Calls `f` with the slot of the region of `block`. Returns `None` if the table has no slot
    /// for it.
    #[inline]
    pub(super) fn with<R>(&self, block: FileBlock, f: impl FnOnce(&Slot) -> R) -> Option<R> {
        let Some(place) = SlotPosition::of(block) else { return Some(f(&self.first)) };
        let groups = self.groups.load();
        let chunk = groups.get(place.group)?.as_ref()?[place.chunk].get()?;
        Some(f(&chunk[place.slot]))
    }

    /// Calls `f` with the slot of the region of `block`, and adds the slot if there is none. No
    /// other thread may add a slot meanwhile.
    pub(super) fn with_or_insert<R>(&self, block: FileBlock, f: impl FnOnce(&Slot) -> R) -> R {
        let Some(place) = SlotPosition::of(block) else { return f(&self.first) };
        let group = self.group_or_insert(place.group);
        let chunk = group[place.chunk].get_or_init(|| {
            /// Estimated memory of a region and the memory that it refers to, in bytes.
            const REGION_BYTES: usize = size_of::<Region>() + 256;
            self.count(size_of::<Chunk>() + CHUNK * REGION_BYTES);
            Box::new(std::array::from_fn(|_| SwapOption::new(None)))
        });
        f(&chunk[place.slot])
    }

    fn group_or_insert(&self, at: usize) -> Arc<Group> {
        let groups = self.groups.load();
        if let Some(Some(group)) = groups.get(at) {
            return Arc::clone(group);
        }
        let mut more = Vec::clone(&groups);
        more.resize(more.len().max(at + 1), None);
        let group: Arc<Group> = Arc::new(std::array::from_fn(|_| OnceBox::new()));
        more[at] = Some(Arc::clone(&group));
        self.count(size_of::<Group>() + (more.len() - groups.len()) * size_of::<Option<Arc<Group>>>());
        self.groups.store(Arc::new(more));
        group
    }

    /// Calls `f` with the first block and the slot of each region that overlaps `blocks` and has a
    /// slot.
    pub(super) fn for_each_in(&self, blocks: BlockRange, mut f: impl FnMut(FileBlock, &Slot)) {
        let groups = self.groups.load();
        let Some(last) = blocks.last().map(region_of) else { return };
        if SlotPosition::of(blocks.start()).is_none() {
            f(FileBlock::ZERO, &self.first);
        }
        let place = |block| SlotPosition::of(block).map_or(0, |place| place.group);
        let (from, to) = (place(blocks.start()), groups.len().min(place(last) + 1));
        for nth in from..to {
            let Some(group) = &groups[nth] else { continue };
            for (chunk, number) in group.iter().zip(nth * GROUP..) {
                let Some(chunk) = chunk.get() else { continue };
                for first in regions(blocks_of(number).intersection(blocks)) {
                    if let Some(place) = SlotPosition::of(first) {
                        f(first, &chunk[place.slot]);
                    }
                }
            }
        }
    }

    /// Calls `f` with each slot.
    #[cfg(any(test, debug_assertions, shuttle))]
    pub(super) fn for_each(&self, mut f: impl FnMut(&Slot)) {
        f(&self.first);
        let groups = self.groups.load();
        let chunks = groups.iter().flatten().flat_map(|group| group.iter()).filter_map(OnceBox::get);
        chunks.flatten().for_each(f);
    }

    /// Estimates the memory of the table and its regions, in bytes. Assumes that chunks are full.
    pub(super) fn memory(&self) -> usize {
        const FIRST: usize = size_of::<Region>() + 256;
        let first = if self.first.load().is_some() { FIRST } else { 0 };
        first + self.memory.load(Ordering::Relaxed)
    }

    fn count(&self, bytes: usize) {
        // Relaxed suffices: only the sum matters.
        self.memory.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Returns the first block of the region of `block`.
pub(super) fn region_of(block: FileBlock) -> FileBlock {
    FileBlock(block.get() - block.get() % BLOCKS)
}

/// Returns the first block of each region that overlaps `blocks`.
pub(super) fn regions(blocks: BlockRange) -> impl Iterator<Item = FileBlock> {
    let last = blocks.last().map(region_of);
    let first = last.map(|_| region_of(blocks.start()));
    std::iter::successors(first, move |&at| at.checked_add(BLOCKS).filter(|&next| Some(next) <= last))
}

/// Returns the file blocks of a chunk.
fn blocks_of(chunk: usize) -> BlockRange {
    let region = |chunk: usize| 1 + chunk as u64 * CHUNK as u64;
    BlockRange::clamped(region(chunk) * u64::from(BLOCKS), region(chunk + 1) * u64::from(BLOCKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK_BLOCKS: u32 = CHUNK as u32 * BLOCKS;

    #[test]
    fn every_block_lies_in_the_chunk_of_its_place() {
        assert_eq!((SlotPosition::of(FileBlock(0)), SlotPosition::of(FileBlock(BLOCKS - 1))), (None, None));
        for block in [BLOCKS, BLOCKS + CHUNK_BLOCKS - 1, BLOCKS + CHUNK_BLOCKS, u32::MAX] {
            let place = SlotPosition::of(FileBlock(block)).unwrap();
            let number = place.group * GROUP + place.chunk;
            let blocks = blocks_of(number);
            assert!(blocks.contains(FileBlock(block)), "block {block} in chunk {number} of {blocks:?}");
            assert_eq!((block / BLOCKS) as usize, (blocks.start().get() / BLOCKS) as usize + place.slot);
            assert!(block > u32::MAX - BLOCKS || blocks.end() == blocks_of(number + 1).start().to_u64());
        }
    }

    #[test]
    fn regions_are_visited_where_they_have_slots() {
        let table = ChunkTable::new();
        let far = region_of(FileBlock(u32::MAX));
        for block in [FileBlock(0), FileBlock(BLOCKS), far] {
            table.with_or_insert(block, |_| ());
        }
        let visited = |blocks| {
            let mut all = Vec::new();
            table.for_each_in(blocks, |first, _| all.push(first.get()));
            (all.len(), all.first().copied(), all.last().copied())
        };
        // The last chunk has one region less, because it begins after the first region.
        assert_eq!(visited(BlockRange::ALL), (1 + 64 + 63, Some(0), Some(far.get())));
        assert_eq!(visited(BlockRange::clamped(1, 2)), (1, Some(0), Some(0)));
        let start = u64::from(BLOCKS);
        assert_eq!(visited(BlockRange::clamped(start, 3 * start)), (2, Some(BLOCKS), Some(2 * BLOCKS)));
    }

    #[test]
    fn the_memory_of_groups_chunks_and_the_list_is_counted_once() {
        let memory = |groups: &[u32]| {
            let table = ChunkTable::new();
            let first = |group| FileBlock((1 + group * (CHUNK * GROUP) as u32) * BLOCKS);
            groups.iter().for_each(|&group| table.with_or_insert(first(group), |_| ()));
            table.memory()
        };
        let chunk = size_of::<Chunk>() + CHUNK * (size_of::<Region>() + 256);
        let (group, entry) = (size_of::<Group>(), size_of::<Option<Arc<Group>>>());
        assert_eq!(memory(&[2]), chunk + group + 3 * entry);
        assert_eq!(memory(&[0, 2]), 2 * (chunk + group) + 3 * entry);
    }

    /// Copying the list of all chunks for each new one would take a time that grows with the square
    /// of the file.
    #[test]
    fn a_new_chunk_copies_no_list_of_chunks() {
        let table = ChunkTable::new();
        let mut lists = 0;
        let mut before = Arc::clone(&table.groups.load());
        for block in (BLOCKS..=u32::MAX).step_by(CHUNK_BLOCKS as usize) {
            table.with_or_insert(FileBlock(block), |_| ());
            let now = Arc::clone(&table.groups.load());
            lists += usize::from(!Arc::ptr_eq(&before, &now));
            before = now;
        }
        assert_eq!((lists, before.len()), (1024, 1024));
    }

    #[test]
    fn the_last_region_of_the_largest_file_takes_no_table_of_1_mib() {
        let table = ChunkTable::new();
        table.with_or_insert(FileBlock(u32::MAX), |_| ());
        assert!(table.memory() < 64 << 10, "{} bytes", table.memory());
    }
}
