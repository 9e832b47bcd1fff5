//! Walking a hash tree: to the leaf of a hash, and from leaf to leaf.
//!
//! Responsible for reading the index blocks. Not responsible for the entries of a leaf. Invariant: a walk ends on any input, because
//! it reads no block twice.
//!
//! Source: kernel documentation, "Hash Tree Directories". A tree has a root in block 0, at most one level of
//! nodes below it (more need `large_dir`), and leaves that are linear blocks.

use std::collections::HashSet;

use parext4_format::hash::DirHash;
use parext4_format::htree::{self, DxEntry};
use parext4_format::{FileBlock, FsBlock};

use super::dir::Dir;
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
    pub hash: DirHash,
    pub root: Frame,
    pub node: Option<Frame>,
    /// The first leaf that the walk read.
    first_leaf: Option<FsBlock>,
    /// All volume blocks that the walk read. Empty until it reads a second leaf.
    visited: HashSet<FsBlock>,
}

impl<'a> Walk<'a> {
    /// Descends to the first leaf that may contain names with hash `major`.
    pub(super) fn to(dir: Dir<'a>, major: impl FnOnce(&DirHash) -> u32) -> Result<Self> {
        let block = dir.read(FileBlock::ZERO)?;
        let root = dir.checked(htree::parse_root(&block.snapshot(), dir.has_tail()))?;
        let hash = dir.hash(root.hash_version)?;
        let major = major(&hash);
        let at = htree::search(&root.entries, major);
        let mut walk = Self {
            dir,
            hash,
            root: Frame { block, entries: root.entries, at, limit: root.limit },
            node: None,
            first_leaf: None,
            visited: HashSet::new(),
        };
        if root.indirect_levels > 0 {
            walk.node = Some(walk.load_node(|entries| htree::search(entries, major))?);
        }
        Ok(walk)
    }

    /// Reads the node of the root's current entry.
    fn load_node(&self, at: impl FnOnce(&[DxEntry]) -> usize) -> Result<Frame> {
        let block = self.read_below_root(self.root.target())?;
        let entries = self.dir.checked(htree::parse_node(&block.snapshot(), self.dir.has_tail()))?;
        let limit = htree::node_limit(self.dir.block_len(), self.dir.has_tail());
        Ok(Frame { block, at: at(&entries), entries, limit })
    }

    fn read_below_root(&self, n: FileBlock) -> Result<Arc<MetaBlock>> {
        if n == FileBlock::ZERO || n >= self.dir.end()? {
            return Err(self.dir.corrupt(format_args!("dx_entry: block: {n} is out of range")));
        }
        self.dir.read(n)
    }

    /// Returns the index block above the leaf.
    pub(super) fn bottom(&self) -> &Frame {
        self.node.as_ref().unwrap_or(&self.root)
    }

    /// Reads the leaf. Must be called once for each position of the walk.
    ///
    /// # Errors
    /// Corruption if the walk has read the block before, as an index block or as another leaf.
    pub(super) fn leaf(&mut self) -> Result<Arc<MetaBlock>> {
        let leaf = self.read_below_root(self.bottom().target())?;
        match self.first_leaf {
            Some(_) => self.meet(leaf.number())?,
            None if self.index_blocks().any(|block| block == leaf.number()) => {
                return Err(self.visited_twice(leaf.number()));
            }
            None => self.first_leaf = Some(leaf.number()),
        }
        Ok(leaf)
    }

    fn index_blocks(&self) -> impl Iterator<Item = FsBlock> {
        [Some(&self.root), self.node.as_ref()].into_iter().flatten().map(|frame| frame.block.number())
    }

    /// Records a block that the walk reads after its first leaf. Volume block numbers are compared, so the walk detects a block to which
    /// two index entries or two extents lead, and reads at most as many blocks as the volume has.
    fn meet(&mut self, block: FsBlock) -> Result<()> {
        if self.visited.is_empty() {
            let before: Vec<_> = self.index_blocks().chain(self.first_leaf).collect();
            self.visited.extend(before);
        }
        if self.visited.insert(block) { Ok(()) } else { Err(self.visited_twice(block)) }
    }

    fn visited_twice(&self, block: FsBlock) -> Error {
        self.dir.corrupt(format_args!("dx_entry: block: the tree leads to block {block} twice"))
    }

    /// Advances to the next leaf. Returns the hash at which it starts, with bit 0 set if names of that hash are also in the previous
    /// leaf; `None` at the end.
    pub(super) fn advance(&mut self) -> Result<Option<u32>> {
        let Some(node) = &mut self.node else { return Ok(self.root.next_entry()) };
        if let Some(hash) = node.next_entry() {
            return Ok(Some(hash));
        }
        let Some(hash) = self.root.next_entry() else { return Ok(None) };
        let node = self.load_node(|_| 0)?;
        self.meet(node.block.number())?;
        self.node = Some(node);
        Ok(Some(hash))
    }
}
