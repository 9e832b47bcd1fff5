//! Freeing the blocks that were mapped ahead of growing files.

use rangelock::{ByteRange, Mode};

use crate::engine::Engine;
use crate::error::Result;
use crate::fault::{Fault, planted};
use crate::inode::{Behind, Inode};
use crate::sync::{Arc, Rank, hold};

impl Engine {
    /// Frees what was mapped ahead of the end of the file. Nobody writes it meanwhile.
    pub(crate) fn return_ahead(&self, inode: &Arc<Inode>) -> Result<()> {
        if !self.forget_ahead(inode, Behind::Nothing) {
            return Ok(());
        }
        let from = inode.size().div_ceil(self.block_size());
        self.free_blocks_from(inode, u32::try_from(from).unwrap_or(u32::MAX))
    }

    /// As [`return_ahead`](Self::return_ahead), when the last user lets go of the inode; unless there is a new
    /// one by now.
    pub(crate) fn return_ahead_of_unused(&self, inode: &Arc<Inode>) {
        if inode.behind() != Behind::Ahead {
            return;
        }
        let _held = hold(Rank::Range);
        let alone = inode.ranges.try_lock(ByteRange::ALL, Mode::Exclusive);
        if alone.is_none() && !planted(Fault::AheadUnheld) {
            return;
        }
        // Nobody can be told here. The blocks stay where they are, which is no harm.
        if let Err(error) = self.return_ahead(inode) {
            tracing::debug!("freeing blocks behind the end of inode {}: {error}", inode.ino());
        }
    }

    /// Frees the blocks mapped ahead of files that no operation uses at this moment, for a caller that finds no space.
    /// The caller may hold ranges of other files and any lock before `Rank::Handle`: this waits for no range, so the
    /// order of the locks does not matter.
    pub(crate) fn return_ahead_of_idle(&self) -> Result<()> {
        let all = self.preallocated.all();
        all.iter().try_for_each(|inode| {
            let Some(_alone) = inode.ranges.try_lock(ByteRange::ALL, Mode::Exclusive) else { return Ok(()) };
            self.return_ahead(inode)
        })
    }

    /// Frees what was mapped ahead of any file, when no operation is under way any more.
    pub(crate) fn return_all_ahead(&self) -> Result<()> {
        let all = self.preallocated.all();
        all.iter().try_for_each(|inode| {
            let _held = hold(Rank::Range);
            // Not while its last user deletes it.
            let Some(_alone) = inode.ranges.try_lock(ByteRange::ALL, Mode::Exclusive) else { return Ok(()) };
            self.return_ahead(inode)
        })
    }
}
