//! The page cache: contents of files in memory, within a budget.
//!
//! The module is responsible for pages, their states, the memory that they occupy, and which pages
//! are evicted. It does not know extents, the journal or the device: callers fill pages and write
//! them back. Nor does it know byte ranges: callers lock the range of the file that they read or
//! write, so that the copies of two threads do not conflict.
//!
//! Invariant: a page is filled by one thread, written back by one thread at a time, and neither
//! evicted nor discarded while it is pinned or written back. A dirty or reserved page is never
//! evicted.
//!
//! A [`PageCache`] holds the memory of a volume, and each file has its [`FilePages`]. A look-up
//! acquires no lock:
//!
//! 1. it walks the radix tree of the file to a leaf ([`tree`], [`nodes`]);
//! 2. it pins the page by a compare-and-swap of the page's state word in the leaf ([`state`]);
//! 3. it checks that the leaf still belongs to the file.
//!
//! A page that is missing is claimed, gets a frame of memory ([`arena`]), and is filled. If no
//! frame is free, the claiming thread evicts pages ([`evict`]) in the order of [`fifo`].

#[cfg(test)]
mod against_model;
mod arena;
mod bytes;
mod counters;
mod dirty_regions;
mod evict;
mod fifo;
mod file_pages;
mod nodes;
mod page;
mod page_index;
mod page_size;
mod runs;
mod shrink;
mod state;
#[cfg(test)]
mod tests;
mod tree;
mod wait_queues;

use std::sync::atomic::AtomicU64;

use parext4_device::shared;
use slab::Slab;

pub use counters::PageCacheStats;
pub use file_pages::{FilePages, PageLookup};
pub use page::{Fill, Page, WriteBack};
pub use page_index::{PageIndex, PageRange};
pub use page_size::PageSize;
pub use runs::{DirtyRuns, RunLimits};

use crate::sync::Rank;
use crate::sync::{Arc, Mutex};
use arena::Arena;
use counters::CacheCounters;
use evict::Eviction;
use nodes::{NODE, Nodes};
use tree::PageTree;
use wait_queues::WaitQueues;

/// Number of bytes of frames that are mapped together.
const CHUNK: u64 = 16 << 20;
/// Minimum of frames and of nodes of a cache.
const MIN_FRAMES: u64 = 64;
const MIN_NODES: u64 = 256;
/// Bytes of the records for one frame.
const FRAME_RECORDS: u64 = fifo::LINK + size_of::<u32>() as u64;
/// Bytes of a node, with the records for it.
const NODE_COST: u64 = NODE + 2 * size_of::<u32>() as u64;

/// The page cache of a volume.
#[derive(Debug)]
pub struct PageCache {
    budget: u64,
    page_size: PageSize,
    frames: Arena,
    nodes: Nodes,
    eviction: Mutex<Eviction>,
    /// The trees of all files. A file's number is its index here, plus 1.
    trees: Mutex<Slab<Arc<PageTree>>>,
    wait_queues: WaitQueues,
    counters: CacheCounters,
}

/// Error: no page can be evicted, because all are dirty, reserved or in use. The caller can write
/// pages back and retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFrame;

impl PageCache {
    /// Returns a cache of pages of this size with a memory limit of `budget` bytes, which it maps
    /// when needed. It has at least 64 frames and 256 nodes.
    #[must_use]
    pub fn new(budget: u64, page_size: PageSize) -> Arc<Self> {
        let (frames, nodes) = shares(budget, page_size);
        Self::with_capacity(frames, nodes, page_size)
    }

    /// Returns a cache with `frames` frames and `nodes` nodes.
    pub(crate) fn with_capacity(frames: u32, nodes: u32, page_size: PageSize) -> Arc<Self> {
        Arc::new(Self {
            budget: u64::from(frames) * frame_cost(page_size) + u64::from(nodes) * NODE_COST,
            page_size,
            frames: Arena::new(frames, page_size.bytes() / size_of::<AtomicU64>(), page_size.pages_in(CHUNK)),
            nodes: Nodes::new(nodes),
            eviction: Mutex::new(Rank::PageQueues, Eviction::new(frames)),
            trees: Mutex::new(Rank::Leaf, Slab::new()),
            wait_queues: WaitQueues::new(),
            counters: CacheCounters::default(),
        })
    }

