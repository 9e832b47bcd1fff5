//! Moving extents to other file blocks, leaf by leaf. The tree keeps its shape: only keys change.

use super::{Content, Node, Tree};
use crate::error::Result;
use crate::extent_map::shift::Shift;
use crate::journal::Handle;
use crate::meta::{BlockKind, MetaCache};

/// What a shift works with on its way through the nodes.
struct Work<'a> {
    handle: &'a Handle<'a>,
    cache: &'a MetaCache,
    kind: BlockKind,
    /// The most blocks on the way from the root to a leaf.
    depth: u32,
    shift: &'a mut Shift,
}

impl Tree {
    /// Moves extents as far as the handle has credits. Says whether that was all the way.
    pub(in crate::extent_map) fn shift(
        &mut self,
        handle: &Handle<'_>,
        cache: &MetaCache,
        shift: &mut Shift,
    ) -> Result<bool> {
        let (kind, depth) = (self.kind, self.depth.into());
        let mut work = Work { handle, cache, kind, depth, shift };
        let done = self.root.shift(&mut work)?;
        if done {
            work.shift.finish();
        }
        Ok(done)
    }
}

impl Node {
    fn shift(&mut self, work: &mut Work<'_>) -> Result<bool> {
        if !work.shift.meets(self.first().into(), self.end()) {
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
                self.first = children.first().map_or(0, Self::first);
                self.listed = None;
                if *work.shift != before {
                    self.register(work.handle, work.cache, work.kind)?;
                }
                stopped.unwrap_or(Ok(true))
            }
        }
    }

    fn shift_leaf(&mut self, work: &mut Work<'_>) -> Result<bool> {
        let Content::Leaf(leaf) = &self.content else { return Ok(true) };
        // For the leaf and all above it.
        if !work.handle.ensure(work.depth) {
            return Ok(false);
        }
        let extents = leaf.folded();
        leaf.store(work.shift.apply(&extents), None);
        self.first = leaf.first();
        work.shift.passed(&extents);
        self.register(work.handle, work.cache, work.kind)?;
        Ok(true)
    }

    /// How many nodes that are blocks map something behind file block `from`, this one included.
    pub(in crate::extent_map) fn count_behind(&self, from: u64) -> u32 {
        if self.end() <= from {
            return 0;
        }
        let below = match &self.content {
            Content::Leaf(_) => 0,
            Content::Index(children) => children.iter().map(|child| child.count_behind(from)).sum(),
        };
        below + u32::from(self.block.is_some())
    }
}
