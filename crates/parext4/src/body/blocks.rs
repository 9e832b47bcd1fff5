//! Changing an inode's map: adding blocks, converting them, removing them, with all the accounts kept.

use parext4_format::extent::{self, Extent};
use parext4_format::{FileBlock, FsBlock};

use crate::allocator::{ALLOCATE_CREDITS, BlockRequest, FREE_CREDITS, Growth, Reservation, Run};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::extent_map::{Edit, ExtentMap, Plan, State, Writer};
use crate::fault::{Fault, planted};
use crate::inode::Inode;
use crate::journal::Handle;
use crate::sync::Arc;

/// How holes are filled.
#[derive(Debug)]
pub(crate) struct Filling<'c, 'a> {
    /// The blocks count as written at once: the caller owns their contents (metadata).
    pub written: bool,
    /// The file grows by it, maybe by blocks that the caller does not hold. It is done in one step, so that the next ones
    /// find where to go on, and not that their places are taken.
    pub in_order: bool,
    /// How the file grows by it.
    pub growth: Growth,
    /// What was claimed for it before, if so.
    pub claim: Option<&'c mut Reservation<'a>>,
    /// The end of what the caller holds, in file blocks. What lies behind is mapped, in order, if the file ends before:
    /// then nobody can hold that and move it, either.
    pub held: u32,
}

