//! Blocks mapped ahead of growing files, and giving them back.

use rangelock::{ByteRange, Mode};

use super::Inner;
use crate::error::Result;
use crate::fault::{Fault, planted};
use crate::inode::{Behind, Inode};
use crate::sync::{Arc, Mutex};
use crate::sync::{Rank, hold};

/// The inodes with blocks behind their end that nobody asked for.
#[derive(Debug)]
pub(super) struct Ahead(Mutex<Vec<Arc<Inode>>>);

impl Ahead {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Rank::Leaf, Vec::new()))
    }
}

impl Inner {
    /// Notes that blocks were mapped ahead of the end of the file.
    pub(crate) fn note_ahead(&self, inode: &Arc<Inode>) {
        // Looked at first: most of the time it is noted already.
        if inode.behind() != Behind::Nothing {
            return;
        }
        let mut all = self.ahead.0.lock();
        if inode.set_behind(Behind::Nothing, Behind::Ahead) {
            all.push(Arc::clone(inode));
        }
    }

    /// Notes that what is behind the end of the file is there because somebody asked for it.
    pub(crate) fn keep_behind(&self, inode: &Arc<Inode>) {
        if planted(Fault::KeptAsAhead) {
            return;
        }
        if !inode.set_behind(Behind::Nothing, Behind::Kept) {
            self.forget_ahead(inode, Behind::Kept);
        }
    }

    /// Notes that nothing is behind the end of the file.
    pub(crate) fn cut_behind(&self, inode: &Arc<Inode>) {
        if !inode.set_behind(Behind::Kept, Behind::Nothing) {
            self.forget_ahead(inode, Behind::Nothing);
        }
    }

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
        let all = self.ahead.0.lock().clone();
        all.iter().try_for_each(|inode| {
            let Some(_alone) = inode.ranges.try_lock(ByteRange::ALL, Mode::Exclusive) else { return Ok(()) };
            self.return_ahead(inode)
        })
    }

    /// Frees what was mapped ahead of any file, when no operation is under way any more.
    pub(super) fn return_all_ahead(&self) -> Result<()> {
        let all = self.ahead.0.lock().clone();
        all.iter().try_for_each(|inode| {
            let _held = hold(Rank::Range);
            // Not while its last user deletes it.
            let Some(_alone) = inode.ranges.try_lock(ByteRange::ALL, Mode::Exclusive) else { return Ok(()) };
            self.return_ahead(inode)
        })
    }

    /// Takes the inode off the list, if it is there; says whether it was.
    fn forget_ahead(&self, inode: &Arc<Inode>, now: Behind) -> bool {
        if inode.behind() != Behind::Ahead {
            return false;
        }
        let mut all = self.ahead.0.lock();
        let was_ahead = inode.set_behind(Behind::Ahead, now);
        if was_ahead {
            all.retain(|other| !Arc::ptr_eq(other, inode));
        }
        was_ahead
    }
}
