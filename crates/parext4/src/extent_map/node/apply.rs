//! Changing, splitting, adding and removing nodes.
//!
//! This module applies one change to its leaf and to the nodes above. [`Tree::outcome`] computes
//! the new contents of the leaf. Invariant: a change adds at most the nodes that its plan counted.

use parext4_format::extent::Extent;
use parext4_format::{FileBlock, FsBlock};
use smallvec::SmallVec;

use super::{Content, Node, Tree, child_for};
use crate::error::{Error, Result};
use crate::extent_map::ROOT_CAPACITY;
use crate::extent_map::change::Change;
use crate::extent_map::edit::Edit;
use crate::extent_map::leaf::{Leaf, Outcome};
use crate::extent_map::marks::Marks;
use crate::meta::BlockKind;
use crate::sync::Arc;

/// The context of one change while it is applied to the nodes.
pub(in crate::extent_map) struct ChangeContext<'e, 'a, 'r> {
    edit: &'e mut Edit<'a, 'r>,
    change: Change,
    /// The new contents of the leaf. `None` once they are stored in the leaf.
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

impl<'e, 'a, 'r> ChangeContext<'e, 'a, 'r> {
    pub(in crate::extent_map) fn new(
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

    /// Returns marks for a leaf of `len` entries that has room for `capacity`, or `None` if there
    /// is no room.
    fn arm(&self, len: usize, capacity: usize) -> Option<Arc<Marks>> {
        let room = self.change.entries_for_marks(capacity.saturating_sub(len));
        Marks::armed(self.edit.handle.tid(), room)
    }
}

impl Node {
    /// Registers the node's block with the handle. Does nothing for the root, which the inode
    /// registers.
    fn touch(&mut self, work: &ChangeContext<'_, '_, '_>) -> Result<()> {
        self.register(work.edit.handle, work.edit.cache, work.kind)
    }

    /// Applies the change to the leaf that it concerns. Returns the new right neighbour if this
    /// node split. The parent removes a node that became empty.
    pub(in crate::extent_map) fn apply(
        &mut self,
        work: &mut ChangeContext<'_, '_, '_>,
    ) -> Result<Option<Self>> {
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
        // With the old index, a reader would search for the blocks before `first` in the previous
        // leaf.
        let first = extents.first().map_or(FileBlock::MAX, |extent| extent.logical);
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

    /// Splits a leaf that has too many extents. The old leaf stays unchanged for readers of the old
    /// index.
    fn split_leaf(&mut self, work: &mut ChangeContext<'_, '_, '_>, mut extents: Vec<Extent>) -> Result<Self> {
        let appending = extents.last().is_some_and(|last| last.end() == work.change.blocks.end());
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
        let at = child_for(children, work.change.blocks.start());
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
        self.first = children.first().map_or(FileBlock::ZERO, Self::first);
        if work.reshaped {
            self.listed = None;
        }
        if changed && len > 0 {
            self.touch(work)?;
        }
        if self.block.is_some() && len > work.capacity { self.split_index(work).map(Some) } else { Ok(None) }
    }

    fn split_index(&mut self, work: &mut ChangeContext<'_, '_, '_>) -> Result<Self> {
        let appending = self.end() == work.change.blocks.end();
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
    pub(in crate::extent_map) fn grow(&mut self, work: &mut ChangeContext<'_, '_, '_>) -> Result<()> {
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

    /// Moves the only remaining leaf into the root if it fits. Returns true if it did. Must be
    /// called on the root.
    pub(in crate::extent_map) fn pull_up(&mut self, edit: &mut Edit<'_, '_>) -> bool {
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
}

/// Returns the index at which a node of `len` entries splits. Appending leaves the left node full.
fn split_at(len: usize, appending: bool, capacity: usize) -> usize {
    if appending { (len - 1).min(capacity) } else { len / 2 }
}
