//! The nodes of the tree: searching, changing, encoding.

use parext4_format::extent::{self, Extent, IndexEntry};
use parext4_format::{FileBlock, FsBlock};
use smallvec::SmallVec;

use super::leaf::splice;
use super::{Change, Edit, ROOT_CAPACITY};
use crate::error::{Error, Result};
use crate::meta::{BlockKind, MetaBlock};
use crate::sync::Arc;

/// A node of the tree. The root has no block of its own; the inode holds it.
#[derive(Debug)]
pub(super) struct Node {
    block: Option<FsBlock>,
    /// The block to encode into at commit, while the node is dirty.
    dirty: Option<Arc<MetaBlock>>,
    /// Some node below is dirty.
    dirty_below: bool,
    content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Leaf(Vec<Extent>),
    /// Never empty, except in the root for a moment.
    Index(Vec<Node>),
}

/// What a change works with on its way through the nodes.
pub(super) struct Work<'e, 'a, 'r> {
    pub edit: &'e mut Edit<'a, 'r>,
    pub change: Change,
    pub kind: BlockKind,
    pub capacity: usize,
    /// Blocks for exactly the new nodes that the plan told of.
    pub blocks: SmallVec<[FsBlock; 8]>,
}

impl Work<'_, '_, '_> {
    fn new_block(&mut self) -> Result<FsBlock> {
        self.blocks.pop().ok_or_else(|| Error::corrupt("extent tree: a node splits that was not planned to"))
    }
}

impl Node {
    pub(super) fn empty_root() -> Self {
        Self::new(None, Content::Leaf(Vec::new()))
    }

    pub(super) fn new(block: Option<FsBlock>, content: Content) -> Self {
        Self { block, dirty: None, dirty_below: false, content }
    }

