//! One file's map from file blocks to volume blocks: a tree in memory which is the truth.
//!
//! Looking something up takes no lock: readers have a [view](View) of their own of what the leaves say. Changes
//! take the map's lock, make a new version of the one leaf that they concern, renew the view, and register the
//! blocks of the nodes that they dirty; those are encoded when the transaction closes, once each. Changes that
//! [stay within a leaf](leaf_update) go on beside each other in other leaves. That something was written is, most of the
//! time, only [marked](marks) in its leaf, again without a lock.
//!
//! The nodes mirror the extent tree on the device, one to one. Source of the format: kernel documentation,
//! "Dynamic Structures: Extent Tree".

mod change;
mod edit;
mod extents;
mod leaf;
mod leaf_index;
mod leaf_update;
mod load;
mod marks;
mod neighbours;
mod node;
mod region;
mod shift;
mod view;
mod writer;

use parext4_format::extent::Extent;
use parext4_format::{FileBlock, FsBlock};

use crate::fault::{Fault, planted};
use crate::meta::BlockKind;
use crate::sync::Rank;
use crate::sync::{Arc, RwLock, Swap, spin};

pub(crate) use edit::Edit;
use leaf_index::LeafIndex;
use marks::Marking;
use node::{Node, Tree};
pub(crate) use shift::Shift;
use view::View;
pub(crate) use writer::{Plan, Writer};

/// Entries that fit the root, which lies in the inode.
const ROOT_CAPACITY: usize = 4;
/// The deepest tree of the format.
const MAX_DEPTH: u16 = 5;
/// How often a mark is tried again while its leaf is being changed, which takes about a microsecond.
const MARK_TRIES: u32 = 200;

/// What a run of file blocks is mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Hole,
    /// Allocated; reads as zeros.
    Unwritten(FsBlock),
    Written(FsBlock),
}

/// A run of file blocks in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub logical: FileBlock,
    /// Blocks.
    pub len: u32,
    pub state: State,
}

impl Mapping {
    pub(crate) fn is_unwritten(&self) -> bool {
        matches!(self.state, State::Unwritten(_))
    }

    /// Takes `next` in, if it goes on in the same state and at the next place on the volume.
    fn join(&mut self, next: &Self) -> bool {
        let goes_on = |start: FsBlock, other: FsBlock| start + u64::from(self.len) == other;
        let joins = match (self.state, next.state) {
            (State::Hole, State::Hole) => true,
            (State::Unwritten(a), State::Unwritten(b)) | (State::Written(a), State::Written(b)) => {
                goes_on(a, b)
            }
            _ => false,
        };
        if joins {
            self.len += next.len;
        }
        joins
    }
}

/// The extent map of one file.
#[derive(Debug)]
pub(crate) struct ExtentMap {
    view: View,
    leaf_index: Swap<LeafIndex>,
    tree: RwLock<Tree>,
    /// Extents in a leaf that is a block.
    capacity: usize,
}

impl ExtentMap {
    /// An empty map for a new file, whose nodes will be blocks of this kind.
    pub(crate) fn empty(block_size: u32, kind: BlockKind) -> Self {
        let capacity = parext4_format::extent::capacity(block_size as usize);
        Self::with(Tree::new(Node::empty_root(), 0, capacity, kind))
    }

    fn with(mut tree: Tree) -> Self {
        let leaf_index = Swap::new(Arc::new(tree.leaf_index()));
        let capacity = tree.capacity;
        Self { view: View::new(), leaf_index, tree: RwLock::new(Rank::ExtentMap, tree), capacity }
    }

