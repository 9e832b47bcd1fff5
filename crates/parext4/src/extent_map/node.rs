//! The nodes of the tree.
//!
//! This module [changes](apply), [shifts](shift) and [encodes](encode) nodes. Lookups use the leaf
//! index and the view. All functions require the map's lock, exclusively to change a node.

mod apply;
mod encode;
mod shift;

use parext4_format::extent::Extent;
use parext4_format::{FileBlock, FsBlock};

pub(super) use apply::ChangeContext;

use super::ROOT_CAPACITY;
use super::change::Change;
use super::leaf::{Leaf, Outcome, Pins};
use crate::error::Result;
use crate::extent_map::leaf_index::{LeafGroup, LeafIndex};
use crate::journal::Handle;
use crate::meta::{BlockKind, MetaBlock, MetaCache};
use crate::sync::Arc;

/// The tree of nodes, guarded by the map's lock.
#[derive(Debug)]
pub(super) struct Tree {
    pub root: Node,
    pub depth: u16,
    /// Maximum number of entries in a node that is a block.
    pub capacity: usize,
    kind: BlockKind,
    /// Number of consecutive conversions that changed a leaf stored in the root.
    pub conversions: u32,
    pub pins: Pins,
}

/// A node of the tree. The root has no block; the inode stores it.
#[derive(Debug)]
pub(super) struct Node {
    block: Option<FsBlock>,
    /// The block for the next encoding of the node, at the close of the transaction; `None` if the
    /// node is clean.
    dirty: Option<Arc<MetaBlock>>,
    /// True if a node below may be dirty.
    dirty_below: bool,
    /// The first file block mapped below; `0` if none. It is cached, because a descent compares it
    /// in many children.
    first: FileBlock,
    /// The leaves directly below, for the leaf index. `None` if the leaves changed since they were
    /// last listed.
    listed: Option<Arc<LeafGroup>>,
    content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Leaf(Arc<Leaf>),
    /// The children. Never empty, except temporarily in the root.
    Index(Vec<Node>),
}

impl Content {
    fn first(&self) -> FileBlock {
        match self {
            Self::Leaf(leaf) => leaf.first(),
            Self::Index(children) => children.first().map_or(FileBlock::ZERO, Node::first),
        }
    }
}

impl Tree {
    pub(super) fn new(root: Node, depth: u16, capacity: usize, kind: BlockKind) -> Self {
        Self { root, depth, capacity, kind, conversions: 0, pins: Pins::default() }
    }

    /// Returns the index of all leaves.
    pub(super) fn leaf_index(&mut self) -> LeafIndex {
        let mut groups = Vec::new();
        self.root.collect(&mut groups);
        LeafIndex::new(groups, self.depth)
    }

    /// Computes the new contents of the leaf that `change` concerns. Retires the leaf's marks if
    /// they must be folded.
    pub(super) fn outcome(&self, change: &Change, tid: u64) -> Outcome {
        let capacity = if self.depth == 0 { ROOT_CAPACITY } else { self.capacity };
        self.root.leaf_for(change.blocks.start()).outcome(change, tid, capacity, &self.pins)
    }

    /// Returns the number of new nodes below the root that the change needs, and the number of
    /// entries of the root before it grows. Leaves split if they have more than `split_above`
    /// entries.
    pub(super) fn plan(&self, change: &Change, outcome: &Outcome, split_above: usize) -> (u32, usize) {
        self.root.plan(change.blocks.start(), outcome.after.len(), self.capacity, split_above)
    }
}

impl Node {
    pub(super) fn empty_root() -> Self {
        Self::new(None, Content::Leaf(Leaf::new(Vec::new(), None)))
    }

    pub(super) fn new(block: Option<FsBlock>, content: Content) -> Self {
        let first = content.first();
        Self { block, dirty: None, dirty_below: false, first, listed: None, content }
    }

