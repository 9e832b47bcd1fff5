//! The nodes of the tree: searching, inserting, removing, encoding.

use parext4_format::extent::{self, Extent, IndexEntry};
use parext4_format::{FileBlock, FsBlock};

use super::{Edit, ROOT_CAPACITY};
use crate::error::Result;
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

    /// The least room in the leaves where a change at `block` may add entries.
    pub(super) fn room_near(&self, block: u32, capacity: usize) -> usize {
        match &self.content {
            Content::Leaf(extents) => {
                let capacity = if self.block.is_none() { ROOT_CAPACITY } else { capacity };
                capacity.saturating_sub(extents.len())
            }
            Content::Index(children) => {
                let at = child_for(children, block);
                let near = children[at..].iter().take(2);
                near.map(|child| child.room_near(block, capacity)).min().unwrap_or(0)
            }
        }
    }

    /// Registers the node's block. The root goes with its inode.
    fn touch(&mut self, edit: &Edit<'_, '_>, kind: BlockKind) -> Result<()> {
        if let Some(block) = self.block {
            let meta = match self.dirty.take() {
                Some(meta) => meta,
                None => edit.cache.create(block, kind)?,
            };
            edit.handle.register(&meta);
            self.dirty = Some(meta);
        }
        Ok(())
    }

    /// Adds an extent where nothing is mapped. Returns the new right neighbour if the node had to split.
    pub(super) fn insert(
        &mut self,
        edit: &mut Edit<'_, '_>,
        kind: BlockKind,
        new: Extent,
        capacity: usize,
    ) -> Result<Option<Self>> {
        let first = self.first();
        let mut changed = true;
        match &mut self.content {
            Content::Leaf(extents) => insert_extent(extents, new),
            Content::Index(children) => {
                let at = child_for(children, new.logical.get());
                let right = children[at].insert(edit, kind, new, capacity)?;
                self.dirty_below = true;
                // An index entry changes only with its child's first block.
                changed = right.is_some() || (at == 0 && children[at].first() != first);
                if let Some(right) = right {
                    children.insert(at + 1, right);
                }
            }
        }
        if changed {
            self.touch(edit, kind)?;
        }
        if self.block.is_some() && self.len() > capacity {
            self.split(edit, kind, new).map(Some)
        } else {
            Ok(None)
        }
    }

    fn split(&mut self, edit: &mut Edit<'_, '_>, kind: BlockKind, new: Extent) -> Result<Self> {
        let block = edit.take()?;
        // A file that grows at its end leaves full nodes behind.
        let appending = self.last().is_some_and(|last| last.end() == new.end());
        let at = if appending { self.len() - 1 } else { self.len() / 2 };
        let content = match &mut self.content {
            Content::Leaf(extents) => Content::Leaf(extents.split_off(at)),
            Content::Index(children) => Content::Index(children.split_off(at)),
        };
        let mut right = Self::new(Some(block), content);
        right.dirty_below = self.dirty_below;
        right.touch(edit, kind)?;
        Ok(right)
    }

    /// Moves the root's entries one level down, into a block.
    pub(super) fn grow(&mut self, edit: &mut Edit<'_, '_>, kind: BlockKind) -> Result<()> {
        let block = edit.take()?;
        let content = std::mem::replace(&mut self.content, Content::Index(Vec::new()));
        let mut child = Self::new(Some(block), content);
        child.dirty_below = self.dirty_below;
        child.touch(edit, kind)?;
        self.content = Content::Index(vec![child]);
        self.dirty_below = true;
        Ok(())
    }

    /// Unmaps `[start, end)`. What remains behind `end` of an extent that was cut in two goes to `rest`, for
    /// the caller to insert again. Returns whether anything changed.
    pub(super) fn remove(
        &mut self,
        edit: &mut Edit<'_, '_>,
        kind: BlockKind,
        start: u64,
        end: u64,
        rest: &mut Option<Extent>,
    ) -> Result<bool> {
        let changed = match &mut self.content {
            Content::Leaf(extents) => remove_extents(extents, start, end, rest),
            Content::Index(children) => {
                let mut entries_changed = false;
                let from = child_for(children, u32::try_from(start).unwrap_or(u32::MAX));
                for child in &mut children[from..] {
                    let first = child.first();
                    if u64::from(first) >= end {
                        break;
                    }
                    if child.remove(edit, kind, start, end, rest)? {
                        self.dirty_below = true;
                        entries_changed |= child.is_empty() || child.first() != first;
                    }
                }
                children.retain(|child| {
                    let keep = !child.is_empty();
                    if !keep {
                        edit.freed.extend(child.block);
                    }
                    keep
                });
                if entries_changed {
                    self.touch(edit, kind)?;
                }
                return Ok(entries_changed || self.dirty_below);
            }
        };
        if changed && (self.block.is_none() || !self.is_empty()) {
            self.touch(edit, kind)?;
        }
        Ok(changed)
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

/// Adds `new`, joined with its neighbours where they continue each other in place and state.
fn insert_extent(extents: &mut Vec<Extent>, new: Extent) {
    let at = extents.partition_point(|extent| extent.logical < new.logical);
    let left = at.checked_sub(1).and_then(|left| join(extents[left], new));
    let joined = left.unwrap_or(new);
    let right = extents.get(at).and_then(|&right| join(joined, right));
    match (left, right) {
        (Some(_), Some(all)) => {
            extents[at - 1] = all;
            extents.remove(at);
        }
        (Some(left), None) => extents[at - 1] = left,
        (None, Some(right)) => extents[at] = right,
        (None, None) => extents.insert(at, new),
    }
}

/// The two extents as one, if the format allows it.
fn join(a: Extent, b: Extent) -> Option<Extent> {
    let max = if a.unwritten { extent::MAX_UNWRITTEN } else { extent::MAX_WRITTEN };
    let fits = a.unwritten == b.unwritten
        && a.end() == u64::from(b.logical.get())
        && a.physical + u64::from(a.len) == b.physical
        && a.len + b.len <= max;
    fits.then_some(Extent { len: a.len + b.len, ..a })
}

/// Removes `[start, end)` from the extents of a leaf.
fn remove_extents(extents: &mut Vec<Extent>, start: u64, end: u64, rest: &mut Option<Extent>) -> bool {
    let from = extents.partition_point(|extent| extent.end() <= start);
    let to = extents.partition_point(|extent| u64::from(extent.logical.get()) < end);
    if from >= to {
        return false;
    }
    let (first, last) = (extents[from], extents[to - 1]);
    let head = cut(first, u64::from(first.logical.get()), start);
    let tail = cut(last, end, last.end());
    if to - from == 1 && head.is_some() && tail.is_some() {
        extents[from] = head.unwrap_or(first);
        *rest = tail;
        return true;
    }
    extents.splice(from..to, head.into_iter().chain(tail));
    true
}

/// The part of `extent` in `[start, end)`, in file blocks, if any.
fn cut(extent: Extent, start: u64, end: u64) -> Option<Extent> {
    let first = u64::from(extent.logical.get());
    let (start, end) = (start.max(first), end.min(extent.end()));
    if start >= end {
        return None;
    }
    Some(Extent {
        logical: FileBlock(u32::try_from(start).ok()?),
        physical: extent.physical + (start - first),
        len: u32::try_from(end - start).ok()?,
        unwritten: extent.unwritten,
    })
}
