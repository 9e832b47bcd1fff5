//! Changing the map: what a change needs, and carrying it out.

use std::ops::Deref;

use parext4_format::extent::Extent;

use super::change::{Change, ChangeKind};
use super::edit::Edit;
use super::leaf::{Outcome, scarce};
use super::node::{Tree, Work};
use super::shift::Shift;
use super::view::Showing;
use super::{ExtentMap, MAX_DEPTH, ROOT_CAPACITY};
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::journal::Handle;
use crate::meta::MetaCache;
use crate::sync::{Arc, WriteGuard};

/// A leaf in the root has room for four entries and next to no marks. Once so many conversions had to change
/// it, it becomes a block.
const EARLY_GROWTH: u32 = 16;

/// A change that was thought through. True as long as the [`Writer`] is held that made it.
#[derive(Debug)]
#[must_use]
pub(crate) struct Plan {
    change: Change,
    outcome: Outcome,
    /// The new blocks that it needs.
    pub blocks: u32,
    /// Whether the root's leaf becomes a block though it would fit.
    early: bool,
    /// Entries with which a leaf that is a block does not split.
    most: usize,
}

/// The right to change a map.
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

    /// Mapping `extent` in a hole, in transaction `tid`.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`] if the tree would become deeper than the format allows.
    pub(crate) fn plan_fill(&self, tid: u64, extent: Extent) -> Result<Plan> {
        self.plan(tid, Change::fill(extent), false, false)
    }

    /// Mapping `extent` in place of what maps its blocks as part of one other extent. `spare` says that the
    /// reservation is that of [`ExtentMap::worst_case`], and so has blocks for a tree that grows early.
    ///
    /// # Errors
    /// As [`plan_fill`](Self::plan_fill).
    pub(crate) fn plan_convert(&mut self, tid: u64, extent: Extent, spare: bool) -> Result<Plan> {
        let tree = &mut *self.tree;
        tree.conversions = if tree.depth == 0 { tree.conversions.saturating_add(1) } else { 0 };
        let early = spare && tree.depth == 0 && tree.conversions > EARLY_GROWTH;
        self.plan(tid, Change::convert(extent), early, spare)
    }

    /// Cutting the extent that maps `[start, start + len)`, and more, at its edges.
    ///
    /// # Errors
    /// As [`plan_fill`](Self::plan_fill).
    pub(crate) fn plan_cut(&self, tid: u64, start: u32, len: u32) -> Result<Plan> {
        let (start, end) = (u64::from(start), u64::from(start) + u64::from(len));
        self.plan(tid, Change { start, end, new: None, kind: ChangeKind::Cut }, false, false)
    }

    /// Unmapping `[start, start + len)`, which lies within one extent.
    ///
    /// # Errors
    /// As [`plan_fill`](Self::plan_fill).
    pub(crate) fn plan_remove(&self, tid: u64, start: u32, len: u32) -> Result<Plan> {
        let (start, end) = (u64::from(start), u64::from(start) + u64::from(len));
        self.plan(tid, Change { start, end, new: None, kind: ChangeKind::Remove }, false, false)
    }

    fn plan(&self, tid: u64, change: Change, early: bool, spare: bool) -> Result<Plan> {
        let tree = &*self.tree;
        let outcome = tree.outcome(&change, tid);
        let scarce = if spare && tree.depth < MAX_DEPTH { scarce(tree.capacity) } else { 0 };
        let most = tree.capacity - scarce;
        let (nodes, root_len) = tree.plan(&change, &outcome, most);
        let grows = root_len > ROOT_CAPACITY;
        if grows && tree.depth >= MAX_DEPTH {
            return Err(Error::FileTooLarge);
        }
        let blocks = nodes + u32::from(grows || early);
        debug_assert!(blocks <= u32::from(tree.depth) + 1, "{blocks} new nodes at depth {}", tree.depth);
        Ok(Plan { change, outcome, blocks, early, most })
    }

    /// Carries out what was planned.
    ///
    /// # Errors
    /// Corruption, and the volume must stop.
    pub(crate) fn carry_out(&mut self, edit: &mut Edit<'_, '_>, plan: Plan) -> Result<()> {
        // All blocks first: from here on nothing can run out half-way.
        let blocks = edit.take(plan.blocks)?;
        let showing = self.map.view.lock();
        let tree = &mut *self.tree;
        let mut work = Work::new(edit, plan.change, plan.outcome, plan.most, tree, blocks);
        if planted(Fault::DirectoryFirst) {
            self.map.leaf_index.store(Arc::new(tree.leaf_index()));
        }
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
        debug_assert!(work.blocks.is_empty(), "the plan and the change agree");
        if work.reshaped && !planted(Fault::DirectoryFirst) {
            self.publish();
        }
        self.show(showing, &plan.change);
        Ok(())
    }

    /// Shows readers what a change has come to.
    fn show(&self, showing: Showing<'_>, change: &Change) {
        let changed = change.start..change.end;
        match (change.kind, change.new) {
            (ChangeKind::Cut, _) => {}
            (ChangeKind::Convert, _) if change.is_markable() => {
                drop(showing);
                self.map.view.set_written(changed);
            }
            (ChangeKind::Fill, Some(extent)) => self.map.view.fill(extent),
            _ => showing.renew(&self.map.leaf_index.load(), &changed),
        }
    }

    /// Carries out what [`plan_remove`](Self::plan_remove) planned. The blocks are the caller's to free.
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

    /// Moves extents to other file blocks, as far as the handle has credits; says whether that was all the way,
    /// and leaves in `shift` what is still to be moved. Whoever asks for it holds all ranges concerned, and has made
    /// room for an extent that is cut.
    ///
    /// # Errors
    /// Corruption, and the volume must stop.
    pub(crate) fn shift(
        &mut self,
        handle: &Handle<'_>,
        cache: &MetaCache,
        shift: &mut Shift,
    ) -> Result<bool> {
        let showing = self.map.view.lock();
        let touched = shift.touched();
        let done = self.tree.shift(handle, cache, shift);
        self.publish();
        showing.renew(&self.map.leaf_index.load(), &touched);
        done
    }

    /// How many nodes that are blocks map something behind file block `from`.
    pub(crate) fn nodes_behind(&self, from: u64) -> u32 {
        self.tree.root.count_behind(from)
    }

    /// Keeps unwritten extents cut at `block` until [`unpin`](Self::unpin).
    pub(crate) fn pin(&mut self, block: u32) {
        self.tree.pins.add(block);
    }

    /// Ends one [`pin`](Self::pin) at `block`.
    pub(crate) fn unpin(&mut self, block: u32) {
        self.tree.pins.remove(block);
    }

    /// Has everybody find the leaves that there are now.
    fn publish(&mut self) {
        self.map.leaf_index.store(Arc::new(self.tree.leaf_index()));
    }

    /// Has nodes that are blocks take so many entries, for trees that grow fast.
    #[cfg(any(test, shuttle))]
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        self.tree.capacity = capacity;
    }

    /// Whether no node has more entries than it takes.
    #[cfg(shuttle)]
    pub(crate) fn nodes_fit(&self) -> bool {
        self.tree.root.fits(ROOT_CAPACITY, self.tree.capacity)
    }

    #[cfg(test)]
    pub(super) fn root_len(&self) -> usize {
        self.tree.root.len()
    }
}
