//! Unmapping and freeing blocks of a file.

use parext4_format::extent::Extent;

use crate::allocator::FREE_CREDITS;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::journal::Handle;
use crate::sync::Arc;

/// Number of metadata blocks freed in one step. Each is revoked; with the nodes of the tree they fit one revoke block, for which
/// [`change_credits`](crate::extent_map::ExtentMap::change_credits) has a credit.
const REVOKES_PER_STEP: u32 = 64;
/// Number of metadata blocks freed in one handle.
const REVOKES_PER_HANDLE: u32 = 512;

impl Engine {
    /// Unmaps and frees the blocks from file block `from` on, the last first. Joins the inode. Returns true if all were freed;
    /// otherwise the caller continues with a new handle.
    ///
    /// # Errors
    /// An error means corruption; the volume then stops.
    pub(crate) fn remove_from(&self, handle: &Handle<'_>, inode: &Arc<Inode>, from: u32) -> Result<bool> {
        self.allocator.close_windows(&inode.windows, from);
        self.remove_range(handle, inode, from, 1 << 32)
    }

    /// Like [`remove_from`](Self::remove_from), for the blocks of `[start, end)`.
    ///
    /// # Errors
    /// [`Error::NoSpace`], with nothing changed, if the range lies within one extent, so that the tree needs a block, and there is
    /// none. Corruption; the volume then stops.
    pub(crate) fn remove_range(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        start: u32,
        end: u64,
    ) -> Result<bool> {
        inode.join(handle);
        let mut map = self.map(inode)?.lock();
        let metadata = inode.holds_metadata();
        let (mut changed, mut revoked) = (false, 0);
        let is_inside = |last: &Extent| u64::from(start) < end.min(last.end());
        while let Some(last) = map.last_before(end).filter(is_inside) {
            // Credits for freeing the extent and the nodes removed with it.
            let full = revoked >= REVOKES_PER_HANDLE || !handle.ensure(FREE_CREDITS + map.change_credits());
            if full && changed {
                return Ok(false);
            }
            let first = last.logical.get();
            let upto = u32::try_from(last.end().min(end) - u64::from(first)).unwrap_or(last.len);
            let most = if metadata { REVOKES_PER_STEP } else { u32::MAX };
            let within = upto - start.saturating_sub(first);
            let len = self.allocator.freeable_tail(last.physical, upto).min(within).min(most);
            let keep = upto - len;
            let plan = map.plan_remove(handle.tid(), first + keep, len)?;
            let mut reservation = match self.allocator.reserve(plan.blocks) {
                Err(Error::NoSpace) if changed => return Ok(false),
                reserved => reserved?,
            };
            self.edit(handle, inode, last.physical, &mut reservation, |edit| map.remove(edit, plan))?;
            changed = true;
            let freed = last.physical + u64::from(keep);
            if metadata {
                self.allocator.free_metadata(handle, freed, len)?;
                revoked += len;
            } else {
                self.allocator.free_data(handle, freed, len)?;
            }
            inode.sub_blocks(u64::from(len), self.layout.block_size);
        }
        Ok(true)
    }

    /// Frees all blocks from file block `from` on, in as many transactions as needed.
    pub(crate) fn free_blocks_from(&self, inode: &Arc<Inode>, from: u32) -> Result<()> {
        while !self.transact(self.map_credits(inode)?, |handle| self.remove_from(handle, inode, from))? {}
        Ok(())
    }
}
