//! Changes of the map under its exclusive lock.
//!
//! This module plans a change and applies it. The caller reserves the blocks that the plan counts
//! (I5). Invariant: the view and the leaf index agree with the leaves when the lock is released.
//!
//! 1. The caller acquires the lock ([`ExtentMap::lock`]) and plans a change (`plan_...`).
//! 2. The caller checks that its reservation has [`Plan::blocks`] blocks and its handle enough
//!    credits.
//! 3. [`Writer::carry_out`] or [`Writer::remove`] allocates the blocks, changes the nodes and
//!    updates the view.

use std::ops::Deref;

use parext4_format::extent::Extent;
use parext4_format::{BlockRange, FileBlock};

use super::change::{Change, ChangeKind};
use super::edit::Edit;
use super::leaf::{Outcome, kept_free};
use super::node::{ChangeContext, Tree};
use super::view::ExclusiveView;
use super::{ExtentMap, MAX_DEPTH, ROOT_CAPACITY};
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded, when_planted};
use crate::journal::Handle;
use crate::mapping::Shift;
use crate::meta::MetaCache;
use crate::sync::{Arc, WriteGuard};

/// After this number of consecutive conversions, a leaf stored in the root moves into a block. The
/// root has four entries and almost no room for marks.
const EARLY_GROWTH: u32 = 16;

/// A planned change. It is valid until the [`Writer`] that made it is dropped or applies a change.
#[derive(Debug)]
#[must_use]
pub(crate) struct Plan {
    change: Change,
    outcome: Outcome,
    /// Number of blocks for new nodes.
    pub blocks: u32,
    /// True if the root's leaf moves into a block although it would fit the root.
    early: bool,
    /// Maximum number of entries with which a leaf that is a block does not split.
    split_above: usize,
}

/// Exclusive access to a map.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    map: &'a ExtentMap,
    tree: WriteGuard<'a, Tree>,
}

impl Deref for Writer<'_> {
    type Target = ExtentMap;
    fn deref(&self) -> &ExtentMap {
        self.map
    }
}

impl<'a> Writer<'a> {
    pub(super) fn new(map: &'a ExtentMap, tree: WriteGuard<'a, Tree>) -> Self {
        Self { map, tree }
    }

    /// Plans mapping `extent`, which is a hole, in transaction `tid`.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`] if the tree would exceed the maximum depth of the format.
    pub(crate) fn plan_fill(&self, tid: u64, extent: Extent) -> Result<Plan> {
        self.plan(tid, Change::fill(extent), false, false)
    }

    /// Plans replacing the part of one extent that maps the blocks of `extent`. `spare` is true if
    /// the caller has reserved [`ExtentMap::worst_case`] blocks, which suffice for early growth.
    ///
    /// # Errors
    /// As [`plan_fill`](Self::plan_fill).
    pub(crate) fn plan_convert(&mut self, tid: u64, extent: Extent, spare: bool) -> Result<Plan> {
        let tree = &mut *self.tree;
        tree.conversions = if tree.depth == 0 { tree.conversions.saturating_add(1) } else { 0 };
        let early = spare && tree.depth == 0 && tree.conversions > EARLY_GROWTH;
        self.plan(tid, Change::convert(extent), early, spare)
    }

    /// Plans splitting the extent that maps `blocks` at both ends of the range.
    ///
    /// # Errors
    /// As [`plan_fill`](Self::plan_fill).
    pub(crate) fn plan_cut(&self, tid: u64, blocks: BlockRange) -> Result<Plan> {
        self.plan(tid, Change { blocks, new: None, kind: ChangeKind::Cut }, false, false)
    }

    /// Plans unmapping `blocks`, which lie within one extent.
    ///
    /// # Errors
    /// As [`plan_fill`](Self::plan_fill).
    pub(crate) fn plan_remove(&self, tid: u64, blocks: BlockRange) -> Result<Plan> {
        self.plan(tid, Change { blocks, new: None, kind: ChangeKind::Remove }, false, false)
    }

    fn plan(&self, tid: u64, change: Change, early: bool, spare: bool) -> Result<Plan> {
        let tree = &*self.tree;
        let outcome = tree.outcome(&change, tid);
        let kept_free = if spare && tree.depth < MAX_DEPTH { kept_free(tree.capacity) } else { 0 };
        let split_above = tree.capacity - kept_free;
        let (nodes, root_len) = tree.plan(&change, &outcome, split_above);
        let grows = root_len > ROOT_CAPACITY;
        if grows && tree.depth >= MAX_DEPTH {
            return Err(Error::FileTooLarge);
        }
        let blocks = nodes + u32::from(grows || early);
        debug_assert!(blocks <= u32::from(tree.depth) + 1, "{blocks} new nodes at depth {}", tree.depth);
        Ok(Plan { change, outcome, blocks, early, split_above })
    }