    /// Returns the counters and the current size of the cache.
    pub fn stats(&self) -> PageCacheStats {
        let (pages, resident) = {
            let eviction = self.eviction.lock();
            (eviction.queues.len(), eviction.queues.resident())
        };
        let stats = PageCacheStats {
            budget: self.budget,
            memory: u64::from(resident) * self.page_size.bytes() as u64,
            page_size: self.page_size.bytes() as u64,
            pages: pages.into(),
            nodes: self.nodes.used().into(),
            ..Default::default()
        };
        self.counters.add_to(stats)
    }

    /// Returns the size of the pages.
    #[inline]
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Returns the limit of the number of pages.
    pub fn capacity(&self) -> u64 {
        self.frames.items().into()
    }

    /// Returns the number of nodes that [`ensure_spare_nodes`](Self::ensure_spare_nodes) keeps free
    /// for threads that bring in dirty pages. A page far away from all other pages of its file
    /// needs nodes of its own; neighbours share theirs.
    pub fn spare_nodes(&self) -> u32 {
        let most = self.nodes.capacity();
        (most / 8).max(64).min(most / 2)
    }

    /// Evicts clean pages until [`spare_nodes`](Self::spare_nodes) nodes are free. Returns false if
    /// that is not possible, because dirty pages and pages in use occupy too many nodes.
    pub fn ensure_spare_nodes(&self) -> bool {
        let spare = self.spare_nodes();
        let are_free = |count| self.nodes.capacity().saturating_sub(self.nodes.used()) >= count;
        if are_free(spare) {
            return true;
        }
        // Evicts a quarter more, so that the next call finds free nodes without an eviction.
        while !are_free(spare + spare / 4) {
            if !self.free_nodes() {
                return are_free(spare);
            }
        }
        true
    }

    /// Returns the number of pages that are dirty or under write-back.
    pub fn dirty_pages(&self) -> u64 {
        self.counters.dirty_pages()
    }

    fn contents(&self, frame: u32) -> &[AtomicU64] {
        self.frames.get(frame).expect("a frame is mapped before its number is stored")
    }

    fn prefetch(&self, frame: u32) {
        if let Some(words) = self.frames.get(frame) {
            shared::prefetch(words);
        }
    }

    fn remove_tree(&self, tree: &PageTree) {
        self.trees.lock().remove(tree.file() as usize - 1);
    }

    fn new_tree(&self) -> Arc<PageTree> {
        let mut trees = self.trees.lock();
        let vacant = trees.vacant_entry();
        let number =
            u32::try_from(vacant.key() + 1).expect("the number of files fits the bits of a leaf key");
        Arc::clone(vacant.insert(Arc::new(PageTree::new(number))))
    }
}

/// Returns the bytes of a frame, with the records for it.
fn frame_cost(page_size: PageSize) -> u64 {
    page_size.bytes() as u64 + FRAME_RECORDS
}

/// Divides a budget into frames and nodes. A sixteenth is for nodes. A node has about an eighth of
/// the memory of a frame of 4 KiB. A file whose pages are all far apart needs a node for each, so
/// such files can use about half of these frames.
fn shares(budget: u64, page_size: PageSize) -> (u32, u32) {
    let nodes = (budget / 16 / NODE_COST).max(MIN_NODES);
    let frames = budget.saturating_sub(nodes * NODE_COST) / frame_cost(page_size);
    let frames = frames.clamp(MIN_FRAMES, state::MAX_FRAMES);
    let number = |count| u32::try_from(count).unwrap_or(u32::MAX >> 1);
    (number(frames), number(nodes))
}
