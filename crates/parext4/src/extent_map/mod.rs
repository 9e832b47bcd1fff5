//! The extent map of one file: the mapping from file blocks to volume blocks, as a tree in memory.
//!
//! The module looks up, changes, loads and encodes the mapping. [`map_update`](crate::map_update)
//! allocates and frees the mapped blocks. Invariant: the tree in memory is authoritative; the nodes
//! on the device are encoded from it, one block for each node.
//!
//! | Operation | Locks | Effect |
//! |---|---|---|
//! | lookup | none | reads the [view](View), which is built from the leaves on first use |
//! | [mark](marks) unwritten blocks as written | none | adds a range to the leaf's set, and sets bits in the view |
//! | [change within one leaf](leaf_update) | map shared, view shared, leaf exclusive | replaces the leaf's extents, updates the view |
//! | any other change | map exclusive, view exclusive | changes the nodes, updates the view |
//! | encode | map exclusive, view exclusive | writes each dirty node into its block, once for each transaction |
//!
//! Source of the format: kernel documentation, "Dynamic Structures: Extent Tree".

mod change;
mod chunk_table;
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
use parext4_format::{BlockRange, BlockSize, FileBlock, FsBlock};

use crate::convert::saturating_u32;
use crate::fault::{Fault, guarded};
use crate::mapping::{BlockState, Mapping};
use crate::meta::BlockKind;
use crate::sync::Rank;
use crate::sync::{Arc, RwLock, Swap, spin};

pub(crate) use edit::Edit;
use leaf_index::LeafIndex;
use marks::Marking;
use node::{Node, Tree};
use view::View;
pub(crate) use writer::{Plan, Writer};

/// Maximum number of entries in the root, which is stored in the inode.
const ROOT_CAPACITY: usize = 4;
/// Maximum depth of an extent tree in the format.
const MAX_DEPTH: u16 = 5;
/// Maximum number of attempts to mark a leaf while another thread changes it, which takes about a
/// microsecond.
const MARK_TRIES: u32 = 200;

/// The extent map of one file.
#[derive(Debug)]
pub(crate) struct ExtentMap {
    view: View,
    leaf_index: Swap<LeafIndex>,
    tree: RwLock<Tree>,
    /// Maximum number of extents in a leaf that is a block.
    capacity: usize,
}

impl ExtentMap {
    /// Returns an empty map for a new file. `kind` is the kind of the blocks of its nodes.
    pub(crate) fn empty(block_size: BlockSize, kind: BlockKind) -> Self {
        let capacity = parext4_format::extent::capacity(block_size.bytes() as usize);
        Self::with(Tree::new(Node::empty_root(), 0, capacity, kind))
    }

    fn with(mut tree: Tree) -> Self {
        let leaf_index = Swap::new(Arc::new(tree.leaf_index()));
        let capacity = tree.capacity;
        Self { view: View::new(), leaf_index, tree: RwLock::new(Rank::ExtentMap, tree), capacity }
    }

