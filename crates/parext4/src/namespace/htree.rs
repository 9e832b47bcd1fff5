//! Walking a hash tree: down to the leaf of a hash, and on to the next leaf.
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

/// An index block and the entry that the walk went through.
#[derive(Debug)]
pub(super) struct Frame {
    pub block: Arc<MetaBlock>,
    /// At least one; the first one's hash is 0.
    pub entries: Vec<DxEntry>,
    pub at: usize,
    /// How many entries fit.
    pub limit: usize,
}

impl Frame {
    /// The block that the walk went to.
    fn target(&self) -> FileBlock {
        self.entries.get(self.at).map_or(FileBlock(0), |entry| entry.block)
    }

    /// Goes to the next entry and returns its hash.
    fn step(&mut self) -> Option<u32> {
        let next = self.entries.get(self.at + 1)?;
        self.at += 1;
        Some(next.hash)
    }
}

/// A place in a hash tree: one leaf, and the index entries on the way to it.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    dir: Dir<'a>,
    pub hash: DirHash,
    pub root: Frame,
    pub node: Option<Frame>,
    /// The first leaf that the walk read.
    first_leaf: Option<FsBlock>,
    /// All blocks of the volume that the walk read; empty until it reads a second leaf.
    met: HashSet<FsBlock>,
}

impl<'a> Walk<'a> {
    /// Goes to the first leaf that may hold the names for which `major` gives the hash.
    pub(super) fn to(dir: Dir<'a>, major: impl FnOnce(&DirHash) -> u32) -> Result<Self> {
        let block = dir.read(0)?;
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
            met: HashSet::new(),
        };
        if root.indirect_levels > 0 {
            walk.node = Some(walk.load_node(|entries| htree::search(entries, major))?);
        }
        Ok(walk)
    }

    /// The node that the root's current entry names.
    fn load_node(&self, at: impl FnOnce(&[DxEntry]) -> usize) -> Result<Frame> {
        let block = self.read_below_root(self.root.target())?;
        let entries = self.dir.checked(htree::parse_node(&block.snapshot(), self.dir.has_tail()))?;
        let limit = htree::node_limit(self.dir.block_len(), self.dir.has_tail());
        Ok(Frame { block, at: at(&entries), entries, limit })
    }

    fn read_below_root(&self, n: FileBlock) -> Result<Arc<MetaBlock>> {
        if n.get() == 0 || n.get() >= self.dir.blocks()? {
            return Err(self.dir.corrupt(format_args!("dx_entry: block: {n} is out of range")));
        }
        self.dir.read(n.get())
    }

    /// The index block above the leaf.
    pub(super) fn bottom(&self) -> &Frame {
        self.node.as_ref().unwrap_or(&self.root)
    }

    /// Reads the leaf, once for each position of the walk.
    ///
    /// # Errors
    /// Corruption if the walk has read the block before, as an index block or as another leaf.
    pub(super) fn leaf(&mut self) -> Result<Arc<MetaBlock>> {
        let leaf = self.read_below_root(self.bottom().target())?;
        match self.first_leaf {
            Some(_) => self.meet(leaf.number())?,
            None if self.index_blocks().any(|block| block == leaf.number()) => {
                return Err(self.met_twice(leaf.number()));
            }
            None => self.first_leaf = Some(leaf.number()),
        }
        Ok(leaf)
    }

    fn index_blocks(&self) -> impl Iterator<Item = FsBlock> {
        [Some(&self.root), self.node.as_ref()].into_iter().flatten().map(|frame| frame.block.number())
    }

    /// Notes a block that the walk reads after its first leaf. It compares the volume's block numbers, so a walk finds
    /// a block that two index entries or two extents lead to, and reads at most as many blocks as the volume has.
    fn meet(&mut self, block: FsBlock) -> Result<()> {
        if self.met.is_empty() {
            let before: Vec<_> = self.index_blocks().chain(self.first_leaf).collect();
            self.met.extend(before);
        }
        if self.met.insert(block) { Ok(()) } else { Err(self.met_twice(block)) }
    }

    fn met_twice(&self, block: FsBlock) -> Error {
        self.dir.corrupt(format_args!("dx_entry: block: the tree leads to block {block} twice"))
    }

    /// Goes to the next leaf, and returns the hash at which it starts: with bit 0 set if names of that hash are
    /// also in the leaf before. `None` at the end.
    pub(super) fn advance(&mut self) -> Result<Option<u32>> {
        let Some(node) = &mut self.node else { return Ok(self.root.step()) };
        if let Some(hash) = node.step() {
            return Ok(Some(hash));
        }
        let Some(hash) = self.root.step() else { return Ok(None) };
        let node = self.load_node(|_| 0)?;
        self.meet(node.block.number())?;
        self.node = Some(node);
        Ok(Some(hash))
    }
}
