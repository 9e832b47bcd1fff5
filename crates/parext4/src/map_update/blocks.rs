//! Adding blocks to a file and converting them between unwritten and written.
//!
//! Responsible for changing the map together with the allocator, the inode's block count and the
//! journal's credits. Not responsible for data. Invariant: a change either is complete, or stops
//! between two extents with everything accounted for.

use std::iter::Peekable;

use parext4_format::extent::{self, Extent};
use parext4_format::{BlockRange, FileBlock, FsBlock};
use smallvec::SmallVec;

use super::clusters::{self, HolePart, Piece, without_place};
use super::inline::has_no_blocks;
use crate::allocator::{
    ALLOCATE_CREDITS, AllocMode, BlockRequest, BlockSource, FREE_CREDITS, Growth, Neighbours, Reservation,
    Runs,
};
use crate::block_map::BlockMap;
use crate::credentials::Credentials;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::extent_map::{Edit, ExtentMap, Plan, Writer};
use crate::fault::{Fault, guarded};
use crate::indirect_map::IndirectMap;
use crate::inode::{Cached, Inode};
use crate::journal::Handle;
use crate::mapping::{BlockState, Mapping};
use crate::quota::ReservedQuota;
use crate::sync::Arc;

/// How holes are filled.
#[derive(Debug)]
pub(crate) struct FillOptions<'c, 'a> {
    /// True if the blocks are mapped as written, because the caller writes their contents
    /// (metadata).
    pub written: bool,
    /// True if the request extends the file, maybe by blocks outside the caller's range. The map is
    /// then locked throughout, so that a concurrent append finds the blocks mapped and not merely
    /// allocated.
    pub in_order: bool,
    /// The expected growth of the file.
    pub growth: Growth,
    pub source: BlockSource<'c, 'a>,
    /// The dirty pages of the file, if the caller writes some of them back. It uses the claims of
    /// their clusters.
    pub delayed: Option<&'c Cached>,
    /// The end of the caller's range, in file blocks. Blocks past it are mapped only if the file
    /// ends before it, because then no other operation can hold and move them.
    pub held: u64,
}

impl Engine {
    /// Returns the credits with which [`add_blocks`](Self::add_blocks) and similar calls make
    /// progress.
    pub(crate) fn map_credits(&self, inode: &Inode) -> Result<u32> {
        let change = match self.block_map(inode)? {
            // The tree may grow one level before the handle starts.
            BlockMap::Extents(map) => ExtentMap::credits_at_depth(map.depth() + 1),
            BlockMap::Indirect(_) => IndirectMap::CHANGE_CREDITS,
            BlockMap::Inline(_) => return Ok(1),
        };
        Ok(1 + ALLOCATE_CREDITS.max(FREE_CREDITS) + change)
    }

    /// Returns the credits with which [`convert`](Self::convert) converts `pieces` unwritten runs
    /// in one handle, at most the maximum of the journal. With fewer credits, `convert` stops
    /// early.
    pub(crate) fn conversion_credits(&self, inode: &Inode, pieces: u32) -> Result<u32> {
        let first = self.map_credits(inode)?;
        if pieces <= 1 {
            return Ok(first);
        }
        let more = match self.block_map(inode)? {
            BlockMap::Extents(map) => {
                // The last run may be split like the first. Each run between changes one path of
                // the tree.
                let between = (pieces - 1).saturating_mul(u32::from(map.depth())).min(map.max_node_blocks());
                map.change_credits().saturating_add(between)
            }
            // Each run usually changes one leaf, and the bitmap and descriptor of one group.
            BlockMap::Indirect(_) => (pieces - 1).saturating_mul(3),
            BlockMap::Inline(_) => return Err(has_no_blocks(inode)),
        };
        Ok(first.saturating_add(more).min(self.journal().max_credits()))
    }

    /// Returns the goal for a new block at file block `logical`.
    pub(super) fn goal(&self, inode: &Inode, map: &impl Neighbours, logical: FileBlock) -> Result<FsBlock> {
        map.goal(logical).map_or_else(|| self.first_goal(inode), Ok)
    }