    /// Acquires the map's lock exclusively. Blocks while another thread holds it.
    pub(crate) fn lock(&self) -> Writer<'_> {
        Writer::new(self, self.tree.write())
    }

    /// Returns the first extent that ends after `block`. Ignores marks.
    pub(crate) fn extent_from(&self, block: FileBlock) -> Option<Extent> {
        self.leaf_index.load().extent_from(block)
    }

    /// Returns the last extent of the file. Ignores marks.
    pub(crate) fn last(&self) -> Option<Extent> {
        self.leaf_index.load().last()
    }

    /// Returns the last extent that starts before `end`, which may be 2^32. Ignores marks.
    pub(crate) fn last_before(&self, end: u64) -> Option<Extent> {
        match FileBlock::from_u64(end) {
            Some(end) => self.leaf_index.load().extent_before(end),
            None => self.last(),
        }
    }

    /// Returns the state of `block` and of blocks after it in the same state, at most `max` blocks.
    /// The run may continue after the returned part.
    #[inline]
    pub(crate) fn lookup(&self, block: FileBlock, max: u32) -> Mapping {
        let found = self.view.with_region(block, |region| region.lookup(block, max));
        found.unwrap_or_else(|| self.lookup_uncached(block, max))
    }

    /// Like [`lookup`](Self::lookup), for a block whose region is not in the view: builds the
    /// region if a block of it at or after `block` is mapped, with the view locked exclusively.
    #[cold]
    fn lookup_uncached(&self, block: FileBlock, max: u32) -> Mapping {
        let hole = |len| Mapping { logical: block, len, state: BlockState::Hole };
        let region_last = FileBlock(block.get() | (region::BLOCKS - 1));
        match self.extent_from(block) {
            None => hole(BlockRange::starting_at(block).take(max).count()),
            Some(next) if next.logical > region_last => hole(max.min(next.logical - block)),
            Some(_) => {
                let exclusive = self.view.lock_exclusive();
                let found = exclusive
                    .find_or_build(&self.leaf_index.load(), block, |region| region.lookup(block, max));
                found.unwrap_or_else(|| hole(max.min(region_last - block + 1)))
            }
        }
    }

    /// Returns the whole run that begins at `block`, at most `max` blocks. Multiple extents and
    /// leaves may map it.
    pub(crate) fn run(&self, block: FileBlock, max: u32) -> Mapping {
        let mut run = self.lookup(block, max);
        // The run may be shorter than `max`, because the numbers of blocks end at the last one that
        // a file can have.
        while run.len < max
            && let Some(next) = block.checked_add(run.len)
            && run.join(&self.lookup(next, max - run.len))
        {}
        run
    }

    /// Returns the runs that cover `blocks`, in ascending order.
    pub(crate) fn runs(&self, blocks: BlockRange) -> impl Iterator<Item = Mapping> {
        let mut rest = blocks;
        std::iter::from_fn(move || {
            let run = (!rest.is_empty()).then(|| self.run(rest.start(), rest.count()))?;
            rest = BlockRange::clamped(run.end(), blocks.end());
            Some(run)
        })
    }

    /// Returns the run that begins with the first of `blocks`, cut to `blocks` and to the end of
    /// the first extent that ends after that block.
    pub(crate) fn run_in_extent(&self, blocks: BlockRange) -> Mapping {
        let whole = self.extent_from(blocks.start()).map_or(FileBlock::LIMIT, |extent| extent.end());
        let part = BlockRange::clamped(blocks.start().to_u64(), whole.min(blocks.end()));
        self.run(part.start(), part.count())
    }

    /// Returns true if none of `blocks` is mapped.
    pub(crate) fn is_hole(&self, blocks: BlockRange) -> bool {
        self.extent_from(blocks.start()).is_none_or(|next| next.logical.to_u64() >= blocks.end())
    }

    /// Returns the unwritten run around the unwritten `block`, within the extent that maps it.
    pub(crate) fn unwritten_around(&self, block: FileBlock) -> BlockRange {
        let whole = self.extent_from(block);
        let mut runs = whole.into_iter().flat_map(|whole| self.runs(whole.blocks()));
        runs.find_map(|run| Some(run.blocks()).filter(|blocks| blocks.contains(block)))
            .unwrap_or(BlockRange::of_block(block))
    }

    /// Returns the volume block at which a new block for `block` would continue the extent before
    /// it.
    pub(crate) fn goal(&self, block: FileBlock) -> Option<FsBlock> {
        let before = self.leaf_index.load().extent_before(block)?;
        Some(before.physical + u64::from(block - before.logical))
    }

    /// Returns the number of levels above the leaves.
    pub(crate) fn depth(&self) -> u16 {
        self.leaf_index.load().depth
    }

    /// Estimates the memory that the map uses, in bytes.
    pub(crate) fn memory(&self) -> usize {
        /// Estimated bytes for the lists of leaves and the overhead of the memory allocator.
        const BESIDES: usize = 512;
        let leaf_index = self.leaf_index.load();
        let extents = match leaf_index.depth {
            0 => ROOT_CAPACITY,
            // Most leaves are nearly full, or were when they were created.
            _ => leaf_index.leaves * self.capacity,
        };
        BESIDES
            + size_of::<Tree>()
            + leaf_index.leaves * size_of::<leaf::Leaf>()
            + extents * size_of::<Extent>()
            + self.view.memory()
    }

    /// Returns an upper bound of the number of nodes that are blocks.
    pub(crate) fn max_node_blocks(&self) -> u32 {
        let leaf_index = self.leaf_index.load();
        saturating_u32(leaf_index.leaves).saturating_mul(u32::from(leaf_index.depth))
    }

    /// Marks blocks of `run` from its first one on as written, under a handle of transaction `tid`.
    /// Returns the number of blocks marked; the caller must convert the remaining blocks by a
    /// change of the leaf. Acquires no lock unless a region is being built.
    ///
    /// The blocks of `run` are unwritten, and the caller holds their range. If the result is above
    /// zero, the inode has joined the transaction.
    pub(crate) fn mark(&self, tid: u64, run: &Mapping) -> u32 {
        let mut rest = run.blocks();
        while !rest.is_empty() {
            let marked = self.mark_leaf(tid, rest);
            if marked == 0 {
                break;
            }
            rest = rest.skip(marked);
        }
        let done = run.len - rest.count();
        if done > 0 {
            guarded!(Fault::MarkNotInView, self.view.set_written(run.blocks().take(done)));
        }
        done
    }

    /// Marks the part of `blocks` that one leaf maps. Returns its length in blocks, or 0 if the
    /// leaf refused the mark.
    fn mark_leaf(&self, tid: u64, blocks: BlockRange) -> u32 {
        for _ in 0..MARK_TRIES {
            let leaf_index = self.leaf_index.load();
            let (leaf, most) = leaf_index.leaf(blocks.start());
            let part = blocks.take(most);
            match leaf.mark(tid, part) {
                Marking::Done => return part.count(),
                Marking::Refused => return 0,
                Marking::Retired => spin(),
            }
        }
        0
    }

    /// Returns the maximum number of blocks that one change registers, excluding the inode and the
    /// mapped blocks.
    pub(crate) fn change_credits(&self) -> u32 {
        Self::credits_at_depth(self.depth())
    }

    /// Like [`change_credits`](Self::change_credits), for a tree of `depth`.
    ///
    /// Counts the changed nodes; the added or removed nodes, each with its group's bitmap and
    /// descriptor; the superblock; and a revoke block for removed nodes.
    pub(crate) fn credits_at_depth(depth: u16) -> u32 {
        let depth = u32::from(depth);
        depth + 3 * (depth + 1) + 2
    }

    /// Returns the maximum number of blocks that a change registers if it adds `blocks` nodes and
    /// removes none.
    pub(crate) fn set_credits(&self, blocks: u32) -> u32 {
        u32::from(self.depth()) + if blocks == 0 { 0 } else { 3 * blocks + 1 }
    }

    /// Returns the maximum number of new blocks that converting one range needs, in a tree of
    /// `depth` or one level deeper. Another thread may add that level while the data is being
    /// written.
    ///
    /// Only the extents at the two ends of the range are split. Each extent between stays one
    /// extent or joins its neighbour. So at most two changes need blocks, `depth + 1` each. If the
    /// first change makes the tree deeper, the second cannot.
    pub(crate) fn worst_case(depth: u16) -> u32 {
        2 * (u32::from(depth) + 2)
    }

    /// Encodes the root into the inode's `i_block` and each dirty node into its block, and folds
    /// all marks. Locks the map and the view exclusively. No handle is open, so no thread sets a
    /// mark.
    pub(crate) fn encode(&self, i_block: &mut [u8; 60]) {
        let mut tree = self.tree.write();
        let exclusive = self.view.lock_exclusive();
        tree.encode(i_block);
        drop(exclusive);
        #[cfg(any(debug_assertions, shuttle))]
        self.check_view();
    }
    /// Panics if the view differs from the leaves. No handle is open, so no thread sets a mark.
    #[cfg(any(test, debug_assertions, shuttle))]
    fn check_view(&self) {
        // A panicking thread may leave a view that differs from the leaves.
        let agrees = std::thread::panicking() || self.view.agrees(&self.leaf_index.load());
        assert!(agrees, "the view differs from the leaves");
    }
}

#[cfg(test)]
mod tests;