    /// Applies a plan. Acquires the view exclusively.
    ///
    /// # Errors
    /// An error means corruption or a failed read; the volume must stop.
    pub(crate) fn carry_out(&mut self, edit: &mut Edit<'_, '_>, plan: Plan) -> Result<()> {
        // All blocks are allocated before the first change, so that the change cannot fail for lack
        // of space half-way.
        let blocks = edit.allocate_nodes(plan.blocks)?;
        let exclusive = self.map.view.lock_exclusive();
        let tree = &mut *self.tree;
        let mut work = ChangeContext::new(edit, plan.change, plan.outcome, plan.split_above, tree, blocks);
        when_planted!(Fault::LeafListFirst, self.map.leaf_index.store(Arc::new(tree.leaf_index())));
        let split = tree.root.apply(&mut work)?;
        debug_assert!(split.is_none(), "the root does not split");
        if tree.root.is_empty() {
            tree.root = super::Node::empty_root();
            tree.depth = 0;
            work.reshaped = true;
        } else if tree.root.len() > ROOT_CAPACITY || plan.early {
            tree.root.grow(&mut work)?;
            tree.depth += 1;
        }
        debug_assert!(work.blocks.is_empty(), "the change used all blocks of its plan");
        if work.reshaped {
            guarded!(Fault::LeafListFirst, self.publish());
        }
        self.update_view(exclusive, &plan.change);
        Ok(())
    }

    /// Updates the view after a change.
    fn update_view(&self, exclusive: ExclusiveView<'_>, change: &Change) {
        match (change.kind, change.new) {
            (ChangeKind::Cut, _) => {}
            (ChangeKind::Convert, _) if change.is_markable() => {
                drop(exclusive);
                self.map.view.set_written(change.blocks);
            }
            (ChangeKind::Fill, Some(extent)) => exclusive.fill(extent),
            _ => exclusive.rebuild(&self.map.leaf_index.load(), change.blocks),
        }
    }

    /// Applies a plan of [`plan_remove`](Self::plan_remove). The caller frees the unmapped blocks.
    ///
    /// # Errors
    /// As [`carry_out`](Self::carry_out).
    pub(crate) fn remove(&mut self, edit: &mut Edit<'_, '_>, plan: Plan) -> Result<()> {
        self.carry_out(edit, plan)?;
        if self.tree.root.pull_up(edit) {
            self.tree.depth = 0;
            self.tree.conversions = 0;
            self.publish();
        }
        Ok(())
    }

    /// Moves extents to other file blocks while the handle has credits. Returns true if all extents
    /// were moved; otherwise `shift` holds the remaining part.
    ///
    /// The caller holds the ranges of all blocks concerned, and has reserved room for an extent
    /// that is split.
    ///
    /// # Errors
    /// An error means corruption or a failed read; the volume must stop.
    pub(crate) fn shift(
        &mut self,
        handle: &Handle<'_>,
        cache: &MetaCache,
        shift: &mut Shift,
    ) -> Result<bool> {
        let exclusive = self.map.view.lock_exclusive();
        let touched = shift.touched();
        let done = self.tree.shift(handle, cache, shift);
        self.publish();
        exclusive.rebuild(&self.map.leaf_index.load(), touched);
        done
    }

    /// Returns the number of nodes that are blocks and map a block at or after `from`.
    pub(crate) fn nodes_past(&self, from: u64) -> u32 {
        self.tree.root.count_past(from)
    }

    /// Prevents joining unwritten extents at `block` until [`unpin`](Self::unpin).
    pub(crate) fn pin(&mut self, block: FileBlock) {
        self.tree.pins.add(block);
    }

    /// Removes one [`pin`](Self::pin) at `block`.
    pub(crate) fn unpin(&mut self, block: FileBlock) {
        self.tree.pins.remove(block);
    }

    /// Publishes a new leaf index.
    fn publish(&mut self) {
        self.map.leaf_index.store(Arc::new(self.tree.leaf_index()));
    }

    /// Sets the maximum number of entries of nodes that are blocks, so that tests build deep trees.
    #[cfg(any(test, shuttle))]
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        self.tree.capacity = capacity;
    }

    /// Returns true if no node exceeds its maximum number of entries.
    #[cfg(shuttle)]
    pub(crate) fn nodes_fit(&self) -> bool {
        self.tree.root.fits(ROOT_CAPACITY, self.tree.capacity)
    }

    #[cfg(test)]
    pub(super) fn root_len(&self) -> usize {
        self.tree.root.len()
    }
}
