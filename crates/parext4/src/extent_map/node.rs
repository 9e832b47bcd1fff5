//! The nodes of the tree.
//!
//! Responsible for changing, splitting, removing and encoding nodes. Not responsible for lookups: readers use the
//! leaf index and the view. Invariant: a change adds at split_above the nodes that its plan counted. All functions require
//! the map's lock, exclusively to change a node.

mod shift;

use parext4_format::extent::{self, Extent, IndexEntry};
use parext4_format::{FileBlock, FsBlock};
use smallvec::SmallVec;

use super::ROOT_CAPACITY;
use super::change::Change;
use super::edit::Edit;
use super::leaf::{Leaf, Outcome, Pins};
use super::marks::Marks;
use crate::error::{Error, Result};
use crate::extent_map::leaf_index::{LeafGroup, LeafIndex};
use crate::fault::{Fault, guarded};
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
    /// Consecutive conversions that changed a leaf stored in the root.
    pub conversions: u32,
    pub pins: Pins,
}

/// A node of the tree. The root has no block; the inode stores it.
#[derive(Debug)]
pub(super) struct Node {
    block: Option<FsBlock>,
    /// The block to encode into when the transaction closes, if the node is dirty.
    dirty: Option<Arc<MetaBlock>>,
    /// True if a node below may be dirty.
    dirty_below: bool,
    /// The first file block mapped below; `0` if none. Cached, because a descent compares it in many children.
    first: u32,
    /// The leaves directly below, for the leaf index. `None` if they changed since they were last listed.
    listed: Option<Arc<LeafGroup>>,
    content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Leaf(Arc<Leaf>),
    /// Never empty, except temporarily in the root.
    Index(Vec<Node>),
}

/// The context of one change on its way through the nodes.
pub(super) struct ChangeContext<'e, 'a, 'r> {
    edit: &'e mut Edit<'a, 'r>,
    change: Change,
    /// The new contents of the leaf. `None` once the leaf has them.
    outcome: Option<Outcome>,
    kind: BlockKind,
    capacity: usize,
    /// Maximum number of entries with which a leaf that is a block does not split.
    split_above: usize,
    /// The blocks of the new nodes, as many as the plan counted.
    pub blocks: SmallVec<[FsBlock; 8]>,
    /// True if leaves were added or removed.
    pub reshaped: bool,
}

impl Content {
    fn first(&self) -> u32 {
        match self {
            Self::Leaf(leaf) => leaf.first(),
            Self::Index(children) => children.first().map_or(0, Node::first),
        }
    }
}

impl<'e, 'a, 'r> ChangeContext<'e, 'a, 'r> {
    pub(super) fn new(
        edit: &'e mut Edit<'a, 'r>,
        change: Change,
        outcome: Outcome,
        split_above: usize,
        tree: &Tree,
        blocks: SmallVec<[FsBlock; 8]>,
    ) -> Self {
        let (kind, capacity) = (tree.kind, tree.capacity);
        Self { edit, change, outcome: Some(outcome), kind, capacity, split_above, blocks, reshaped: false }
    }

    fn new_block(&mut self) -> Result<FsBlock> {
        self.blocks
            .pop()
            .ok_or_else(|| Error::corrupt("extent tree: a node splits that the plan did not count"))
    }

