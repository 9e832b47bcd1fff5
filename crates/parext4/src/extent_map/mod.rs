//! One file's map from file blocks to volume blocks: a B+tree in memory which is the truth.
//!
//! The nodes mirror the extent tree on the device, one to one. A change registers the blocks of the nodes
//! it dirties; they are encoded when the transaction closes, once each. Source of the format: kernel
//! documentation, "Dynamic Structures: Extent Tree".

mod load;
mod node;

use parext4_format::extent::Extent;
use parext4_format::{ChecksumSeed, FileBlock, FsBlock};

use crate::allocator::{Allocator, Reservation};
use crate::error::{Error, Result};
use crate::journal::Handle;
use crate::meta::{BlockKind, MetaCache};
use node::Node;

/// Entries that fit the root, which lies in the inode.
const ROOT_CAPACITY: usize = 4;
/// The deepest tree of the format.
const MAX_DEPTH: u16 = 5;

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

/// The extent map of one file.
#[derive(Debug)]
pub(crate) struct ExtentMap {
    root: Node,
    depth: u16,
    /// Entries in a node that is a block.
    capacity: usize,
    kind: BlockKind,
}

/// What a change of the map works with.
pub(crate) struct Edit<'a, 'r> {
    pub handle: &'a Handle<'a>,
    pub cache: &'a MetaCache,
    pub allocator: &'a Allocator,
    /// Blocks for new nodes: at least what [`ExtentMap::blocks_needed`] said (I5).
    pub reservation: &'a mut Reservation<'r>,
    /// Where new nodes should lie.
    pub goal: FsBlock,
    /// New nodes so far.
    pub added: u32,
    /// Blocks of nodes that went away; the caller frees them.
    pub freed: Vec<FsBlock>,
}

impl Edit<'_, '_> {
    /// A block for a new node. With enough reserved this fails only on a corrupt volume, which then stops.
    fn take(&mut self) -> Result<FsBlock> {
        let block = self.allocator.allocate_metadata(self.handle, self.goal, self.reservation)?;
        self.added += 1;
        Ok(block)
    }
}

impl ExtentMap {
    /// An empty map for a new file. `seed` is the inode's checksum seed, with `metadata_csum`.
    pub(crate) fn empty(block_size: u32, seed: Option<ChecksumSeed>) -> Self {
        Self {
            root: Node::empty_root(),
            depth: 0,
            capacity: parext4_format::extent::capacity(block_size as usize),
            kind: BlockKind::ExtentNode(seed),
        }
    }

    /// The first extent that ends behind `block`.
    pub(crate) fn extent_from(&self, block: u32) -> Option<Extent> {
        self.root.extent_from(block)
    }

    /// The last extent of the file.
    pub(crate) fn last(&self) -> Option<Extent> {
        self.root.last()
    }

    /// The run that `block` lies in, cut to `[block, block + max)`.
    pub(crate) fn lookup(&self, block: u32, max: u32) -> Mapping {
        let logical = FileBlock(block);
        match self.extent_from(block) {
            Some(extent) if extent.logical.get() <= block => {
                let skip = block - extent.logical.get();
                let start = extent.physical + u64::from(skip);
                let state = if extent.unwritten { State::Unwritten(start) } else { State::Written(start) };
                Mapping { logical, len: (extent.len - skip).min(max), state }
            }
            Some(next) => Mapping { logical, len: (next.logical.get() - block).min(max), state: State::Hole },
            None => Mapping { logical, len: max, state: State::Hole },
        }
    }

    /// The runs that cover `[start, start + len)`.
    pub(crate) fn runs(&self, start: u32, len: u32) -> impl Iterator<Item = Mapping> + '_ {
        let end = start.saturating_add(len);
        let mut at = start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let mapping = self.lookup(at, end - at);
            at += mapping.len;
            Some(mapping)
        })
    }

    /// Where a new block at `block` had best go: right behind its neighbour in the file.
    pub(crate) fn goal(&self, block: u32) -> Option<FsBlock> {
        let before = self.root.extent_before(block)?;
        Some(before.physical + u64::from(block - before.logical.get()))
    }

    /// The levels above the leaves.
    pub(crate) fn depth(&self) -> u16 {
        self.depth
    }

    /// The most new blocks that one [`set`](Self::set) or [`remove`](Self::remove) of `[start, start + len)`
    /// can need now.
    pub(crate) fn blocks_needed(&self, start: u32, len: u32) -> u32 {
        // A change leaves at most two entries more in one leaf, or one in each of two.
        let room_at = |block| self.root.room_near(block, self.capacity);
        let room = room_at(start).min(room_at(start.saturating_add(len)));
        if room >= 2 { 0 } else { Self::worst_case(self.depth) }
    }

    /// The most blocks that one change registers: nodes it changes, nodes it adds, and the groups that
    /// those come from.
    pub(crate) fn change_credits(&self) -> u32 {
        2 * (u32::from(self.depth) + 1) + 3 * Self::worst_case(self.depth)
    }

    /// The most new blocks that one change can need in a tree of `depth`: two splits on every level, and a
    /// new root.
    pub(crate) fn worst_case(depth: u16) -> u32 {
        2 * (u32::from(depth) + 1) + 1
    }

    /// Maps `extent`, in place of whatever was mapped there. Blocks that lose their mapping are the
    /// caller's to free.
    pub(crate) fn set(&mut self, edit: &mut Edit<'_, '_>, extent: Extent) -> Result<()> {
        self.clear(edit, extent.logical.get(), extent.len)?;
        self.insert(edit, extent)
    }

    /// Unmaps `[start, start + len)`.
    pub(crate) fn remove(&mut self, edit: &mut Edit<'_, '_>, start: u32, len: u32) -> Result<()> {
        self.clear(edit, start, len)?;
        if self.root.pull_up(edit) {
            self.depth = 0;
        }
        Ok(())
    }

    fn clear(&mut self, edit: &mut Edit<'_, '_>, start: u32, len: u32) -> Result<()> {
        let end = u64::from(start) + u64::from(len);
        let mut rest = None;
        self.root.remove(edit, self.kind, u64::from(start), end, &mut rest)?;
        if self.root.is_empty() {
            self.root.make_leaf();
            self.depth = 0;
        }
        match rest {
            Some(extent) => self.insert(edit, extent),
            None => Ok(()),
        }
    }

    fn insert(&mut self, edit: &mut Edit<'_, '_>, extent: Extent) -> Result<()> {
        let split = self.root.insert(edit, self.kind, extent, self.capacity)?;
        debug_assert!(split.is_none(), "the root does not split");
        if self.root.len() > ROOT_CAPACITY {
            if self.depth == MAX_DEPTH {
                return Err(Error::FileTooLarge);
            }
            self.root.grow(edit, self.kind)?;
            self.depth += 1;
        }
        Ok(())
    }

    /// Writes the root into the inode's `i_block` and every dirty node into its block.
    pub(crate) fn encode(&mut self, i_block: &mut [u8; 60]) {
        self.root.encode_children();
        self.root.encode_into(i_block, self.depth);
    }
}

#[cfg(test)]
mod tests;
