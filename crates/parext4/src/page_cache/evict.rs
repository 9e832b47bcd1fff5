//! Eviction: frees frames and nodes for pages that are claimed.
//!
//! The module is responsible for the free frames and for the leaves that became empty. [`fifo`]
//! decides which page is tried next, and the state of the page whether it may be evicted. The
//! eviction runs in the thread that needs the frame or the node.
//!
//! Invariants: a page's slot becomes empty in one step with the check that the page may be evicted.
//! A frame is reused only after its page's slot is empty.
//!
//! [`fifo`]: super::fifo

use smallvec::SmallVec;

use super::PageCache;
use super::fifo::{EvictOutcome, EvictPages, Queues};
use super::nodes::{LeafKey, SlotId};
use super::state::{EvictDecision, PageState};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// Number of pages that are evicted together.
pub(super) const BATCH: usize = 16;

/// State of the eviction, under one lock.
#[derive(Debug)]
pub(super) struct Eviction {
    pub queues: Queues,
    /// Leaves that were listed when they became empty. They may be in use again.
    emptied: Vec<u32>,
}

impl Eviction {
    pub fn new(frames: u32) -> Self {
        Self { queues: Queues::new(frames), emptied: Vec::new() }
    }
}

impl PageCache {
    /// Allocates a frame for a claimed page, and evicts pages if none is free. If `optional`, gives
    /// up after 128 pages of each queue.
    pub(super) fn allocate_frame(&self, id: SlotId, ghost: u64, optional: bool) -> Option<u32> {
        let mut eviction = self.eviction.lock();
        let eviction = &mut *eviction;
        if let Some(frame) = eviction.queues.allocate(id, ghost) {
            return Some(frame);
        }
        let next = eviction.queues.frame_count();
        if next < self.frames.items() && self.frames.ensure_mapped(next) {
            eviction.queues.add_frame();
        } else {
            self.evict(eviction, BATCH, optional);
        }
        eviction.queues.allocate(id, ghost)
    }

    /// Evicts up to `most` pages and returns their number. If `optional`, gives up after 128 pages
    /// of each queue.
    pub(super) fn evict(&self, eviction: &mut Eviction, most: usize, optional: bool) -> usize {
        let mut pages = Evictor { cache: self, emptied: &mut eviction.emptied };
        let queues = &mut eviction.queues;
        let one = |_: &usize| if optional { queues.try_evict(&mut pages) } else { queues.evict(&mut pages) };
        let evicted = (0..most).take_while(one).count();
        self.counters.evicted(evicted as u64);
        evicted
    }

    /// Returns the number of pages that are pinned, being filled or under write-back.
    pub fn busy_pages(&self) -> u64 {
        let eviction = self.eviction.lock();
        let is_busy = |id: &SlotId| {
            let state = PageState(self.nodes.slot(id.node(), id.nth()).word.load(Ordering::Acquire));
            state.pins() > 0 || state.is_filling() || state.is_in_write_back()
        };
        eviction.queues.slots().filter(is_busy).count() as u64
    }

    /// Frees the slots of removed pages, and the frames of the pages that had one.
    pub(super) fn release(&self, gone: impl IntoIterator<Item = (SlotId, Option<u32>)>) {
        let mut eviction = self.eviction.lock();
        for (id, frame) in gone {
            if let Some(frame) = frame {
                eviction.queues.release(frame);
            }
            if self.nodes.leave(id.node()) {
                eviction.emptied.push(id.node());
            }
        }
    }

    /// Frees at least one node, and evicts pages if no leaf is empty. Returns false if no node can
    /// be freed.
    pub(super) fn free_nodes(&self) -> bool {
        loop {
            let mut eviction = self.eviction.lock();
            if eviction.emptied.is_empty() && self.evict(&mut eviction, BATCH, false) == 0 {
                return false;
            }
            let from = eviction.emptied.len().saturating_sub(BATCH);
            let unlist = |leaf| self.nodes.unlist(leaf);
            let empty: SmallVec<[LeafKey; BATCH]> =
                eviction.emptied.drain(from..).filter_map(unlist).collect();
            drop(eviction);
            // `count` visits every key, as it must: the leaves are no longer listed, so only this
            // call can free them.
            if empty.into_iter().filter(|&key| self.prune(key)).count() > 0 {
                return true;
            }
        }
    }

    fn prune(&self, key: LeafKey) -> bool {
        let tree = self.trees.lock().get(key.file() as usize - 1).map(Arc::clone);
        tree.is_some_and(|tree| tree.prune(&self.nodes, key.index()))
    }

    /// Leaves a leaf that the eviction has visited.
    pub(super) fn leave(&self, leaf: u32) {
        if self.nodes.leave(leaf) {
            self.eviction.lock().emptied.push(leaf);
        }
    }
}

/// Gives the eviction queues access to the states of pages.
struct Evictor<'a> {
    cache: &'a PageCache,
    emptied: &'a mut Vec<u32>,
}

impl EvictPages for Evictor<'_> {
    fn evict(&mut self, id: SlotId, frame: u32, most: u64, if_kept: fn(u64) -> u64) -> EvictOutcome {
        let nodes = &self.cache.nodes;
        let change = |word| {
            let state = PageState(word);
            match state.evict_decision(frame, most) {
                EvictDecision::Busy => None,
                EvictDecision::Keep => Some(state.with_accesses(if_kept(state.accessed())).0),
                EvictDecision::Evict => Some(PageState::EMPTY.0),
            }
        };
        // Acquire: the threads that had the page pinned have finished their copies.
        match nodes.slot(id.node(), id.nth()).word.update(Ordering::AcqRel, change) {
            Err(_) => EvictOutcome::Busy,
            Ok(before) if PageState(before).evict_decision(frame, most) == EvictDecision::Keep => {
                EvictOutcome::Kept
            }
            Ok(_) => {
                let ghost = nodes.key(id.node()).ghost(id);
                if nodes.leave(id.node()) {
                    self.emptied.push(id.node());
                }
                EvictOutcome::Evicted(ghost)
            }
        }
    }
}