    /// Returns the goal for the first block of a file.
    pub(crate) fn first_goal(&self, inode: &Inode) -> Result<FsBlock> {
        let group = self.allocator().group_of_inode(inode.ino())?;
        Ok(self.allocator().goal_in_group(group, inode.ino().get()))
    }

    /// Like [`fill_holes`](Self::fill_holes), for a file of which no further growth is expected.
    pub(crate) fn add_blocks(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        blocks: BlockRange,
        written: bool,
        credentials: Credentials,
    ) -> Result<u32> {
        let (growth, source, held) = (Growth::Exact, BlockSource::Free(credentials), blocks.end());
        let options = FillOptions { written, in_order: false, growth, source, delayed: None, held };
        self.fill_holes(handle, inode, blocks, options)
    }

    /// Maps every hole of `blocks` to new blocks from one call of the allocator. The new blocks are
    /// unwritten unless `options.written`. Joins the inode.
    ///
    /// Returns the number of file blocks processed from the first one on. It is less than the
    /// length of `blocks` if the transaction is full, if the free blocks are too far apart, or if
    /// another thread mapped a part; the caller continues with a new handle.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::FileTooLarge`], with the map unchanged. Corruption.
    pub(crate) fn fill_holes<'a>(
        &'a self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        blocks: BlockRange,
        mut options: FillOptions<'_, 'a>,
    ) -> Result<u32> {
        let map = match self.block_map(inode)? {
            BlockMap::Extents(map) => map,
            BlockMap::Indirect(map) => return self.fill_leaves(handle, inode, map, blocks, options),
            BlockMap::Inline(_) => return Err(has_no_blocks(inode)),
        };
        // A concurrent preallocation may have mapped some of the holes that this thread would find
        // without the lock. Another thread may fill the rest of a cluster that this thread fills in
        // part (H38).
        let shares_cluster = guarded!(Fault::ClusterUnlocked, !self.layout().is_whole_clusters(blocks));
        let mut writer = (options.in_order || shares_cluster).then(|| map.lock());
        let holes = holes_of(map, self.fillable(inode, blocks, options.held));
        let Some(last) = holes.last() else { return Ok(blocks.count()) };
        let parts = clusters::parts(self.layout(), map, &holes);
        let claimed = self.take_delayed(inode, &mut options, &parts);
        let added = self.fill_parts(handle, inode, map, &mut writer, &parts, &mut options);
        let end = *added.as_ref().unwrap_or(&None);
        self.return_delayed(inode, &mut options, &claimed, end);
        added?;
        let start = blocks.start().to_u64();
        let end = end.unwrap_or(start);
        Ok(if end == last.end() { blocks.count() } else { BlockRange::clamped(start, end).count() })
    }

    /// Maps `parts` of holes in order, to new blocks from one call of the allocator where the file
    /// does not have their clusters. Returns the end of what it has mapped.
    fn fill_parts<'a, 'm>(
        &'a self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        map: &'m ExtentMap,
        writer: &mut Option<Writer<'m>>,
        parts: &[HolePart],
        options: &mut FillOptions<'_, 'a>,
    ) -> Result<Option<u64>> {
        let holes: SmallVec<[BlockRange; 4]> = without_place(parts).collect();
        let _quota = self.reserve_for_holes(inode, &holes, &options.source)?;
        let mut claimed_now;
        // Counts as one claim in flight until the blocks are mapped, or have come back because the
        // tree lacks some.
        let claim = match &mut options.source {
            BlockSource::Claim(claim) => &mut **claim,
            BlockSource::Free(credentials) => {
                claimed_now = self.allocator().reserve_for_holes(&holes, *credentials)?;
                &mut claimed_now
            }
        };
        let mut runs = Runs::new();
        if let Some(first) = holes.first() {
            let goal = self.goal(inode, map, first.start())?;
            let request =
                BlockRequest { growth: options.growth, windows: &inode.windows, map, holes: &holes, goal };
            runs = self.allocator().allocate(
                AllocMode::InUse(handle),
                &request,
                &mut BlockSource::Claim(&mut *claim),
            )?;
        }
        // After the allocation, so that nothing has changed if a bitmap could not be read.
        inode.join(handle);
        let mut pieces =
            clusters::pieces(self.layout(), parts, &runs, options.written).into_iter().peekable();
        let added = self.add_extents(handle, inode, map, writer, &mut pieces, claim);
        // Any other error stops the volume.
        if matches!(added, Ok(_) | Err(Error::NoSpace | Error::FileTooLarge)) {
            self.return_unmapped(handle, pieces, claim)?;
        }
        added
    }

    /// Reserves the blocks of `holes` of the quotas, unless the blocks come from a claim: then
    /// dirty pages have reserved them, or they belong to an inode that no quota counts.
    pub(super) fn reserve_for_holes(
        &self,
        inode: &Inode,
        holes: &[BlockRange],
        source: &BlockSource<'_, '_>,
    ) -> Result<ReservedQuota> {
        let BlockSource::Free(credentials) = source else { return Ok(ReservedQuota::default()) };
        let blocks = holes.iter().map(|hole| self.layout().clusters_of(*hole).len()).sum();
        inode.reserve_quota(blocks, 0, self.layout().block_size, *credentials)
    }

    /// Returns the part of `blocks` that may be mapped for a caller whose range ends at block
    /// `held`.
    fn fillable(&self, inode: &Inode, blocks: BlockRange, held: u64) -> BlockRange {
        let ends_within = guarded!(Fault::PreallocateBelowSize, held * self.block_size() < inode.size());
        let end = if ends_within { blocks.end().min(held) } else { blocks.end() };
        BlockRange::clamped(blocks.start().to_u64(), end)
    }

    /// Maps `pieces` in order, until the transaction is full, space runs out, or a piece is not a
    /// hole any more. Removes the mapped ones from `pieces`. Returns the end of the last one.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::FileTooLarge`], if no piece was mapped. Corruption.
    fn add_extents<'m>(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        map: &'m ExtentMap,
        writer: &mut Option<Writer<'m>>,
        pieces: &mut Peekable<impl Iterator<Item = Piece>>,
        claim: &mut Reservation<'_>,
    ) -> Result<Option<u64>> {
        let mut end = None;
        while let Some(&piece) = pieces.peek() {
            match self.add_extent(handle, inode, map, writer, piece, claim) {
                Ok(true) => {}
                Ok(false) => break,
                Err(Error::NoSpace | Error::FileTooLarge) if end.is_some() => break,
                Err(error) => return Err(error),
            }
            end = Some(piece.extent.end());
            pieces.next();
            // A change within one leaf uses no credits. So if only such changes were made, the
            // credits for the first change of a tree that grew meanwhile are still available.
            if pieces.peek().is_some() && !handle.ensure(map.change_credits()) {
                break;
            }
        }
        Ok(end)
    }

    /// Returns blocks to `claim` that this handle allocated from it and did not map. Needs no
    /// further credits.
    fn return_unmapped(
        &self,
        handle: &Handle<'_>,
        mut pieces: impl Iterator<Item = Piece>,
        claim: &mut Reservation<'_>,
    ) -> Result<()> {
        pieces.try_for_each(|piece| match piece.allocated(self.layout()) {
            Some(run) => guarded!(
                Fault::UnmappedFreed,
                self.allocator().take_back(handle, run, claim),
                self.allocator().free_data(handle, run.start, run.len)
            ),
            None => Ok(()),
        })
    }

    /// Maps `piece`, within one leaf if possible, otherwise under the map's exclusive lock. Returns
    /// false if its blocks are not a hole any more.
    fn add_extent<'m>(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        map: &'m ExtentMap,
        writer: &mut Option<Writer<'m>>,
        piece: Piece,
        claim: &mut Reservation<'_>,
    ) -> Result<bool> {
        let extent = piece.extent;
        if writer.is_some() || !map.fill_in_leaf(handle.tid(), extent) {
            let writer = writer.get_or_insert_with(|| map.lock());
            if guarded!(Fault::FillUnchecked, !map.is_hole(extent.blocks())) {
                return Ok(false);
            }
            let plan = writer.plan_fill(handle.tid(), extent)?;
            claim.top_up(plan.blocks)?;
            self.edit(handle, inode, extent.physical, claim, |edit| writer.carry_out(edit, plan))?;
        }
        inode.add_blocks(handle, u64::from(piece.new_blocks), self.layout().block_size);
        Ok(true)
    }

    /// Runs one change of the map, and accounts for the nodes that it added and removed.
    pub(crate) fn edit(
        &self,
        handle: &Handle<'_>,
        inode: &Inode,
        goal: FsBlock,
        reservation: &mut Reservation<'_>,
        change: impl FnOnce(&mut Edit<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let (cache, allocator) = (self.cache(), self.allocator());
        let mut edit = Edit { handle, cache, allocator, reservation, goal, added: 0, freed: Vec::new() };
        change(&mut edit)?;
        let Edit { added, freed, .. } = edit;
        // Each node has a cluster.
        let blocks = |nodes: u64| nodes << self.layout().cluster_bits;
        inode.add_blocks(handle, blocks(added.into()), self.layout().block_size);
        inode.sub_blocks(handle, blocks(freed.len() as u64), self.layout().block_size);
        for block in freed {
            self.allocator().free_metadata(handle, block, 1)?;
        }
        Ok(())
    }

    /// Converts the unwritten blocks in `blocks` to written ones, with volume blocks reserved at
    /// submission (I5). Joins the inode. Returns the number of file blocks processed, as
    /// [`add_blocks`](Self::add_blocks) does.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`], with nothing converted, if the tree would exceed the maximum depth.
    /// Corruption, which stops the volume.
    pub(crate) fn convert(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        blocks: BlockRange,
        reservation: &mut Reservation<'_>,
    ) -> Result<u32> {
        inode.join(handle);
        let map = match self.block_map(inode)? {
            BlockMap::Extents(map) => map,
            BlockMap::Indirect(map) => return self.convert_claims(handle, inode, map, blocks),
            BlockMap::Inline(_) => return Err(has_no_blocks(inode)),
        };
        if map.convert_in_leaf(handle.tid(), blocks) {
            return Ok(blocks.count());
        }
        let mut map = map.lock();
        let mut rest = blocks;
        while !rest.is_empty() {
            let done = rest.start() - blocks.start();
            // Converting a whole extent adds no entry, so an extent that was split in advance needs
            // no block (I5).
            let run = map.run_in_extent(rest);
            rest = rest.skip(run.len);
            let BlockState::Unwritten(physical) = run.state else { continue };
            // The thread that held the lock before may have armed a set with room for a mark.
            if map.mark(handle.tid(), &run) == 0 {
                let extent = Extent { logical: run.logical, physical, len: run.len, unwritten: false };
                let ample = reservation.has(ExtentMap::worst_case(map.depth()));
                let plan = match map.plan_convert(handle.tid(), extent, ample) {
                    // The blocks converted so far must become visible in this transaction.
                    Err(Error::FileTooLarge) if done > 0 => return Ok(done),
                    plan => plan?,
                };
                if done > 0 && !handle.ensure(map.set_credits(plan.blocks)) {
                    return Ok(done);
                }
                self.carry_out_reserved(handle, inode, &mut map, physical, plan, reservation)?;
            }
        }
        Ok(blocks.count())
    }

    /// Converts the written blocks in `blocks` to unwritten ones. Joins the inode. Returns the
    /// number of file blocks processed, as [`add_blocks`](Self::add_blocks) does.
    ///
    /// # Errors
    /// [`Error::NoSpace`], with nothing changed, if the tree needs a block and there is none. The
    /// same for a bitmap that cannot be read. [`Error::Unsupported`] for a file without extents.
    /// Corruption.
    pub(crate) fn make_unwritten(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        blocks: BlockRange,
    ) -> Result<u32> {
        let map = self.extents(inode)?;
        let mut map = map.lock();
        let (mut rest, mut changed) = (blocks, false);
        while !rest.is_empty() {
            let done = rest.start() - blocks.start();
            let run = map.run_in_extent(rest.take(extent::MAX_UNWRITTEN));
            rest = rest.skip(run.len);
            if let BlockState::Written(physical) = run.state {
                if changed && !handle.ensure(map.change_credits()) {
                    return Ok(done);
                }
                let extent = Extent { logical: run.logical, physical, len: run.len, unwritten: true };
                let plan = map.plan_convert(handle.tid(), extent, false)?;
                let mut reservation = match self.reserve_nodes(&plan, physical) {
                    Err(_) if changed => return Ok(done),
                    reserved => reserved?,
                };
                inode.join(handle);
                self.edit(handle, inode, physical, &mut reservation, |edit| map.carry_out(edit, plan))?;
                changed = true;
            }
        }
        inode.join(handle);
        Ok(blocks.count())
    }

    /// Reserves the nodes that a change of the tree needs, and reads the bitmap from which they are
    /// allocated, because a failed read after the change has begun stops the volume.
    pub(super) fn reserve_nodes(&self, plan: &Plan, goal: FsBlock) -> Result<Reservation<'_>> {
        let reservation = self.allocator().reserve(plan.blocks)?;
        if plan.blocks > 0 {
            self.allocator().read_bitmap_for_metadata(goal)?;
        }
        Ok(reservation)
    }

    /// Splits the unwritten extents that map the first and the last of `blocks` at the bounds of
    /// `blocks`. The caller has pinned both bounds. Joins the inode.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the tree needs a block and there is none. A failed read; if one extent
    /// was split already, the volume stops.
    pub(crate) fn split_at_edges(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        blocks: BlockRange,
    ) -> Result<()> {
        let map = match self.block_map(inode)? {
            BlockMap::Extents(map) => map,
            // Claimed blocks are converted one by one.
            BlockMap::Indirect(_) => {
                inode.join(handle);
                return Ok(());
            }
            BlockMap::Inline(_) => return Err(has_no_blocks(inode)),
        };
        let mut map = map.lock();
        for edge in [Some(blocks.start()), blocks.last()].into_iter().flatten() {
            let Some(whole) = map.extent_from(edge) else { continue };
            let part = whole.blocks().intersection(blocks);
            if whole.unwritten && part.count() < whole.len {
                let plan = map.plan_cut(handle.tid(), part)?;
                let mut reservation = self.reserve_nodes(&plan, whole.physical)?;
                inode.join(handle);
                self.edit(handle, inode, whole.physical, &mut reservation, |edit| map.carry_out(edit, plan))?;
            }
        }
        inode.join(handle);
        Ok(())
    }

    /// Returns the map of a file with extents.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a file without extents.
    pub(super) fn extents<'i>(&self, inode: &'i Inode) -> Result<&'i ExtentMap> {
        match self.block_map(inode)? {
            BlockMap::Extents(map) => Ok(map),
            BlockMap::Indirect(_) => {
                Err(Error::Unsupported(format!("inode {}: it has no extents", inode.ino())))
            }
            BlockMap::Inline(_) => Err(has_no_blocks(inode)),
        }
    }

    /// Applies a change that must not fail. Its blocks were reserved, except if other threads made
    /// the tree deeper since; then it claims the missing ones.
    fn carry_out_reserved(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        map: &mut Writer<'_>,
        goal: FsBlock,
        plan: Plan,
        reservation: &mut Reservation<'_>,
    ) -> Result<()> {
        reservation
            .top_up(plan.blocks)
            .map_err(|_| Error::corrupt("extent tree: too few blocks reserved for a conversion"))?;
        self.edit(handle, inode, goal, reservation, |edit| map.carry_out(edit, plan))
    }
}

/// Returns the holes of `blocks`, in ascending order.
fn holes_of(map: &ExtentMap, blocks: BlockRange) -> Vec<BlockRange> {
    map.runs(blocks).filter(Mapping::is_hole).map(|run| run.blocks()).collect()
}
