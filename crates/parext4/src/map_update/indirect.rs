//! Changes of files with indirect blocks.
//!
//! Responsible for changing such a map together with the allocator, the inode's block count and the
//! journal's credits. Not responsible for data. Invariant: a claimed block is neither among the
//! free extents nor in use, and is released or converted once.

use std::iter::Peekable;

use parext4_format::extent::{self, Extent};
use parext4_format::indirect::{self, PointerBlock};
use parext4_format::{BlockRange, FileBlock, FsBlock};
use smallvec::SmallVec;

use super::FillOptions;
use super::clusters::pair;
use super::unmap::{REVOKES_PER_HANDLE, REVOKES_PER_STEP};
use crate::allocator::{AllocMode, BlockRequest, BlockSource, FREE_CREDITS, Reservation, Runs};
use crate::block_map::BlockMap;
use crate::convert::saturating_u32;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded, when_planted};
use crate::indirect_map::{IndirectMap, LeafPart, Writer};
use crate::inode::{Cached, Inode, PastEnd};
use crate::journal::Handle;
use crate::mapping::BlockState;
use crate::sync::Arc;

/// Pointer blocks that are missing above holes, and the claim of blocks for them. Dropping it
/// releases the claim, so a write that finds no space for its data waits without one (H40).
#[must_use]
struct ClaimedPointers<'a> {
    missing: SmallVec<[PointerBlock; 3]>,
    claim: Reservation<'a>,
}

impl ClaimedPointers<'_> {
    /// Passes the claim to the map, except for pointer blocks that another thread has reserved
    /// since. The map has been locked since the claim was made.
    fn keep(mut self, map: &IndirectMap) {
        let kept = self.claim.take(map.reserve_missing(&self.missing));
        debug_assert!(kept, "a block is claimed for each");
    }
}

