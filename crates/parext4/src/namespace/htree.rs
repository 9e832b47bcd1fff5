//! Walking a hash tree: to the leaf of a hash, and from leaf to leaf.
//!
//! Responsible for reading the index blocks. Not responsible for the entries of a leaf. Invariant:
//! a walk ends on any input, because it reads no block twice.
//!
//! Source: kernel documentation, "Hash Tree Directories". A tree has a root in block 0, at most one
//! level of nodes below it (two with `large_dir`), and leaves that are linear blocks.

use std::collections::HashSet;
use std::iter;

use parext4_format::htree::{self, DxEntry};
use parext4_format::{FileBlock, FsBlock};
use smallvec::SmallVec;

use super::dir::Dir;
use super::names::NameHash;
use crate::error::{Error, Result};
use crate::meta::MetaBlock;
use crate::sync::Arc;

/// An index block and the current entry of the walk in it.
#[derive(Debug)]
pub(super) struct Frame {
    pub block: Arc<MetaBlock>,
    /// At least one entry. The hash of the first one is 0.
    pub entries: Vec<DxEntry>,
    pub at: usize,
    /// Maximum number of entries.
    pub limit: usize,
}

impl Frame {
    /// Returns the block of the current entry.
    fn target(&self) -> FileBlock {
        self.entries.get(self.at).map_or(FileBlock(0), |entry| entry.block)
    }

    /// Advances to the next entry. Returns its hash, or `None` at the end.
    fn next_entry(&mut self) -> Option<u32> {
        let next = self.entries.get(self.at + 1)?;
        self.at += 1;
        Some(next.hash)
    }
}

/// A position in a hash tree: a leaf, and the index entries on the path to it.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    dir: Dir<'a>,
    pub hash: NameHash,
    pub root: Frame,
    /// The nodes between the root and the leaf, from top to bottom.
    pub nodes: SmallVec<[Frame; 2]>,
    /// The number of levels of nodes.
    levels: usize,
    /// The first leaf that the walk read.
    first_leaf: Option<FsBlock>,
    /// All volume blocks that the walk read. Empty until it reads a second leaf.
    visited: HashSet<FsBlock>,
}

impl<'a> Walk<'a> {
    /// Descends to the first leaf that may contain names with hash `major`.
    pub(super) fn to(dir: Dir<'a>, major: impl FnOnce(&NameHash) -> u32) -> Result<Self> {
        let block = dir.read(FileBlock::ZERO)?;
        let root = dir.root(&block.snapshot())?;
        let hash = dir.hash(root.hash_version)?;
        let major = major(&hash);
        let at = htree::search(&root.entries, major);
        let mut walk = Self {
            dir,
            hash,
            root: Frame { block, entries: root.entries, at, limit: root.limit },
            nodes: SmallVec::new(),
            levels: root.indirect_levels.into(),
            first_leaf: None,
            visited: HashSet::new(),
        };
        walk.descend(|entries| htree::search(entries, major))?;
        Ok(walk)
    }

    /// Reads the nodes from the current entry of the lowest index block down to the leaf. `at`
    /// chooses the entry of each.
    fn descend(&mut self, at: impl Fn(&[DxEntry]) -> usize) -> Result<()> {
        let limit = htree::node_limit(self.dir.block_len(), self.dir.has_tail());
        while self.nodes.len() < self.levels {
            let block = self.read_below_root(self.bottom().target())?;
            self.meet(block.number())?;
            let entries = self.dir.checked(htree::parse_node(&block.snapshot(), self.dir.has_tail()))?;
            self.nodes.push(Frame { block, at: at(&entries), entries, limit });
        }
        Ok(())
    }

    fn read_below_root(&self, n: FileBlock) -> Result<Arc<MetaBlock>> {
        if n == FileBlock::ZERO || n >= self.dir.end()? {
            return Err(self.dir.corrupt(format_args!("dx_entry: block: {n} is out of range")));
        }
        self.dir.read(n)
    }

    /// Returns the index block above the leaf.
    pub(super) fn bottom(&self) -> &Frame {
        self.nodes.last().unwrap_or(&self.root)
    }

    /// Reads the leaf. Must be called once for each position of the walk.
    ///
    /// # Errors
    /// Corruption if the walk has read the block before, as an index block or as another leaf.
    pub(super) fn leaf(&mut self) -> Result<Arc<MetaBlock>> {
        let leaf = self.read_below_root(self.bottom().target())?;
        self.meet(leaf.number())?;
        self.first_leaf.get_or_insert(leaf.number());
        Ok(leaf)
    }

    /// Returns the hash that lists and orders the names of the leaf. A name that is misplaced there
    /// gets the nearest hash that leads to the leaf.
    pub(super) fn leaf_hash(&self) -> NameHash {
        if !self.dir.may_have_misplaced_names() {
            return self.hash;
        }
        let frames = || self.nodes.iter().rev().chain(iter::once(&self.root));
        let entry = |frame: &Frame, at: usize| frame.entries.get(at).map(|entry| entry.hash);
        let first = frames().find(|frame| frame.at > 0).and_then(|frame| entry(frame, frame.at));
        let next = frames().find_map(|frame| entry(frame, frame.at + 1));
        // Hashes of names are even. Bit 0 in the index says that the leaf before has names of that
        // hash, too.
        let lowest = first.unwrap_or(0) & !1;
        let highest = next.map_or(u32::MAX, |next| next.saturating_sub(2 - (next & 1)));
        self.hash.within((lowest, highest))
    }

    fn index_blocks(&self) -> impl Iterator<Item = FsBlock> {
        iter::once(&self.root).chain(&self.nodes).map(|frame| frame.block.number())
    }

    /// Records a block that the walk reads. Volume block numbers are compared, so the walk detects
    /// a block to which two index entries or two extents lead, and reads at most as many blocks as
    /// the volume has.
    fn meet(&mut self, block: FsBlock) -> Result<()> {
        // Up to the first leaf, the path has all blocks that were read.
        let is_new = match self.first_leaf {
            None => self.index_blocks().all(|other| other != block),
            Some(_) => {
                self.record_path();
                self.visited.insert(block)
            }
        };
        if is_new { Ok(()) } else { Err(self.visited_twice(block)) }
    }

    /// Begins to record the blocks that the walk reads. Until then it has read the blocks of the
    /// path and the first leaf.
    fn record_path(&mut self) {
        if self.visited.is_empty() {
            let before: SmallVec<[_; 4]> = self.index_blocks().chain(self.first_leaf).collect();
            self.visited.extend(before);
        }
    }

    fn visited_twice(&self, block: FsBlock) -> Error {
        self.dir.corrupt(format_args!("dx_entry: block: the tree leads to block {block} twice"))
    }

    /// Advances to the next leaf. Returns the hash at which it starts, with bit 0 set if names of
    /// that hash are also in the previous leaf; `None` at the end.
    pub(super) fn advance(&mut self) -> Result<Option<u32>> {
        loop {
            let bottom = self.nodes.last_mut().unwrap_or(&mut self.root);
            if let Some(hash) = bottom.next_entry() {
                self.descend(|_| 0)?;
                return Ok(Some(hash));
            }
            // The node is left, but stays among the blocks that were read.
            self.record_path();
            if self.nodes.pop().is_none() {
                return Ok(None);
            }
        }
    }
}
