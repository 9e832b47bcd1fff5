//! Deleting an inode that has no name and no user any more, and cutting one to its size.

use rangelock::ByteRange;

use crate::allocator::{FREE_CREDITS, INODE_CREDITS};
use crate::clock::now;
use crate::engine::{Engine, Orphans};
use crate::error::Result;
use crate::fault::{Fault, planted};
use crate::inode::Inode;
use crate::sync::Arc;
use crate::sync::{Rank, hold};

impl Engine {
    /// Frees the inode's blocks, then the inode. It is on the orphan list, so a crash in between only
    /// means that the next open goes on.
    ///
    /// # Errors
    /// The inode stays an orphan.
    pub(crate) fn delete_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        self.check_writable()?;
        let _held = hold(Rank::Range);
        // Nobody uses the inode any more, but the volume may be returning what was mapped ahead of its end.
        let _alone = inode.ranges.exclusive(ByteRange::ALL);
        self.discard_pages(inode, 0..u32::MAX);
        if inode.has_map() {
            self.free_blocks_from(inode, 0)?;
        }
        self.cut_behind(inode);
        let credits = INODE_CREDITS + Orphans::CREDITS + FREE_CREDITS + 2;
        self.transact(credits, |handle| {
            self.orphans.remove(self, handle, inode);
            // With the times that wait: they must not be written later, when the number may be another's.
            inode.fold_lazy(handle);
            self.release_xattr_block(handle, inode)?;
            inode.set_size(0);
            inode.core().dtime = u32::try_from(now().seconds).unwrap_or(u32::MAX);
            if planted(Fault::ForgetBeforeFree) {
                self.inodes.remove(inode);
                crate::sync::yield_now();
            }
            self.allocator.free_inode(handle, inode.ino(), inode.is_dir())?;
            // Only after the number is free: until the transaction closes, the table block says that the inode is in
            // use, and a look-up must not read that. The number may already belong to a new inode.
            self.inodes.remove(inode);
            Ok(())
        })
    }

    /// Frees what lies behind the size of an inode on the orphan list, and takes it off; unless it has lost its
    /// last name meanwhile, in which case its deletion does that.
    pub(crate) fn finish_truncation(&self, inode: &Arc<Inode>) -> Result<()> {
        if inode.has_map() {
            let from = inode.size().div_ceil(self.block_size());
            self.free_blocks_from(inode, u32::try_from(from).unwrap_or(u32::MAX))?;
        }
        self.transact(Orphans::CREDITS, |handle| {
            self.orphans.remove_named(self, handle, inode);
            Ok(())
        })
    }
}
