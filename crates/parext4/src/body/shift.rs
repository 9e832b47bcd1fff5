//! Moving what an inode's map holds after a block to other file blocks.

use crate::allocator::{FREE_CREDITS, Reservation};
use crate::engine::Engine;
use crate::error::Result;
use crate::extent_map::{ExtentMap, Shift, State};
use crate::inode::Inode;
use crate::journal::Handle;
use crate::sync::Arc;

impl Engine {
    /// Credits with which the blocks of `[start, start + len)` can be removed and all after them moved in one
    /// handle, if the journal is large enough for that; else it takes several.
    pub(crate) fn shift_credits(&self, inode: &Inode, start: u32, len: u32) -> Result<u32> {
        let map = self.map(inode)?;
        let pieces = map.runs(start, len).filter(|run| run.state != State::Hole).count();
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        let (after, end) = {
            let map = map.lock();
            (map.nodes_past(start.into()), map.nodes_past(u64::from(start) + u64::from(len)))
        };
        // Nodes that go away free a block each; a tree that gets deeper meanwhile gets a few nodes more.
        let gone = after.saturating_sub(end).saturating_mul(FREE_CREDITS);
        let spare = self.map_credits(inode)? + map.change_credits();
        Ok(spare
            .saturating_add(after)
            .saturating_add(gone)
            .saturating_add(pieces.saturating_mul(FREE_CREDITS)))
    }

    /// Moves extents as `shift` says, under a handle. Joins the inode. Returns whether all is done; else `shift` says
    /// what is left, and the caller goes on with a new handle.
    ///
    /// An extent that has to be cut comes last; for that `reservation` has what [`ExtentMap::CUT_BLOCKS`] says.
    ///
    /// # Errors
    /// Corruption; the volume then stops.
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
    /// The most blocks that cutting one extent takes, however deep the tree may be by then.
    pub(crate) const CUT_BLOCKS: u32 = 6;
}
