//! Unmapping and freeing blocks of a file.

use parext4_format::extent::Extent;
use parext4_format::{BlockRange, FileBlock};

use super::clusters;
use crate::allocator::FREE_CREDITS;
use crate::block_map::BlockMap;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::journal::Handle;
use crate::mapping::BlockState;
use crate::sync::Arc;

/// Number of metadata blocks freed in one step. Each is revoked; with the nodes of the tree they
/// fit one revoke block, for which [`change_credits`](crate::extent_map::ExtentMap::change_credits)
/// has a credit, as for indirect blocks.
pub(super) const REVOKES_PER_STEP: u32 = 64;
/// Number of metadata blocks freed in one handle.
pub(super) const REVOKES_PER_HANDLE: u32 = 512;

impl Engine {
    /// Unmaps and frees the blocks of `tail`, which ends at the end of the file, the last first.
    /// Joins the inode. Returns true if all were freed; otherwise the caller continues with a new
    /// handle.
    ///
    /// # Errors
    /// An error means corruption; the volume then stops.
    pub(crate) fn remove_tail(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        tail: BlockRange,
    ) -> Result<bool> {
        self.allocator().close_windows(&inode.windows, tail.start());
        self.remove_range(handle, inode, tail)
    }

    /// Like [`remove_tail`](Self::remove_tail), for any `blocks`.
    ///
    /// # Errors
    /// [`Error::NoSpace`], with nothing changed, if the range lies within one extent, so that the
    /// tree needs a block, and there is none. Corruption, a failed read; the volume then stops,
    /// unless it is a bitmap that cannot be read for the first change, or in a deletion.
    pub(crate) fn remove_range(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        blocks: BlockRange,
    ) -> Result<bool> {
        let map = match self.block_map(inode)? {
            BlockMap::Extents(map) => map,
            BlockMap::Indirect(map) => {
                inode.join(handle);
                return self.remove_pointers(handle, inode, map, blocks);
            }
            // An inode without blocks has none to free.
            BlockMap::Inline(_) => {
                inode.join(handle);
                return Ok(true);
            }
        };
        // Of a file with names, the rest would be visible again if the file grew.
        let may_stop_here = inode.core().links == 0;
        let mut map = map.lock();
        let metadata = inode.holds_metadata();
        let (mut changed, mut revoked) = (false, 0);
        let is_inside = |last: &Extent| last.blocks().overlaps(blocks);
        while let Some(last) = map.last_before(blocks.end()).filter(is_inside) {
            // Credits for freeing the extent and the nodes removed with it.
            let full = revoked >= REVOKES_PER_HANDLE || !handle.ensure(FREE_CREDITS + map.change_credits());
            if full && changed {
                return Ok(false);
            }
            let inside = last.blocks().intersection(blocks);
            let upto = inside.start() - last.logical + inside.count();
            let most = if metadata { REVOKES_PER_STEP } else { u32::MAX };
            let len = self.allocator().freeable_tail(last.physical, upto).min(inside.count()).min(most);
            let keep = upto - len;
            let physical = last.physical + u64::from(keep);
            // A failed read after a change stops the volume. In a deletion, the next handle has it
            // before its first change.
            match self.allocator().read_bitmaps(physical, len) {
                Err(_) if changed && may_stop_here => return Ok(false),
                read => read?,
            }
            let plan = map.plan_remove(handle.tid(), last.blocks().skip(keep).take(len))?;
            let mut reservation = match self.reserve_nodes(&plan, last.physical) {
                Err(Error::NoSpace) if changed => return Ok(false),
                reserved => reserved?,
            };
            inode.join(handle);
            self.edit(handle, inode, last.physical, &mut reservation, |edit| map.remove(edit, plan))?;
            changed = true;
            let removed = Extent { logical: last.logical + keep, physical, len, unwritten: last.unwritten };
            if metadata {
                handle.revoke(physical, len);
                revoked += len;
            }
            // Under the map's lock, so that no thread maps another block of a cluster that is freed
            // (H38).
            if let Some(freed) = clusters::unused(self.layout(), &map, removed) {
                self.allocator().free_data(handle, freed.start, freed.len)?;
                inode.sub_blocks(handle, u64::from(freed.len), self.layout().block_size);
            }
        }
        inode.join(handle);
        Ok(true)
    }

    /// Reads the bitmaps that will change when the file's blocks from `start` on are freed, so that
    /// an operation fails before its first change. Of many runs of blocks, reads only the bitmaps
    /// of the first ones.
    ///
    /// # Errors
    /// Corruption, a failed read.
    pub(crate) fn read_bitmaps_from(&self, inode: &Inode, start: FileBlock) -> Result<()> {
        const RUNS: usize = 1024;
        let block_map = self.block_map(inode)?;
        let mapped = BlockRange::clamped(start.to_u64(), block_map.end()?);
        for run in block_map.runs(mapped).take(RUNS) {
            let run = run?;
            if let BlockState::Written(start) | BlockState::Unwritten(start) = run.state {
                self.allocator().read_bitmaps(start, run.len)?;
            }
        }
        Ok(())
    }

    /// Frees the blocks of `tail`, which ends at the end of the file, in as many transactions as
    /// needed.
    pub(crate) fn free_tail(&self, inode: &Arc<Inode>, tail: BlockRange) -> Result<()> {
        while !self.transact(self.map_credits(inode)?, |handle| self.remove_tail(handle, inode, tail))? {}
        Ok(())
    }
}
