//! Moving the blocks of a file to other file blocks.

use crate::allocator::{FREE_CREDITS, Reservation};
use crate::engine::Engine;
use crate::error::Result;
use crate::extent_map::{ExtentMap, Shift, State};
use crate::inode::Inode;
use crate::journal::Handle;
use crate::sync::Arc;

impl Engine {
    /// Returns the credits with which one handle can remove the blocks of `[start, start + len)` and move all blocks after them, if the
    /// journal has that many. With fewer, it takes several handles.
    pub(crate) fn shift_credits(&self, inode: &Inode, start: u32, len: u32) -> Result<u32> {
        let map = self.map(inode)?;
        let pieces = map.runs(start, len).filter(|run| run.state != State::Hole).count();
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        let (after, end) = {
            let map = map.lock();
            (map.nodes_past(start.into()), map.nodes_past(u64::from(start) + u64::from(len)))
        };
        // Each removed node frees a block. `spare` covers a tree that grows one level meanwhile.
        let gone = after.saturating_sub(end).saturating_mul(FREE_CREDITS);
        let spare = self.map_credits(inode)? + map.change_credits();
        Ok(spare
            .saturating_add(after)
            .saturating_add(gone)
            .saturating_add(pieces.saturating_mul(FREE_CREDITS)))
    }

    /// Moves extents under a handle. Joins the inode. Returns true if all were moved; otherwise `shift` holds the rest, and the
    /// caller continues with a new handle.
    ///
    /// An extent that must be split is handled last; `reservation` has [`ExtentMap::CUT_BLOCKS`] blocks for it.
    ///
    /// # Errors
    /// An error means corruption; the volume then stops.
    pub(crate) fn shift(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        shift: &mut Shift,
        reservation: &mut Reservation<'_>,
    ) -> Result<bool> {
        inode.join(handle);
        let mut map = self.map(inode)?.lock();
        let first = u32::try_from(shift.start).unwrap_or(u32::MAX);
        let whole = map.extent_from(first).filter(|extent| extent.logical.get() < first);
        if let Some(whole) = whole {
            let mut after = shift.starting_at(whole.end());
            let done = map.shift(handle, &self.cache, &mut after)?;
            shift.end = after.end;
            if !done || !handle.ensure(2 * map.change_credits()) {
                return Ok(false);
            }
            let len = u32::try_from(whole.end() - u64::from(first)).unwrap_or(whole.len);
            let plan = map.plan_cut(handle.tid(), first, len)?;
            reservation.top_up(plan.blocks)?;
            self.edit(handle, inode, whole.physical, reservation, |edit| map.carry_out(edit, plan))?;
        }
        map.shift(handle, &self.cache, shift)
    }
}

impl ExtentMap {
    /// Maximum number of blocks that splitting one extent needs at any depth of the tree.
    pub(crate) const CUT_BLOCKS: u32 = 6;
}
