//! Moving the blocks of a file to other file blocks.

use parext4_format::{BlockRange, FileBlock};

use crate::allocator::{FREE_CREDITS, Reservation};
use crate::engine::Engine;
use crate::error::Result;
use crate::inode::Inode;
use crate::journal::Handle;
use crate::mapping::Shift;
use crate::sync::Arc;

/// Maximum number of blocks that splitting one extent needs at any depth of the tree.
pub(crate) const CUT_BLOCKS: u32 = 6;

impl Engine {
    /// Returns the credits with which one handle can remove `blocks` and move all blocks after
    /// them, if the journal has that many. With fewer, it takes several handles.
    pub(crate) fn shift_credits(&self, inode: &Inode, blocks: BlockRange) -> Result<u32> {
        let map = self.extents(inode)?;
        let pieces: u32 = map.runs(blocks).map(|run| u32::from(!run.is_hole())).sum();
        let (after, end) = {
            let map = map.lock();
            (map.nodes_past(blocks.start().to_u64()), map.nodes_past(blocks.end()))
        };
        // Each removed node frees a block. `spare` covers a tree that grows one level meanwhile.
        let gone = after.saturating_sub(end).saturating_mul(FREE_CREDITS);
        let spare = self.map_credits(inode)? + map.change_credits();
        Ok(spare
            .saturating_add(after)
            .saturating_add(gone)
            .saturating_add(pieces.saturating_mul(FREE_CREDITS)))
    }

    /// Moves extents under a handle. Joins the inode. Returns true if all were moved; otherwise
    /// `shift` holds the rest, and the caller continues with a new handle.
    ///
    /// First splits the extent that maps the blocks on both sides of the start of `shift`;
    /// `reservation` has [`CUT_BLOCKS`] blocks for it.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`](crate::Error::FileTooLarge), with nothing changed under this handle,
    /// if the split makes the tree deeper than the format permits. Any other error means
    /// corruption; the volume then stops.
    pub(crate) fn shift(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        shift: &mut Shift,
        reservation: &mut Reservation<'_>,
    ) -> Result<bool> {
        let mut map = self.extents(inode)?.lock();
        let first = FileBlock::from_u64(shift.start);
        let cut = first.and_then(|first| Some((first, map.extent_from(first)?)));
        if let Some((first, whole)) = cut.filter(|(first, whole)| whole.logical < *first) {
            let (_, moving) = whole.blocks().split_at(first);
            let plan = map.plan_cut(handle.tid(), moving)?;
            reservation.top_up(plan.blocks)?;
            inode.join(handle);
            self.edit(handle, inode, whole.physical, reservation, |edit| map.carry_out(edit, plan))?;
        }
        inode.join(handle);
        map.shift(handle, self.cache(), shift)
    }
}