    pub(super) fn len(&self) -> usize {
        match &self.content {
            Content::Leaf(extents) => extents.len(),
            Content::Index(children) => children.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first file block mapped below; an empty root maps none.
    pub(super) fn first(&self) -> u32 {
        match &self.content {
            Content::Leaf(extents) => extents.first().map_or(0, |extent| extent.logical.get()),
            Content::Index(children) => children.first().map_or(0, Self::first),
        }
    }

    pub(super) fn last(&self) -> Option<Extent> {
        match &self.content {
            Content::Leaf(extents) => extents.last().copied(),
            Content::Index(children) => children.last()?.last(),
        }
    }

    /// The first extent that ends behind `block`.
    pub(super) fn extent_from(&self, block: u32) -> Option<Extent> {
        match &self.content {
            Content::Leaf(extents) => {
                let at = extents.partition_point(|extent| extent.end() <= u64::from(block));
                extents.get(at).copied()
            }
            Content::Index(children) => {
                let at = child_for(children, block);
                // The child may end before `block`; then it is the next one's first.
                children[at..].iter().take(2).find_map(|child| child.extent_from(block))
            }
        }
    }

    /// The last extent that starts before `block`.
    pub(super) fn extent_before(&self, block: u32) -> Option<Extent> {
        match &self.content {
            Content::Leaf(extents) => {
                let at = extents.partition_point(|extent| extent.logical.get() < block);
                extents.get(at.checked_sub(1)?).copied()
            }
            Content::Index(children) => {
                let at = children.partition_point(|child| child.first() < block);
                children.get(at.checked_sub(1)?)?.extent_before(block)
            }
        }
    }

    /// What [`apply`](Self::apply) will come to: new nodes below this one, and this node's entries before
    /// it splits.
    pub(super) fn plan(&self, change: &Change, capacity: usize) -> (u32, usize) {
        match &self.content {
            Content::Leaf(extents) => (0, splice(extents, change).len_after(extents.len())),
            Content::Index(children) => {
                let child = &children[child_for(children, change.first())];
                let (nodes, len) = child.plan(change, capacity);
                let splits = len > capacity;
                let gone = usize::from(len == 0);
                (nodes + u32::from(splits), children.len() + usize::from(splits) - gone)
            }
        }
    }

    /// Registers the node's block. The root goes with its inode.
    fn touch(&mut self, work: &Work<'_, '_, '_>) -> Result<()> {
        if let Some(block) = self.block {
            let meta = match self.dirty.take() {
                Some(meta) => meta,
                None => work.edit.cache.create(block, work.kind)?,
            };
            work.edit.handle.register(&meta);
            self.dirty = Some(meta);
        }
        Ok(())
    }

    /// Carries the change out in the one leaf that it concerns. Returns the new right neighbour if this node
    /// had to split. A node that has become empty is its parent's to remove.
    pub(super) fn apply(&mut self, work: &mut Work<'_, '_, '_>) -> Result<Option<Self>> {
        let changed = match &mut self.content {
            Content::Leaf(extents) => {
                let splice = splice(extents, &work.change);
                extents.splice(splice.range, splice.extents);
                true
            }
            Content::Index(children) => {
                self.dirty_below = true;
                let at = child_for(children, work.change.first());
                let first = children[at].first();
                let right = children[at].apply(work)?;
                // An index entry changes only with its child's first block.
                let changed = right.is_some() || children[at].is_empty() || children[at].first() != first;
                if children[at].is_empty() {
                    work.edit.freed.extend(children.remove(at).block);
                }
                if let Some(right) = right {
                    children.insert(at + 1, right);
                }
                changed
            }
        };
        if changed && !self.is_empty() {
            self.touch(work)?;
        }
        if self.block.is_some() && self.len() > work.capacity { self.split(work).map(Some) } else { Ok(None) }
    }

    fn split(&mut self, work: &mut Work<'_, '_, '_>) -> Result<Self> {
        let block = work.new_block()?;
        // A file that grows at its end leaves full nodes behind.
        let appending = self.last().is_some_and(|last| last.end() == work.change.end);
        let at = if appending { (self.len() - 1).min(work.capacity) } else { self.len() / 2 };
        let content = match &mut self.content {
            Content::Leaf(extents) => Content::Leaf(extents.split_off(at)),
            Content::Index(children) => Content::Index(children.split_off(at)),
        };
        let mut right = Self::new(Some(block), content);
        right.dirty_below = self.dirty_below;
        right.touch(work)?;
        Ok(right)
    }

    /// Moves the root's entries one level down, into a block.
    pub(super) fn grow(&mut self, work: &mut Work<'_, '_, '_>) -> Result<()> {
        let block = work.new_block()?;
        let content = std::mem::replace(&mut self.content, Content::Index(Vec::new()));
        let mut child = Self::new(Some(block), content);
        child.dirty_below = self.dirty_below;
        child.touch(work)?;
        self.content = Content::Index(vec![child]);
        self.dirty_below = true;
        Ok(())
    }

    pub(super) fn make_leaf(&mut self) {
        self.content = Content::Leaf(Vec::new());
    }

    /// If all that is left is one leaf that fits the root, puts it there. For the root.
    pub(super) fn pull_up(&mut self, edit: &mut Edit<'_, '_>) -> bool {
        let Content::Index(children) = &mut self.content else { return false };
        let [only] = children.as_mut_slice() else { return false };
        let Content::Leaf(extents) = &mut only.content else { return false };
        if extents.len() > ROOT_CAPACITY {
            return false;
        }
        let extents = std::mem::take(extents);
        edit.freed.extend(only.block);
        self.content = Content::Leaf(extents);
        true
    }

    /// Encodes the dirty nodes below this one.
    pub(super) fn encode_children(&mut self) {
        let Content::Index(children) = &mut self.content else { return };
        if !std::mem::take(&mut self.dirty_below) {
            return;
        }
        for child in children {
            child.encode_children();
            if let Some(meta) = child.dirty.take() {
                let depth = child.height();
                meta.change(|bytes| child.encode_into(bytes, depth));
            }
        }
    }

    /// The nodes below this one.
    pub(super) fn nodes(&self) -> usize {
        match &self.content {
            Content::Leaf(_) => 0,
            Content::Index(children) if children.first().is_none_or(|child| child.height() == 0) => {
                children.len()
            }
            Content::Index(children) => children.iter().map(|child| 1 + child.nodes()).sum(),
        }
    }

    fn height(&self) -> u16 {
        match &self.content {
            Content::Leaf(_) => 0,
            Content::Index(children) => children.first().map_or(0, |child| child.height() + 1),
        }
    }

    pub(super) fn encode_into(&self, out: &mut [u8], depth: u16) {
        match &self.content {
            Content::Leaf(extents) => extent::encode_leaf(out, extents),
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

/// The child under which `block` is or would be mapped: the last that does not start behind it.
fn child_for(children: &[Node], block: u32) -> usize {
    children.partition_point(|child| child.first() <= block).saturating_sub(1)
}