    /// The right to change the map.
    pub(crate) fn lock(&self) -> Writer<'_> {
        Writer::new(self, self.tree.write())
    }

    /// The first extent that ends behind `block`, without regard to marks.
    pub(crate) fn extent_from(&self, block: u32) -> Option<Extent> {
        self.leaf_index.load().extent_from(block)
    }

    /// The last extent of the file, without regard to marks.
    pub(crate) fn last(&self) -> Option<Extent> {
        self.leaf_index.load().last()
    }

    /// The last extent that starts before `end`, which may be 2^32, without regard to marks.
    pub(crate) fn last_before(&self, end: u64) -> Option<Extent> {
        u32::try_from(end).map_or_else(|_| self.last(), |end| self.leaf_index.load().extent_before(end))
    }

    /// The run that `block` lies in, cut to `[block, block + max)`. It may go on in the same state.
    pub(crate) fn lookup(&self, block: u32, max: u32) -> Mapping {
        let shown = self.view.with_region(block, |region| region.lookup(block, max));
        shown.unwrap_or_else(|| self.lookup_unshown(block, max))
    }

    /// As [`lookup`](Self::lookup), where nothing was looked for before, or nothing is mapped.
    #[cold]
    fn lookup_unshown(&self, block: u32, max: u32) -> Mapping {
        let hole = |len| Mapping { logical: FileBlock(block), len, state: State::Hole };
        let behind = block | (region::BLOCKS - 1);
        match self.extent_from(block) {
            None => hole(max),
            Some(next) if next.logical.get() > behind => hole(max.min(next.logical.get() - block)),
            Some(_) => {
                let showing = self.view.lock();
                let shown = showing.show(&self.leaf_index.load(), block, |region| region.lookup(block, max));
                shown.unwrap_or_else(|| hole(max.min(behind - block + 1)))
            }
        }
    }

    /// The whole run that begins at `block`, cut to `[block, block + max)`. Several extents may map it, in several
    /// leaves.
    pub(crate) fn run(&self, block: u32, max: u32) -> Mapping {
        let mut run = self.lookup(block, max);
        while run.len < max && run.join(&self.lookup(block + run.len, max - run.len)) {}
        run
    }

    /// The runs that cover `[start, start + len)`.
    pub(crate) fn runs(&self, start: u32, len: u32) -> impl Iterator<Item = Mapping> {
        let end = start.saturating_add(len);
        let mut at = start;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let run = self.run(at, end - at);
                at += run.len;
                run
            })
        })
    }

    /// As much of the [`run`](Self::run) as one extent maps, if any does.
    pub(crate) fn run_in_extent(&self, block: u32, max: u32) -> Mapping {
        let whole = self.extent_from(block).map_or(u64::MAX, |extent| extent.end() - u64::from(block));
        self.run(block, max.min(u32::try_from(whole).unwrap_or(u32::MAX)))
    }

    /// Whether nothing of `[start, start + len)` is mapped.
    pub(crate) fn is_hole(&self, start: u32, len: u32) -> bool {
        let end = u64::from(start) + u64::from(len);
        self.extent_from(start).is_none_or(|next| u64::from(next.logical.get()) >= end)
    }

    /// The unwritten blocks around `block`, which is one, that one extent maps: the first, and the one behind
    /// the last.
    pub(crate) fn unwritten_around(&self, block: u32) -> (u32, u32) {
        let Some(whole) = self.extent_from(block) else { return (block, block + 1) };
        let around = |run: &Mapping| run.logical.get() <= block && block < run.logical.get() + run.len;
        let run = self.runs(whole.logical.get(), whole.len).find(around);
        run.map_or((block, block + 1), |run| (run.logical.get(), run.logical.get() + run.len))
    }

    /// Where a new block at `block` had best go: right behind its neighbour in the file.
    pub(crate) fn goal(&self, block: u32) -> Option<FsBlock> {
        let before = self.leaf_index.load().extent_before(block)?;
        Some(before.physical + u64::from(block - before.logical.get()))
    }

    /// The levels above the leaves.
    pub(crate) fn depth(&self) -> u16 {
        self.leaf_index.load().depth
    }

    /// Estimates the bytes that the map takes in memory.
    pub(crate) fn memory(&self) -> usize {
        /// The lists of leaves, and what the memory allocator adds.
        const BESIDES: usize = 512;
        let leaf_index = self.leaf_index.load();
        let extents = match leaf_index.depth {
            0 => ROOT_CAPACITY,
            // Most leaves are nearly full, or were when they were made.
            _ => leaf_index.leaves * self.capacity,
        };
        BESIDES
            + size_of::<Tree>()
            + leaf_index.leaves * size_of::<leaf::Leaf>()
            + extents * size_of::<Extent>()
            + self.view.memory()
    }

    /// At most so many nodes are blocks.
    pub(crate) fn most_nodes(&self) -> u32 {
        let leaf_index = self.leaf_index.load();
        u32::try_from(leaf_index.leaves).unwrap_or(u32::MAX).saturating_mul(u32::from(leaf_index.depth))
    }

    /// Notes that `[start, start + len)`, which is unwritten, is written, under a handle of transaction `tid`. Takes
    /// no lock. Returns for how many blocks: the rest takes a change of the leaf.
    ///
    /// If it is any, the inode has joined that transaction.
    pub(crate) fn mark(&self, tid: u64, start: u32, len: u32) -> u32 {
        let mut done = 0;
        while done < len {
            let marked = self.mark_leaf(tid, start + done, len - done);
            if marked == 0 {
                break;
            }
            done += marked;
        }
        if done > 0 && !planted(Fault::MarkUnshown) {
            self.view.set_written(u64::from(start)..u64::from(start) + u64::from(done));
        }
        done
    }

    /// Marks as much of `[start, start + len)` as one leaf maps, or nothing.
    fn mark_leaf(&self, tid: u64, start: u32, len: u32) -> u32 {
        for _ in 0..MARK_TRIES {
            let leaf_index = self.leaf_index.load();
            let (leaf, most) = leaf_index.leaf(start);
            match leaf.mark(tid, start, len.min(most)) {
                Marking::Done => return len.min(most),
                Marking::Refused => return 0,
                Marking::Retired => spin(),
            }
        }
        0
    }

    /// The most blocks that one change registers, the inode's and those of what it maps left aside.
    pub(crate) fn change_credits(&self) -> u32 {
        Self::credits_at_depth(self.depth())
    }

    /// As [`change_credits`](Self::change_credits), at a depth: the nodes that change; those that come, each
    /// with its group's bitmap and descriptor, or those that go, with the same; the superblock; and a revoke
    /// block for what goes.
    pub(crate) fn credits_at_depth(depth: u16) -> u32 {
        let depth = u32::from(depth);
        depth + 3 * (depth + 1) + 2
    }

    /// The most blocks that a change registers which needs `blocks` new ones and removes nothing.
    pub(crate) fn set_credits(&self, blocks: u32) -> u32 {
        u32::from(self.depth()) + if blocks == 0 { 0 } else { 3 * blocks + 1 }
    }

    /// The most new blocks that converting one range can need, in a tree of `depth` or of one level more,
    /// which others may add while the data is on its way.
    ///
    /// Only the extents at the two ends of the range are cut, everything between stays one extent for one or
    /// joins its neighbour: two changes need blocks, `d + 1` each; if the first makes the tree deeper, the
    /// second cannot.
    pub(crate) fn worst_case(depth: u16) -> u32 {
        2 * (u32::from(depth) + 2)
    }

    /// Writes the root into the inode's `i_block` and every dirty node into its block, with all marks folded.
    /// No handle is open.
    pub(crate) fn encode(&self, i_block: &mut [u8; 60]) {
        let mut tree = self.tree.write();
        let showing = self.view.lock();
        tree.encode(i_block);
        drop(showing);
        #[cfg(any(debug_assertions, shuttle))]
        self.check_view();
    }
    /// Panics if readers see something else than the leaves say. No mark is being made, as when no handle is open.
    #[cfg(any(test, debug_assertions, shuttle))]
    fn check_view(&self) {
        // What a model that failed leaves behind is torn down, and may be anything.
        let agrees = std::thread::panicking() || self.view.agrees(&self.leaf_index.load());
        assert!(agrees, "readers see something else than the leaves say");
    }
}

#[cfg(test)]
mod tests;
