//! Moving extents to other file blocks, leaf by leaf.
//!
//! This module registers and changes the nodes. [`Shift`] computes the new extents. Invariant: no
//! node is added or removed; only the keys and the contents of the leaves change.

use parext4_format::FileBlock;

use super::{Content, Node, Tree};
use crate::error::Result;
use crate::journal::Handle;
use crate::mapping::Shift;
use crate::meta::{BlockKind, MetaCache};

/// The context of a shift while it is applied to the nodes.
struct ShiftContext<'a> {
    handle: &'a Handle<'a>,
    cache: &'a MetaCache,
    kind: BlockKind,
    /// Maximum number of blocks from the root to a leaf.
    depth: u32,
    shift: &'a mut Shift,
}

impl Tree {
    /// Moves extents while the handle has credits. Returns true if all extents were moved.
    pub(in crate::extent_map) fn shift(
        &mut self,
        handle: &Handle<'_>,
        cache: &MetaCache,
        shift: &mut Shift,
    ) -> Result<bool> {
        let (kind, depth) = (self.kind, self.depth.into());
        let mut work = ShiftContext { handle, cache, kind, depth, shift };
        let done = self.root.shift(&mut work)?;
        if done {
            work.shift.finish();
        }
        Ok(done)
    }
}

impl Node {
    fn shift(&mut self, work: &mut ShiftContext<'_>) -> Result<bool> {
        if !work.shift.overlaps(self.first().to_u64(), self.end()) {
            return Ok(true);
        }
        match &mut self.content {
            Content::Leaf(_) => self.shift_leaf(work),
            Content::Index(children) => {
                self.dirty_below = true;
                let (before, stops) = (*work.shift, |done: &Result<bool>| !matches!(done, Ok(true)));
                let stopped = if before.is_up() {
                    children.iter_mut().rev().map(|child| child.shift(work)).find(stops)
                } else {
                    children.iter_mut().map(|child| child.shift(work)).find(stops)
                };
                self.first = children.first().map_or(FileBlock::ZERO, Self::first);
                self.listed = None;
                if *work.shift != before {
                    self.register(work.handle, work.cache, work.kind)?;
                }
                stopped.unwrap_or(Ok(true))
            }
        }
    }

    fn shift_leaf(&mut self, work: &mut ShiftContext<'_>) -> Result<bool> {
        let Content::Leaf(leaf) = &self.content else { return Ok(true) };
        // The credits are for the leaf and its ancestors.
        if !work.handle.ensure(work.depth) {
            return Ok(false);
        }
        let extents = leaf.folded();
        leaf.store(work.shift.apply(&extents), None);
        self.first = leaf.first();
        work.shift.advance_past(&extents);
        self.register(work.handle, work.cache, work.kind)?;
        Ok(true)
    }

    /// Returns the number of nodes that are blocks and map a block at or after `from`, including
    /// this one.
    pub(in crate::extent_map) fn count_past(&self, from: u64) -> u32 {
        if self.end() <= from {
            return 0;
        }
        let below = match &self.content {
            Content::Leaf(_) => 0,
            Content::Index(children) => children.iter().map(|child| child.count_past(from)).sum(),
        };
        below + u32::from(self.block.is_some())
    }
}