impl Engine {
    /// As [`fill_holes`](Self::fill_holes). Unless `options.written`, claims the new blocks and
    /// changes nothing on the device, and joins no inode.
    pub(super) fn fill_leaves<'a>(
        &'a self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        map: &IndirectMap,
        blocks: BlockRange,
        mut options: FillOptions<'_, 'a>,
    ) -> Result<u32> {
        if self.layout().blocks_count > indirect::MAX_BLOCK {
            let problem = "blocks are added only in volumes of less than 2^32 blocks";
            return Err(Error::Unsupported(format!(
                "inode {}: a file without extents: {problem}",
                inode.ino()
            )));
        }
        if !options.written {
            // A failed write leaves its claims.
            self.note_preallocated(inode);
        }
        let writer = if options.written || options.in_order { map.lock() } else { map.lock_shared() };
        let holes = holes_of(map, blocks)?;
        let (Some(first), Some(last)) = (holes.first(), holes.last()) else { return Ok(blocks.count()) };
        let pointers = self.claim_pointers(map, holes.iter().copied())?;
        let goal = self.goal(inode, map, first.start())?;
        let mode = if options.written {
            inode.join(handle);
            AllocMode::InUse(handle)
        } else {
            AllocMode::Claim
        };
        let request =
            BlockRequest { growth: options.growth, windows: &inode.windows, map, holes: &holes, goal };
        let runs = match mode {
            AllocMode::InUse(_) => {
                let _quota = self.reserve_for_holes(inode, &holes, &options.source)?;
                self.allocator().allocate(mode, &request, &mut options.source)?
            }
            AllocMode::Claim => self.claim_for_holes(inode, &request, &mut options.source)?,
        };
        pointers.keep(map);
        let mut pieces = pair(&holes, &runs, extent::MAX_UNWRITTEN, options.written).peekable();
        let filled = self.fill_pieces(handle, inode, &writer, &mut pieces, options.written);
        for rest in pieces {
            match mode {
                AllocMode::InUse(handle) => self.allocator().free_data(handle, rest.physical, rest.len)?,
                AllocMode::Claim => self.release_claim(inode, rest.physical, rest.len),
            }
        }
        let start = blocks.start().to_u64();
        let end = filled?.unwrap_or(start);
        Ok(if end == last.end() { blocks.count() } else { BlockRange::clamped(start, end).count() })
    }

    /// Claims blocks for the holes of a request, and reserves them of the quotas. They stay
    /// reserved until their conversion charges them, or [`release_claim`](Self::release_claim).
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`]; [`Error::NoSpace`]; corruption of a group.
    fn claim_for_holes<'a>(
        &'a self,
        inode: &Inode,
        request: &BlockRequest<'_, IndirectMap>,
        source: &mut BlockSource<'_, 'a>,
    ) -> Result<Runs> {
        let (wanted, unit) =
            (request.holes.iter().map(|hole| hole.count()).sum::<u32>(), self.layout().block_size);
        match source {
            BlockSource::Free(credentials) => inode.delay_quota(wanted, unit, *credentials)?,
            // Dirty pages had them reserved until now.
            BlockSource::Claim(_) => inode.delay_quota_again(wanted, unit),
        }
        let runs = self.allocator().allocate(AllocMode::Claim, request, source);
        let got = runs.as_ref().map_or(0, |runs| runs.iter().map(|run| run.len).sum());
        inode.undelay_quota(wanted.saturating_sub(got), unit);
        runs
    }

    /// Releases claimed blocks that are not mapped.
    fn release_claim(&self, inode: &Inode, start: FsBlock, len: u32) {
        inode.undelay_quota(len, self.layout().block_size);
        self.allocator().release_claimed(start, len);
    }

    /// Maps `pieces` in order, until the transaction is full. Removes the mapped ones from
    /// `pieces`. Returns the end of the last one.
    fn fill_pieces(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        writer: &Writer<'_>,
        pieces: &mut Peekable<impl Iterator<Item = Extent>>,
        written: bool,
    ) -> Result<Option<u64>> {
        let mut end = None;
        while let Some(piece) = pieces.peek_mut() {
            if written && end.is_some() && !handle.ensure(IndirectMap::CHANGE_CREDITS) {
                break;
            }
            let part = writer.part(piece.blocks())?;
            if written {
                self.link(handle, inode, writer, &part, piece.physical)?;
                writer.register(handle, &part)?;
                writer.map_written(&part, piece.physical);
                inode.add_blocks(handle, part.blocks.len(), self.layout().block_size);
            } else {
                writer.claim(&part, piece.physical);
            }
            end = Some(part.blocks.end());
            let len = part.blocks.count();
            if len == piece.len {
                pieces.next();
            } else {
                piece.logical += len;
                piece.physical += u64::from(len);
                piece.len -= len;
            }
        }
        Ok(end)
    }

    /// Maps blocks that are in use already, as written, until the transaction is full. Returns the
    /// number of blocks. The inode has joined the transaction.
    pub(super) fn map_pointers(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        map: &IndirectMap,
        extent: Extent,
    ) -> Result<u32> {
        let start = extent.logical.to_u64();
        let mut pieces = std::iter::once(extent).peekable();
        let end = self.fill_pieces(handle, inode, &map.lock(), &mut pieces, true)?;
        Ok(saturating_u32(end.map_or(0, |end| end - start)))
    }

    /// Claims blocks for the pointer blocks that are missing above `holes`. The map is locked.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::FileTooLarge`]; a corrupt pointer block.
    fn claim_pointers(
        &self,
        map: &IndirectMap,
        holes: impl Iterator<Item = BlockRange>,
    ) -> Result<ClaimedPointers<'_>> {
        let mut missing = SmallVec::new();
        for mut rest in holes {
            while !rest.is_empty() {
                map.add_missing(rest.start(), &mut missing)?;
                rest = rest.skip(map.rest_of_leaf(rest.start()));
            }
        }
        let claim = self.allocator().reserve(saturating_u32(missing.len()))?;
        Ok(ClaimedPointers { missing, claim })
    }

    /// Has `delay` reserve space for `blocks` of a file, holes that are about to be dirty, and
    /// reserves the pointer blocks that are missing above them. The existing ones stay while the
    /// file has delayed blocks ([`may_remove`](Self::may_remove)).
    ///
    /// # Errors
    /// The error of `delay`. [`Error::NoSpace`]; a corrupt pointer block.
    pub(super) fn delay_with_pointers(
        &self,
        inode: &Arc<Inode>,
        blocks: &[FileBlock],
        delay: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let map = match self.block_map(inode)? {
            BlockMap::Indirect(map) => map,
            // `delay` also reserves what a tree of extents needs, and contents in the inode have no
            // blocks.
            BlockMap::Extents(_) | BlockMap::Inline(_) => return delay(),
        };
        self.note_preallocated(inode);
        // Held until the blocks count as delayed.
        let mut writer = Some(map.lock_shared());
        when_planted!(Fault::DelayedUnlocked, writer = None);
        let pointers = self.claim_pointers(map, blocks.iter().map(|&block| BlockRange::of_block(block)))?;
        delay()?;
        pointers.keep(map);
        drop(writer);
        Ok(())
    }

    /// Returns true if an operation that unmaps the blocks of `part` may remove the leaf, which is
    /// empty then: no dirty page relies on its pointer block (H29). The operation drops the pages
    /// of its own blocks. The map is locked exclusively, so no thread reserves the blocks of a
    /// page.
    fn may_remove(&self, inode: &Inode, part: &LeafPart) -> bool {
        let is_relied_on = || inode.cached().is_some_and(|cached| cached.delayed() > 0);
        part.is_empty_leaf()
            && (part.is_whole_leaf() || guarded!(Fault::DelayedIgnored, !is_relied_on(), true))
    }

    /// Adds the pointer blocks that the leaf of `part` lacks, near volume block `goal`. They are
    /// reserved. The map is locked exclusively.
    fn link(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        writer: &Writer<'_>,
        part: &LeafPart,
        goal: FsBlock,
    ) -> Result<()> {
        let missing = writer.missing(part)?;
        let mut reserved = self.allocator().attach(writer.take_reserved(part));
        reserved.top_up(saturating_u32(missing))?;
        let mut blocks = SmallVec::<[FsBlock; 3]>::new();
        for _ in 0..missing {
            blocks.push(self.allocator().allocate_metadata(handle, goal, &mut reserved)?);
        }
        inode.add_blocks(handle, missing as u64, self.layout().block_size);
        writer.link(handle, part, &blocks)
    }

    /// As [`convert`](Self::convert): sets the bits and the pointers of claimed blocks, and counts
    /// them.
    pub(super) fn convert_claims(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        map: &IndirectMap,
        blocks: BlockRange,
    ) -> Result<u32> {
        let mut writer = map.lock_shared();
        let (mut rest, mut changed) = (blocks, false);
        while !rest.is_empty() {
            let part = writer.part(rest)?;
            let run = part.first_run();
            let BlockState::Unwritten(start) = run.state else {
                rest = rest.skip(run.len);
                continue;
            };
            if changed && !handle.ensure(FREE_CREDITS + IndirectMap::CHANGE_CREDITS) {
                break;
            }
            if writer.missing(&part)? > 0 {
                // The leaf stays, because blocks in it are claimed.
                writer.make_exclusive();
                self.link(handle, inode, &writer, &part, start)?;
            }
            let part = part.take(self.allocator().usable_head(start, run.len));
            let len = part.blocks.count();
            writer.register(handle, &part)?;
            self.allocator().use_claimed(handle, start, len)?;
            inode.add_reserved_blocks(handle, len, self.layout().block_size);
            writer.convert(&part);
            changed = true;
            rest = rest.skip(len);
        }
        Ok(rest.start() - blocks.start())
    }

    /// As [`remove_range`](Self::remove_range). Claimed blocks are released at once. Also frees the
    /// pointer blocks that are empty then, unless dirty pages rely on them.
    pub(super) fn remove_pointers(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        map: &IndirectMap,
        blocks: BlockRange,
    ) -> Result<bool> {
        let writer = map.lock();
        drop(self.allocator().attach(writer.release_reserved(blocks)));
        let metadata = inode.holds_metadata();
        let (mut rest, mut changed, mut revoked) = (blocks, false, 0);
        let mut freed = Vec::new();
        while let Some(part) = writer.last_part(rest)? {
            while let Some(run) = part.last_run(rest.end()) {
                let BlockState::Written(start) = run.state else {
                    writer.unmap(&part, &run);
                    if let BlockState::Unwritten(start) = run.state {
                        self.release_claim(inode, start, run.len);
                    }
                    continue;
                };
                let full = revoked >= REVOKES_PER_HANDLE
                    || !handle.ensure(FREE_CREDITS + IndirectMap::CHANGE_CREDITS);
                if full && changed {
                    return Ok(false);
                }
                let most = if metadata { REVOKES_PER_STEP } else { u32::MAX };
                let len = self.allocator().freeable_tail(start, run.len).min(most);
                let tail = run.tail(len);
                writer.register(handle, &part)?;
                writer.unmap(&part, &tail);
                let at = start + u64::from(run.len - len);
                if metadata {
                    self.allocator().free_metadata(handle, at, len)?;
                    revoked += len;
                } else {
                    self.allocator().free_data(handle, at, len)?;
                }
                inode.sub_blocks(handle, u64::from(len), self.layout().block_size);
                changed = true;
            }
            if self.may_remove(inode, &part) {
                if !handle.ensure(IndirectMap::CHANGE_CREDITS) && changed {
                    return Ok(false);
                }
                writer.unlink(handle, &part, &mut freed)?;
                changed |= !freed.is_empty();
                revoked += self.free_pointers(handle, inode, &mut freed)?;
            }
            rest = BlockRange::clamped(rest.start().to_u64(), part.leaf_start());
            if rest.is_empty() {
                break;
            }
        }
        while writer.has_empty() {
            if !handle.ensure(IndirectMap::CHANGE_CREDITS) && changed {
                return Ok(false);
            }
            writer.remove_empty(handle, &mut freed)?;
            changed = true;
            self.free_pointers(handle, inode, &mut freed)?;
        }
        Ok(true)
    }

    /// Frees pointer blocks that were removed. Returns their number.
    fn free_pointers(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        freed: &mut Vec<FsBlock>,
    ) -> Result<u32> {
        let mut count = 0;
        for block in freed.drain(..) {
            self.allocator().free_metadata(handle, block, 1)?;
            count += 1;
        }
        inode.sub_blocks(handle, u64::from(count), self.layout().block_size);
        Ok(count)
    }

    /// Releases what an inode that is deleted has claimed besides the blocks that were mapped.
    pub(crate) fn release_all_claims(&self, inode: &Arc<Inode>) {
        if let Some(map) = inode.loaded_block_map().and_then(BlockMap::indirect_map) {
            self.release_claims(inode, map);
        }
    }

    /// Releases the blocks that failed writes have claimed, unless pages wait for write-back. The
    /// caller holds the range of the whole file.
    pub(super) fn release_claims(&self, inode: &Arc<Inode>, map: &IndirectMap) {
        if inode.cached().is_some_and(Cached::has_work) {
            return;
        }
        self.forget_preallocated(inode, PastEnd::Nothing);
        let released = map.release_claims();
        for run in released.runs {
            self.release_claim(inode, run.start, run.len);
        }
        drop(self.allocator().attach(released.reserved));
    }
}

/// Returns the holes of `blocks`, in ascending order.
fn holes_of(map: &IndirectMap, blocks: BlockRange) -> Result<Vec<BlockRange>> {
    let (mut rest, mut holes) = (blocks, Vec::new());
    while !rest.is_empty() {
        let run = map.run(rest.start(), rest.count())?;
        if run.is_hole() {
            holes.push(run.blocks());
        }
        rest = rest.skip(run.len);
    }
    Ok(holes)
}