    pub(super) fn len(&self) -> usize {
        match &self.content {
            Content::Leaf(leaf) => leaf.extents().len(),
            Content::Index(children) => children.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first file block mapped below; 0 for an empty root.
    pub(super) fn first(&self) -> FileBlock {
        self.first
    }

    /// Returns true if the cached first block and the listed leaves of this node and each node
    /// below are up to date.
    fn is_up_to_date(&self) -> bool {
        let children = match &self.content {
            Content::Leaf(_) => &[][..],
            Content::Index(children) => children,
        };
        let lists = |group: &Arc<LeafGroup>| group.lists(children.iter().filter_map(Self::leaf));
        let listed = self.listed.as_ref().is_none_or(lists);
        self.first == self.content.first() && listed && children.iter().all(Self::is_up_to_date)
    }

    /// Returns the end of the last extent below; 0 for an empty root.
    fn end(&self) -> u64 {
        match &self.content {
            Content::Leaf(leaf) => leaf.extents().last().map_or(0, Extent::end),
            Content::Index(children) => children.last().map_or(0, Self::end),
        }
    }

    fn collect(&mut self, groups: &mut Vec<Arc<LeafGroup>>) {
        match &mut self.content {
            Content::Index(children) if children.iter().all(|child| child.leaf().is_none()) => {
                children.iter_mut().for_each(|child| child.collect(groups));
            }
            Content::Index(children) => {
                let list = || LeafGroup::new(children.iter().filter_map(Self::leaf));
                groups.push(Arc::clone(self.listed.get_or_insert_with(list)));
            }
            Content::Leaf(_) => groups.push(LeafGroup::new(self.leaf().into_iter())),
        }
    }

    /// Returns the leaf and its first file block, or `None` if this is an index node.
    fn leaf(&self) -> Option<(FileBlock, Arc<Leaf>)> {
        match &self.content {
            Content::Leaf(leaf) => Some((self.first, Arc::clone(leaf))),
            Content::Index(_) => None,
        }
    }

    fn leaf_for(&self, block: FileBlock) -> &Arc<Leaf> {
        match &self.content {
            Content::Leaf(leaf) => leaf,
            Content::Index(children) => children[child_for(children, block)].leaf_for(block),
        }
    }

    /// Returns the number of new nodes below this one if the leaf for `block` gets `len` entries,
    /// and the number of entries of this node before it splits.
    fn plan(&self, block: FileBlock, len: usize, capacity: usize, split_above: usize) -> (u32, usize) {
        let Content::Index(children) = &self.content else { return (0, len) };
        let child = &children[child_for(children, block)];
        let (nodes, len) = child.plan(block, len, capacity, split_above);
        let splits = len > if matches!(child.content, Content::Leaf(_)) { split_above } else { capacity };
        let gone = usize::from(len == 0);
        (nodes + u32::from(splits), children.len() + usize::from(splits) - gone)
    }

    /// Registers the node's block with the handle. Does nothing for the root, which the inode
    /// registers.
    fn register(&mut self, handle: &Handle<'_>, cache: &MetaCache, kind: BlockKind) -> Result<()> {
        if let Some(block) = self.block {
            let meta = match self.dirty.take() {
                Some(meta) => meta,
                None => cache.create(block, kind)?,
            };
            handle.register(&meta);
            self.dirty = Some(meta);
        }
        Ok(())
    }

    /// Returns true if this node has at most `own` entries and each node below at most `below`.
    #[cfg(shuttle)]
    pub(super) fn fits(&self, own: usize, below: usize) -> bool {
        let children = match &self.content {
            Content::Leaf(_) => &[][..],
            Content::Index(children) => children,
        };
        self.len() <= own && children.iter().all(|child| child.fits(below, below))
    }
}

/// Returns the child that maps or would map `block`: the last child that starts at or before it, or
/// the first child.
fn child_for(children: &[Node], block: FileBlock) -> usize {
    children.partition_point(|child| child.first() <= block).saturating_sub(1)
}
