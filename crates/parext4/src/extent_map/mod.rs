//! One file's map from file blocks to volume blocks: a B+tree in memory which is the truth.
//!
//! The nodes mirror the extent tree on the device, one to one. A change registers the blocks of the nodes
//! it dirties; they are encoded when the transaction closes, once each. Source of the format: kernel
//! documentation, "Dynamic Structures: Extent Tree".

mod leaf;
mod load;
mod node;

use parext4_format::extent::Extent;
use parext4_format::{ChecksumSeed, FileBlock, FsBlock};
use smallvec::SmallVec;

use crate::allocator::{Allocator, Reservation};
use crate::error::{Error, Result};
use crate::journal::Handle;
use crate::meta::{BlockKind, MetaCache};
use node::{Node, Work};

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
    /// Blocks for new nodes. Whoever started the change has reserved them, so that not to get them is
    /// corruption, which stops the volume.
    fn take(&mut self, count: u32) -> Result<SmallVec<[FsBlock; 8]>> {
        let mut blocks = SmallVec::new();
        for _ in 0..count {
            let block = self.allocator.allocate_metadata(self.handle, self.goal, self.reservation);
            blocks.push(block.map_err(|error| match error {
                Error::NoSpace => Error::corrupt("extent tree: too few blocks reserved for its new nodes"),
                other => other,
            })?);
            self.added += 1;
        }
        Ok(blocks)
    }
}

/// A change of the map: `[start, end)` becomes `new`, or a hole. It lies within one extent or, if there is
/// something new, in a hole, and so concerns one leaf.
///
/// That bounds what the change can need. The leaf's entries grow by two at most, and it splits once, since two
/// nodes hold more than `capacity + 2`; then its parent grows by one and splits once at most, and so on up
/// to the root, which moves its entries down into one new node. In a tree of depth `d` these are at most
/// `d + 1` new nodes ([`ExtentMap::plan`] says exactly how many), and `d` nodes that were there change.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// In file blocks; the end is up to 2^32.
    start: u64,
    end: u64,
    new: Option<Extent>,
}

impl Change {
    fn set(extent: Extent) -> Self {
        Self { start: u64::from(extent.logical.get()), end: extent.end(), new: Some(extent) }
    }

    fn remove(start: u32, len: u32) -> Self {
        Self { start: u64::from(start), end: u64::from(start) + u64::from(len), new: None }
    }

    /// The first file block.
    fn first(&self) -> u32 {
        u32::try_from(self.start).unwrap_or(u32::MAX)
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

    /// The nodes that are blocks.
    pub(crate) fn nodes(&self) -> u32 {
        u32::try_from(self.root.nodes()).unwrap_or(u32::MAX)
    }

    /// The new blocks that [`set`](Self::set) of this extent needs now.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`] if the tree would become deeper than the format allows.
    pub(crate) fn blocks_needed(&self, extent: Extent) -> Result<u32> {
        self.plan(&Change::set(extent))
    }

    fn plan(&self, change: &Change) -> Result<u32> {
        let (nodes, root_len) = self.root.plan(change, self.capacity);
        let grows = root_len > ROOT_CAPACITY;
        if grows && self.depth >= MAX_DEPTH {
            return Err(Error::FileTooLarge);
        }
        let blocks = nodes + u32::from(grows);
        debug_assert!(blocks <= u32::from(self.depth) + 1, "{blocks} new nodes at depth {}", self.depth);
        Ok(blocks)
    }

    /// The most blocks that one change registers, the inode's and those of what it maps left aside.
    pub(crate) fn change_credits(&self) -> u32 {
        Self::credits_at_depth(self.depth)
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
        u32::from(self.depth) + if blocks == 0 { 0 } else { 3 * blocks + 1 }
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

    /// Maps `extent`, in place of a hole or of what maps its blocks as part of one other extent.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`], with nothing changed; corruption, and the volume must stop.
    pub(crate) fn set(&mut self, edit: &mut Edit<'_, '_>, extent: Extent) -> Result<()> {
        self.change(edit, Change::set(extent))
    }

    /// Unmaps `[start, start + len)`, which lies within one extent. The blocks are the caller's to free.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub(crate) fn remove(&mut self, edit: &mut Edit<'_, '_>, start: u32, len: u32) -> Result<()> {
        self.change(edit, Change::remove(start, len))?;
        if self.root.pull_up(edit) {
            self.depth = 0;
        }
        Ok(())
    }

    fn change(&mut self, edit: &mut Edit<'_, '_>, change: Change) -> Result<()> {
        // All blocks first: from here on nothing can run out half-way.
        let blocks = edit.take(self.plan(&change)?)?;
        let mut work = Work { edit, change, kind: self.kind, capacity: self.capacity, blocks };
        let split = self.root.apply(&mut work)?;
        debug_assert!(split.is_none(), "the root does not split");
        if self.root.is_empty() {
            self.root.make_leaf();
            self.depth = 0;
        } else if self.root.len() > ROOT_CAPACITY {
            self.root.grow(&mut work)?;
            self.depth += 1;
        }
        debug_assert!(work.blocks.is_empty(), "the plan and the change agree");
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
