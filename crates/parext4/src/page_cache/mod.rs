//! The page cache: contents of files in memory, within a budget.
//!
//! It knows of pages and their states, and nothing of extents, journal or device. A [`PageCache`] has the memory of a
//! volume; each file has its [`FilePages`]. Finding a page takes no lock: through the tree of the file ([`tree`]) to
//! the slot whose word is the page's state ([`word`]), where a pin holds it. Which pages go when others come is the
//! matter of [`fifo`].
//!
//! What a page's bytes are up to is guarded by the byte ranges that callers hold, not here.

#[cfg(test)]
mod against_model;
mod bytes;
mod counters;
mod fifo;
mod file_pages;
mod memory;
mod nodes;
mod page;
mod parking;
mod runs;
mod shrink;
#[cfg(test)]
mod tests;
mod tree;
mod word;

use std::sync::atomic::AtomicU64;

use parext4_device::shared;
use slab::Slab;
use smallvec::SmallVec;

pub use counters::PageCacheStats;
pub use file_pages::{FilePages, PageLookup};
pub use page::{Fill, Page, WriteBack};
pub use runs::{DirtyRuns, RunLimits};
pub use word::PAGE;

use crate::sync::Rank;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Mutex};
use counters::Counters;
use fifo::{Fate, Pages, Queues};
use memory::Memory;
use nodes::{Key, NODE, Nodes, Place};
use parking::Parking;
use tree::Tree;
use word::{Look, State};

/// Frames are taken from the allocator by so many.
const CHUNK: u32 = 4096;
/// The fewest frames and nodes of a cache.
const FEWEST: (u64, u64) = (64, 256);
/// Bytes of a frame and of a node, with what is kept about each.
const FRAME_COST: u64 = PAGE as u64 + fifo::LINK + size_of::<u32>() as u64;
const NODE_COST: u64 = NODE + 2 * size_of::<u32>() as u64;
/// Pages evicted at once.
const BATCH: usize = 16;

/// The page cache of a volume.
#[derive(Debug)]
pub struct PageCache {
    budget: u64,
    frames: Memory<{ PAGE / 8 }>,
    nodes: Nodes,
    eviction: Mutex<Eviction>,
    /// The trees of all files, by number less 1.
    trees: Mutex<Slab<Arc<Tree>>>,
    parking: Parking,
    counters: Counters,
}

/// What the eviction keeps.
#[derive(Debug)]
struct Eviction {
    queues: Queues,
    /// Leaves that have become empty, and may be used again by now.
    emptied: Vec<u32>,
}

/// No page can be evicted: all are dirty or in use. Writing some back helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFrame;

impl PageCache {
    /// A cache that takes at most `budget` bytes, as it needs them; it gets enough for 64 pages at least.
    #[must_use]
    pub fn new(budget: u64) -> Arc<Self> {
        let (frames, nodes) = shares(budget);
        Self::with_room(frames, nodes)
    }

    /// A cache with so many frames and nodes.
    pub(crate) fn with_room(frames: u32, nodes: u32) -> Arc<Self> {
        Arc::new(Self {
            budget: u64::from(frames) * FRAME_COST + u64::from(nodes) * NODE_COST,
            frames: Memory::new(frames, CHUNK),
            nodes: Nodes::new(nodes),
            eviction: Mutex::new(
                Rank::PageQueues,
                Eviction { queues: Queues::new(frames), emptied: Vec::new() },
            ),
            trees: Mutex::new(Rank::Leaf, Slab::new()),
            parking: Parking::new(),
            counters: Counters::default(),
        })
    }

    /// What it has done, and what it holds.
    pub fn stats(&self) -> PageCacheStats {
        let (pages, warm) = {
            let eviction = self.eviction.lock();
            (eviction.queues.len(), eviction.queues.warm())
        };
        let stats = PageCacheStats {
            budget: self.budget,
            memory: u64::from(warm) * PAGE as u64,
            pages: pages.into(),
            nodes: self.nodes.used().into(),
            ..Default::default()
        };
        self.counters.add_to(stats)
    }

    /// Pages that it has room for.
    pub fn capacity(&self) -> u64 {
        self.frames.items().into()
    }

    /// Nodes that are [kept](Self::ensure_spare_nodes) for who brings dirty pages in. Pages that lie far from each other need
    /// some each, others share them.
    pub fn spare_nodes(&self) -> u32 {
        let most = self.nodes.most();
        (most / 8).max(64).min(most / 2)
    }

    /// Sees to it that so many nodes are free; clean pages go for that. `false` if dirty ones, or such as are in use, take
    /// too many.
    pub fn ensure_spare_nodes(&self) -> bool {
        let spare = self.spare_nodes();
        let are_free = |count| self.nodes.most().saturating_sub(self.nodes.used()) >= count;
        if are_free(spare) {
            return true;
        }
        // Some more, not to come back for each.
        while !are_free(spare + spare / 4) {
            if !self.free_nodes() {
                return are_free(spare);
            }
        }
        true
    }

    /// Pages that are dirty or being written back.
    pub fn dirty_pages(&self) -> u64 {
        self.counters.dirty_pages()
    }