impl Engine {
    /// The inode's map.
    ///
    /// # Errors
    /// As [`Inode::map`].
    pub(crate) fn map<'a>(&self, inode: &'a Inode) -> Result<&'a ExtentMap> {
        // A read-only volume cannot be damaged further, and the rest of the file can still be read.
        let map = inode.map(&self.layout, &self.cache, !self.is_read_only());
        map.map_err(|error| self.health.note(inode.ino(), error))
    }

    /// Credits with which [`add_blocks`](Self::add_blocks) and the like make progress.
    pub(crate) fn map_credits(&self, inode: &Inode) -> Result<u32> {
        // The tree may grow one level between this look and the handle.
        let depth = self.map(inode)?.depth() + 1;
        Ok(1 + ALLOCATE_CREDITS.max(FREE_CREDITS) + ExtentMap::credits_at_depth(depth))
    }

    /// Credits with which [`convert`](Self::convert) changes a range of `pieces` unwritten runs in one handle,
    /// if the journal is large enough for that; else it comes as far as it can.
    pub(crate) fn conversion_credits(&self, inode: &Inode, pieces: u32) -> Result<u32> {
        let first = self.map_credits(inode)?;
        if pieces <= 1 {
            return Ok(first);
        }
        let map = self.map(inode)?;
        // The last may be cut as the first is; those between change a path each, in a tree of so many nodes.
        let between = (pieces - 1).saturating_mul(u32::from(map.depth())).min(map.max_node_blocks());
        Ok((first + map.change_credits()).saturating_add(between).min(self.journal.max_credits()))
    }

    /// Where a block of the inode at `logical` should lie.
    pub(crate) fn goal(&self, inode: &Inode, map: &ExtentMap, logical: u32) -> Result<FsBlock> {
        if let Some(goal) = map.goal(logical) {
            return Ok(goal);
        }
        let group = self.allocator.group_of_inode(inode.ino())?;
        Ok(self.allocator.goal_in_group(group, inode.ino().get()))
    }

    /// As [`fill_holes`](Self::fill_holes), for blocks of which no more will follow.
    pub(crate) fn add_blocks(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        start: u32,
        len: u32,
        written: bool,
    ) -> Result<u32> {
        self.fill_holes(
            handle,
            inode,
            start,
            len,
            Filling { written, in_order: false, growth: Growth::Exact, claim: None, held: start + len },
        )
    }

    /// Maps every hole of `[start, start + len)` to new blocks, all from one allocator call; unwritten, unless
    /// they count as written at once. Joins the inode.
    ///
    /// Returns how far it came, in file blocks from `start`: short of `len` when the transaction is full, the free
    /// blocks lie too far apart, or somebody else has mapped a part; the caller goes on with a new handle.
    ///
    /// # Errors
    /// No space: the map is as before, but for what earlier calls added.
    pub(crate) fn fill_holes<'a>(
        &'a self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        start: u32,
        mut len: u32,
        mut filling: Filling<'_, 'a>,
    ) -> Result<u32> {
        let map = self.map(inode)?;
        // Others look for blocks while the map is free, and may find that some were mapped ahead meanwhile.
        let mut writer = filling.in_order.then(|| map.lock());
        let asked = len;
        if u64::from(filling.held) * u64::from(self.layout.block_size) < inode.size()
            && !planted(Fault::AheadWithin)
        {
            len = len.min(filling.held.saturating_sub(start));
        }
        let holes: Vec<(u32, u32)> = map
            .runs(start, len)
            .filter(|run| run.state == State::Hole)
            .map(|run| (run.logical.get(), run.len))
            .collect();
        let missing: u32 = holes.iter().map(|&(_, len)| len).sum();
        let Some(&(first, _)) = holes.first() else { return Ok(asked) };

        let goal = self.goal(inode, map, first)?;
        inode.join(handle);
        let request =
            BlockRequest { growth: filling.growth, windows: &inode.windows, map, holes: &holes, goal };
        let runs = self.allocator.allocate(handle, &request, filling.claim.as_deref_mut())?;
        let mut pieces = pair(&holes, &runs, filling.written).peekable();
        let mut done = start;
        while let Some(extent) = pieces.peek().copied() {
            let stop = match self.add_extent(handle, inode, map, &mut writer, extent, &mut filling) {
                Ok(true) => None,
                Ok(false) => Some(Ok(())),
                // Without any progress the caller hears why; of what stops the volume it always hears.
                Err(error @ (Error::NoSpace | Error::FileTooLarge)) => {
                    Some(if done > start { Ok(()) } else { Err(error) })
                }
                Err(error) => return Err(error),
            };
            if let Some(stop) = stop {
                self.give_back(handle, pieces)?;
                return stop.map(|()| done - start);
            }
            done = extent.logical.get() + extent.len;
            pieces.next();
            // What did not take the map to itself took no credits, and so those for the first change of a tree that has
            // grown meanwhile are still there.
            if pieces.peek().is_some() && !handle.ensure(map.change_credits()) {
                self.give_back(handle, pieces)?;
                return Ok(done - start);
            }
        }
        let got: u32 = runs.iter().map(|run| run.len).sum();
        Ok(if got == missing { asked } else { done - start })
    }

    /// Frees what was allocated in this handle and not mapped, which takes no more credits.
    fn give_back(&self, handle: &Handle<'_>, pieces: impl Iterator<Item = Extent>) -> Result<()> {
        for extent in pieces {
            self.allocator.free_data(handle, extent.physical, extent.len)?;
        }
        Ok(())
    }

    /// Maps `extent`, beside others if that is possible, else as the `writer` of the map. Says whether there was
    /// a hole for it.
    fn add_extent<'a, 'm>(
        &'a self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        map: &'m ExtentMap,
        writer: &mut Option<Writer<'m>>,
        extent: Extent,
        filling: &mut Filling<'_, 'a>,
    ) -> Result<bool> {
        if writer.is_some() || !map.fill_in_leaf(handle.tid(), extent) {
            let writer = writer.get_or_insert_with(|| map.lock());
            if !map.is_hole(extent.logical.get(), extent.len) && !planted(Fault::FillBlindly) {
                return Ok(false);
            }
            let plan = writer.plan_fill(handle.tid(), extent)?;
            let mut reserved_now;
            let reservation = match filling.claim.as_deref_mut() {
                Some(claim) => {
                    claim.top_up(plan.blocks)?;
                    claim
                }
                None => {
                    reserved_now = self.allocator.reserve(plan.blocks)?;
                    &mut reserved_now
                }
            };
            self.edit(handle, inode, extent.physical, reservation, |edit| writer.carry_out(edit, plan))?;
        }
        inode.add_blocks(u64::from(extent.len), self.layout.block_size);
        Ok(true)
    }

    /// Runs one change of the map and settles what it did to the tree's own blocks.
    pub(crate) fn edit(
        &self,
        handle: &Handle<'_>,
        inode: &Inode,
        goal: FsBlock,
        reservation: &mut Reservation<'_>,
        change: impl FnOnce(&mut Edit<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let (cache, allocator) = (&*self.cache, &self.allocator);
        let mut edit = Edit { handle, cache, allocator, reservation, goal, added: 0, freed: Vec::new() };
        change(&mut edit)?;
        let Edit { added, freed, .. } = edit;
        inode.add_blocks(u64::from(added), self.layout.block_size);
        inode.sub_blocks(freed.len() as u64, self.layout.block_size);
        for block in freed {
            self.allocator.free_metadata(handle, block, 1)?;
        }
        Ok(())
    }

    /// Marks what is unwritten in `[start, start + len)` as written, with blocks reserved at submission (I5).
    /// Joins the inode. Returns how far it came, as [`add_blocks`](Self::add_blocks) does.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`] in front of the first piece that needs a deeper tree than there is; corruption,
    /// and the volume then stops.
    pub(crate) fn convert(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        start: u32,
        len: u32,
        reservation: &mut Reservation<'_>,
    ) -> Result<u32> {
        inode.join(handle);
        let map = self.map(inode)?;
        if map.convert_in_leaf(handle.tid(), start, len) {
            return Ok(len);
        }
        let mut map = map.lock();
        let (mut at, end) = (start, start + len);
        while at < end {
            // What is converted whole takes no entry more, so that what was cut for it needs no block (I5).
            let run = map.run_in_extent(at, end - at);
            let State::Unwritten(physical) = run.state else {
                at += run.len;
                continue;
            };
            // Whoever had the lock before us may have made room for a mark.
            if map.mark(handle.tid(), at, run.len) == 0 {
                let extent = Extent { logical: run.logical, physical, len: run.len, unwritten: false };
                let ample = reservation.has(ExtentMap::worst_case(map.depth()));
                let plan = match map.plan_convert(handle.tid(), extent, ample) {
                    // What was converted is to be shown in this transaction.
                    Err(Error::FileTooLarge) if at > start => return Ok(at - start),
                    plan => plan?,
                };
                if at > start && !handle.ensure(map.set_credits(plan.blocks)) {
                    return Ok(at - start);
                }
                self.carry_out_reserved(handle, inode, &mut map, physical, plan, reservation)?;
            }
            at += run.len;
        }
        Ok(len)
    }

    /// Makes what is written in `[start, start + len)` unwritten. Joins the inode. Returns how far it came, as
    /// [`add_blocks`](Self::add_blocks) does.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the tree needs a block and there is none; nothing is changed then. Corruption.
    pub(crate) fn make_unwritten(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        start: u32,
        len: u32,
    ) -> Result<u32> {
        inode.join(handle);
        let mut map = self.map(inode)?.lock();
        let (mut at, end, mut changed) = (start, start + len, false);
        while at < end {
            let run = map.run_in_extent(at, (end - at).min(extent::MAX_UNWRITTEN));
            if let State::Written(physical) = run.state {
                if changed && !handle.ensure(map.change_credits()) {
                    return Ok(at - start);
                }
                let extent = Extent { logical: run.logical, physical, len: run.len, unwritten: true };
                let plan = map.plan_convert(handle.tid(), extent, false)?;
                let mut reservation = match self.allocator.reserve(plan.blocks) {
                    Err(Error::NoSpace) if changed => return Ok(at - start),
                    reserved => reserved?,
                };
                self.edit(handle, inode, physical, &mut reservation, |edit| map.carry_out(edit, plan))?;
                changed = true;
            }
            at += run.len;
        }
        Ok(len)
    }

    /// Cuts the unwritten extents that hold `start` and `end - 1` at `start` and `end`, which are pinned. Joins
    /// the inode.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the tree needs a block and there is none.
    pub(crate) fn split_at_edges(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        start: u32,
        end: u32,
    ) -> Result<()> {
        inode.join(handle);
        let mut map = self.map(inode)?.lock();
        for edge in [start, end - 1] {
            let Some(whole) = map.extent_from(edge) else { continue };
            let (first, last) = (whole.logical.get().max(start), whole.end().min(u64::from(end)));
            let len = u32::try_from(last).unwrap_or(u32::MAX) - first;
            if whole.unwritten && len < whole.len {
                let plan = map.plan_cut(handle.tid(), first, len)?;
                let mut reservation = self.allocator.reserve(plan.blocks)?;
                self.edit(handle, inode, whole.physical, &mut reservation, |edit| map.carry_out(edit, plan))?;
            }
        }
        Ok(())
    }

    /// Carries out a change after which there is no way back: what is needed was reserved, unless others made
    /// the tree much deeper since.
    fn carry_out_reserved(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        map: &mut Writer<'_>,
        goal: FsBlock,
        plan: Plan,
        reservation: &mut Reservation<'_>,
    ) -> Result<()> {
        reservation.top_up(plan.blocks).map_err(|_| {
            Error::corrupt("extent tree: too few blocks reserved to convert what was written")
        })?;
        self.edit(handle, inode, goal, reservation, |edit| map.carry_out(edit, plan))
    }
}

/// Lays runs of blocks over holes of a file, in order; both are cut where the other ends, and to what one
/// extent can map.
fn pair(holes: &[(u32, u32)], runs: &[Run], written: bool) -> impl Iterator<Item = Extent> {
    let mut holes = holes.iter().copied();
    let mut runs = runs.iter().copied();
    let (mut hole, mut run) = (holes.next(), runs.next());
    std::iter::from_fn(move || {
        let ((logical, hole_len), current) = (hole?, run?);
        let len = hole_len.min(current.len).min(extent::MAX_UNWRITTEN);
        hole = if len == hole_len { holes.next() } else { Some((logical + len, hole_len - len)) };
        let rest = Run { start: current.start + u64::from(len), len: current.len - len };
        run = if rest.len == 0 { runs.next() } else { Some(rest) };
        Some(Extent { logical: FileBlock(logical), physical: current.start, len, unwritten: !written })
    })
}