    /// Returns marks for a leaf of `len` entries that has room for `capacity`, or `None` if there is no room.
    fn arm(&self, len: usize, capacity: usize) -> Option<Arc<Marks>> {
        let room = self.change.entries_for_marks(capacity.saturating_sub(len));
        Marks::armed(self.edit.handle.tid(), room)
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

    /// Computes the new contents of the leaf that `change` concerns. Retires the leaf's marks if they must be folded.
    pub(super) fn outcome(&self, change: &Change, tid: u64) -> Outcome {
        let capacity = if self.depth == 0 { ROOT_CAPACITY } else { self.capacity };
        self.root.leaf_for(change.first()).outcome(change, tid, capacity, &self.pins)
    }

    /// Returns the number of new nodes below the root that the change needs, and the number of entries of the root
    /// before it grows. Leaves split if they have more than `split_above` entries.
    pub(super) fn plan(&self, change: &Change, outcome: &Outcome, split_above: usize) -> (u32, usize) {
        self.root.plan(change.first(), outcome.after.len(), self.capacity, split_above)
    }

    /// Encodes the root into an inode's `i_block` and each dirty node into its block.
    pub(super) fn encode(&mut self, i_block: &mut [u8; 60]) {
        debug_assert!(self.root.is_up_to_date(), "the leaf index or a key is out of date");
        self.root.encode_children();
        self.root.fold_marks();
        self.root.encode_into(i_block, self.depth);
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
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Returns true if the cached first block and the listed leaves of this node and each node below are up to date.
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
    fn leaf(&self) -> Option<(u32, Arc<Leaf>)> {
        match &self.content {
            Content::Leaf(leaf) => Some((self.first, Arc::clone(leaf))),
            Content::Index(_) => None,
        }
    }

    fn leaf_for(&self, block: u32) -> &Arc<Leaf> {
        match &self.content {
            Content::Leaf(leaf) => leaf,
            Content::Index(children) => children[child_for(children, block)].leaf_for(block),
        }
    }

    /// Returns the number of new nodes below this one if the leaf for `block` gets `len` entries, and the number of
    /// entries of this node before it splits.
    fn plan(&self, block: u32, len: usize, capacity: usize, split_above: usize) -> (u32, usize) {
        let Content::Index(children) = &self.content else { return (0, len) };
        let child = &children[child_for(children, block)];
        let (nodes, len) = child.plan(block, len, capacity, split_above);
        let splits = len > if matches!(child.content, Content::Leaf(_)) { split_above } else { capacity };
        let gone = usize::from(len == 0);
        (nodes + u32::from(splits), children.len() + usize::from(splits) - gone)
    }

    /// Registers the node's block with the handle. Does nothing for the root, which the inode registers.
    fn touch(&mut self, work: &ChangeContext<'_, '_, '_>) -> Result<()> {
        self.register(work.edit.handle, work.edit.cache, work.kind)
    }

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

    /// Applies the change to the leaf that it concerns. Returns the new right neighbour if this node split. The parent
    /// removes a node that became empty.
    pub(super) fn apply(&mut self, work: &mut ChangeContext<'_, '_, '_>) -> Result<Option<Self>> {
        match self.content {
            Content::Leaf(_) => self.apply_to_leaf(work),
            Content::Index(_) => self.apply_below(work),
        }
    }

    fn apply_to_leaf(&mut self, work: &mut ChangeContext<'_, '_, '_>) -> Result<Option<Self>> {
        let Content::Leaf(leaf) = &self.content else { return Ok(None) };
        let Some(Outcome { after: extents, marks }) = work.outcome.take() else { return Ok(None) };
        let capacity = if self.block.is_some() { work.capacity } else { ROOT_CAPACITY };
        if self.block.is_some() && extents.len() > work.split_above {
            self.touch(work)?;
            return self.split_leaf(work, extents).map(Some);
        }
        // With the old index, a reader would search the leaf before this one for the blocks before `first`.
        let first = extents.first().map_or(u32::MAX, |extent| extent.logical.get());
        work.reshaped |= first > self.first;
        if extents.is_empty() {
            // Readers of the old leaf hold the ranges that they read.
            self.replace(Content::Leaf(Leaf::new(extents, None)));
            return Ok(None);
        }
        let marks = marks.or_else(|| work.arm(extents.len(), capacity));
        leaf.store(extents, marks);
        self.first = first;
        self.touch(work)?;
        Ok(None)
    }

    /// Splits a leaf that has too many extents. The old leaf stays unchanged for readers of the old index.
    fn split_leaf(&mut self, work: &mut ChangeContext<'_, '_, '_>, mut extents: Vec<Extent>) -> Result<Self> {
        let appending = extents.last().is_some_and(|last| last.end() == work.change.end);
        let right = extents.split_off(split_at(extents.len(), appending, work.capacity));
        let [left, right] = [extents, right].map(|extents| {
            let marks = work.arm(extents.len(), work.capacity);
            Content::Leaf(Leaf::new(extents, marks))
        });
        self.replace(left);
        self.new_right(work, right)
    }

    fn replace(&mut self, content: Content) {
        self.first = content.first();
        self.content = content;
    }

    fn apply_below(&mut self, work: &mut ChangeContext<'_, '_, '_>) -> Result<Option<Self>> {
        let Content::Index(children) = &mut self.content else { return Ok(None) };
        self.dirty_below = true;
        let at = child_for(children, work.change.first());
        let first = children[at].first();
        let right = children[at].apply(work)?;
        // An index entry changes only if its child's first block changes.
        let changed = right.is_some() || children[at].is_empty() || children[at].first() != first;
        if children[at].is_empty() {
            work.reshaped = true;
            work.edit.freed.extend(children.remove(at).block);
        }
        if let Some(right) = right {
            children.insert(at + 1, right);
        }
        let len = children.len();
        self.first = children.first().map_or(0, Self::first);
        if work.reshaped {
            self.listed = None;
        }
        if changed && len > 0 {
            self.touch(work)?;
        }
        if self.block.is_some() && len > work.capacity { self.split_index(work).map(Some) } else { Ok(None) }
    }

    fn split_index(&mut self, work: &mut ChangeContext<'_, '_, '_>) -> Result<Self> {
        let appending = self.end() == work.change.end;
        let Content::Index(children) = &mut self.content else {
            return Err(Error::corrupt("extent tree: a leaf among its index nodes"));
        };
        let right = children.split_off(split_at(children.len(), appending, work.capacity));
        self.listed = None;
        self.new_right(work, Content::Index(right))
    }

    fn new_right(&self, work: &mut ChangeContext<'_, '_, '_>, content: Content) -> Result<Self> {
        work.reshaped = true;
        let mut right = Self::new(Some(work.new_block()?), content);
        right.dirty_below = self.dirty_below;
        right.touch(work)?;
        Ok(right)
    }

    /// Moves the root's entries into a new block one level below.
    pub(super) fn grow(&mut self, work: &mut ChangeContext<'_, '_, '_>) -> Result<()> {
        let block = work.new_block()?;
        let content = std::mem::replace(&mut self.content, Content::Index(Vec::new()));
        if let Content::Leaf(leaf) = &content {
            // A leaf in a block has room for marks.
            let extents = leaf.folded();
            let marks = work.arm(extents.len(), work.capacity);
            leaf.store(extents, marks);
        }
        let mut child = Self::new(Some(block), content);
        child.dirty_below = self.dirty_below;
        child.touch(work)?;
        self.content = Content::Index(vec![child]);
        self.listed = None;
        self.dirty_below = true;
        work.reshaped = true;
        Ok(())
    }

    /// Moves the only remaining leaf into the root if it fits. Returns true if it did. Must be called on the root.
    pub(super) fn pull_up(&mut self, edit: &mut Edit<'_, '_>) -> bool {
        let Content::Index(children) = &mut self.content else { return false };
        let [only] = children.as_mut_slice() else { return false };
        let Content::Leaf(leaf) = &only.content else { return false };
        if leaf.extents().len() > ROOT_CAPACITY {
            return false;
        }
        let extents = leaf.folded();
        if extents.len() > ROOT_CAPACITY {
            return false;
        }
        edit.freed.extend(only.block);
        self.content = Content::Leaf(Leaf::new(extents, None));
        self.listed = None;
        true
    }

    /// Encodes the dirty nodes below this one.
    fn encode_children(&mut self) {
        let Content::Index(children) = &mut self.content else { return };
        if !std::mem::take(&mut self.dirty_below) {
            return;
        }
        for child in children {
            child.encode_children();
            if let Some(meta) = child.dirty.take() {
                let depth = child.height();
                child.fold_marks();
                meta.change(|bytes| child.encode_into(bytes, depth));
            }
        }
    }

    /// Folds a leaf's marks into its extents, because its transaction closes.
    fn fold_marks(&self) {
        let Content::Leaf(leaf) = &self.content else { return };
        if !leaf.marked().is_empty() {
            guarded!(Fault::EncodeUnfolded, leaf.store(leaf.folded(), None));
        }
    }

    /// Returns true if this node has at split_above `own` entries and each node below at split_above `below`.
    #[cfg(shuttle)]
    pub(super) fn fits(&self, own: usize, below: usize) -> bool {
        let children = match &self.content {
            Content::Leaf(_) => &[][..],
            Content::Index(children) => children,
        };
        self.len() <= own && children.iter().all(|child| child.fits(below, below))
    }

    fn height(&self) -> u16 {
        match &self.content {
            Content::Leaf(_) => 0,
            Content::Index(children) => children.first().map_or(0, |child| child.height() + 1),
        }
    }

    fn encode_into(&self, out: &mut [u8], depth: u16) {
        match &self.content {
            Content::Leaf(leaf) => extent::encode_leaf(out, &leaf.extents()),
            Content::Index(children) => {
                let entries: Vec<IndexEntry> = children
                    .iter()
                    .filter_map(|child| {
                        child
                            .block
                            .map(|block| IndexEntry { logical: FileBlock(child.first()), child: block })
                    })
                    .collect();
                extent::encode_index(out, depth, &entries);
            }
        }
    }
}

/// Returns the index at which a node of `len` entries splits. Appending leaves the left node full.
fn split_at(len: usize, appending: bool, capacity: usize) -> usize {
    if appending { (len - 1).min(capacity) } else { len / 2 }
}

/// Returns the child that maps or would map `block`: the last child that starts at or before it, or the first child.
fn child_for(children: &[Node], block: u32) -> usize {
    children.partition_point(|child| child.first() <= block).saturating_sub(1)
}