    fn contents(&self, frame: u32) -> &[AtomicU64; PAGE / 8] {
        self.frames.get(frame).expect("a frame was provided before it was named")
    }

    fn prefetch(&self, frame: u32) {
        if let Some(words) = self.frames.get(frame) {
            shared::prefetch(words);
        }
    }

    /// Gives a page that is claimed a frame. Evicts others for it; if `gently`, only such as were never used.
    fn take_frame(&self, place: Place, ghost: u64, gently: bool) -> Option<u32> {
        let mut eviction = self.eviction.lock();
        let eviction = &mut *eviction;
        if let Some(frame) = eviction.queues.take(place, ghost) {
            return Some(frame);
        }
        let next = eviction.queues.known();
        if next < self.frames.items() && self.frames.provide(next) {
            eviction.queues.add_frame();
        } else {
            self.evict(eviction, BATCH, gently);
        }
        eviction.queues.take(place, ghost)
    }

    /// Evicts up to so many pages; returns how many.
    fn evict(&self, eviction: &mut Eviction, most: usize, gently: bool) -> usize {
        let mut pages = Evicting { cache: self, emptied: &mut eviction.emptied };
        let queues = &mut eviction.queues;
        let one = |_: &usize| if gently { queues.evict_unused(&mut pages) } else { queues.evict(&mut pages) };
        let evicted = (0..most).take_while(one).count();
        self.counters.evicted(evicted as u64);
        evicted
    }

    /// Takes back the slots of pages that are gone, and their frames if they had some.
    fn release(&self, gone: impl IntoIterator<Item = (Place, Option<u32>)>) {
        let mut eviction = self.eviction.lock();
        for (place, frame) in gone {
            if let Some(frame) = frame {
                eviction.queues.release(frame);
            }
            if self.nodes.leave(place.node()) {
                eviction.emptied.push(place.node());
            }
        }
    }

    /// Frees nodes, and evicts pages for that. `false` if that cannot be done.
    fn free_nodes(&self) -> bool {
        loop {
            let mut eviction = self.eviction.lock();
            if eviction.emptied.is_empty() && self.evict(&mut eviction, BATCH, false) == 0 {
                return false;
            }
            let from = eviction.emptied.len().saturating_sub(BATCH);
            let unlist = |leaf| self.nodes.unlist(leaf);
            let empty: SmallVec<[Key; BATCH]> = eviction.emptied.drain(from..).filter_map(unlist).collect();
            drop(eviction);
            // All of them: they are listed no more.
            if empty.into_iter().filter(|&key| self.prune(key)).count() > 0 {
                return true;
            }
        }
    }

    fn prune(&self, key: Key) -> bool {
        let tree = self.trees.lock().get(key.file() as usize - 1).map(Arc::clone);
        tree.is_some_and(|tree| tree.prune(&self.nodes, key.index()))
    }

    /// Leaves a leaf that was entered to look at it.
    fn leave(&self, leaf: u32) {
        if self.nodes.leave(leaf) {
            self.eviction.lock().emptied.push(leaf);
        }
    }

    fn forget_tree(&self, tree: &Tree) {
        self.trees.lock().remove(tree.file() as usize - 1);
    }

    fn new_tree(&self) -> Arc<Tree> {
        let mut trees = self.trees.lock();
        let vacant = trees.vacant_entry();
        let number = u32::try_from(vacant.key() + 1).expect("memory for so many files does not exist");
        Arc::clone(vacant.insert(Arc::new(Tree::new(number))))
    }
}

/// The numbers of frames and nodes that a budget allows. A node for each of the pages of a file that is read here and
/// there takes an eighth of their memory; such files get by with half of the frames.
fn shares(budget: u64) -> (u32, u32) {
    let nodes = (budget / 16 / NODE_COST).max(FEWEST.1);
    let frames = budget.saturating_sub(nodes * NODE_COST) / FRAME_COST;
    let frames = frames.clamp(FEWEST.0, word::MOST_FRAMES);
    let number = |count| u32::try_from(count).unwrap_or(u32::MAX >> 1);
    (number(frames), number(nodes))
}

/// The pages, as the eviction sees them.
struct Evicting<'a> {
    cache: &'a PageCache,
    emptied: &'a mut Vec<u32>,
}

impl Pages for Evicting<'_> {
    fn evict(&mut self, place: Place, frame: u32, most: u64, spared: fn(u64) -> u64) -> Fate {
        let nodes = &self.cache.nodes;
        let change = |word| {
            let state = State(word);
            match state.look(frame, most) {
                Look::Busy => None,
                Look::Spare => Some(state.with_accesses(spared(state.accessed())).0),
                Look::Evict => Some(State::EMPTY.0),
            }
        };
        // Acquire: who had it pinned is done with it.
        match nodes.slot(place.node(), place.nth()).word.update(Ordering::AcqRel, change) {
            Err(_) => Fate::Busy,
            Ok(before) if State(before).look(frame, most) == Look::Spare => Fate::Spared,
            Ok(_) => {
                let ghost = nodes.key(place.node()).ghost(place);
                if nodes.leave(place.node()) {
                    self.emptied.push(place.node());
                }
                Fate::Evicted(ghost)
            }
        }
    }
}
