//! Deleting an inode without names and users, and finishing a truncation.

use parext4_format::{BlockRange, FsBlock};
use rangelock::{ByteRange, Mode};

use super::{Hold, InodeRef};
use crate::allocator::{FREE_CREDITS, INODE_CREDITS};
use crate::convert::saturating_u32;
use crate::engine::{Engine, EngineRef, Orphans};
use crate::error::Result;
use crate::fault::{Fault, when_planted};
use crate::inode::Inode;
use crate::page_cache::PageRange;
use crate::sync::Arc;
use crate::sync::{Rank, hold};

/// Deletes an inode without names and users.
pub(super) fn delete_unused(engine: &Arc<Engine>, inode: &Arc<Inode>) {
    // There is no caller to report an error to. The orphan list keeps the inode for the next open.
    // A failed write has stopped the volume.
    if let Err(error) = EngineRef::own_thread(engine).delete_inode(inode) {
        log::warn!("deleting inode {}: {error}", inode.ino());
    }
}

impl InodeRef {
    /// Deletes two inodes if many deletions are pending. The caller has removed a name, and holds
    /// no lock.
    pub(crate) fn help_to_delete(&self) {
        self.engine.deletions().help(&self.engine, delete_unused);
    }
}

impl EngineRef {
    /// Frees the inode's blocks, then the inode. It is on the orphan list, so after a crash the
    /// next open finishes the deletion.
    ///
    /// # Errors
    /// Returns an error if a transaction fails. The inode then stays an orphan.
    pub(crate) fn delete_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        self.check_writable()?;
        let _held = hold(Rank::Range);
        // No user is left, but a background thread may be freeing its preallocated blocks.
        let alone = Hold::new(inode.ranges.exclusive(ByteRange::ALL));
        self.discard_pages(inode, alone.pages(self, inode, PageRange::ALL, Mode::Exclusive));
        if inode.has_block_map() {
            self.free_tail(inode, BlockRange::ALL)?;
            self.release_all_claims(inode);
        }
        self.note_nothing_past_end(inode);
        loop {
            self.release_values(inode)?;
            if self.free_deleted(inode)? {
                return Ok(());
            }
        }
    }

    /// Frees the inode and its block of attributes. Returns false, with nothing changed, if this
    /// became the last user of the block, and the block has values in inodes of their own.
    fn free_deleted(&self, inode: &Arc<Inode>) -> Result<bool> {
        let credits = INODE_CREDITS + Orphans::CREDITS + FREE_CREDITS + 2;
        self.transact(credits, |handle| {
            // The bitmaps before the first change, after which a failed read would stop the volume.
            let _bitmap = self.allocator().inode_bitmap(inode.ino())?;
            // The values in a block that other inodes use stay, but no longer count for this inode.
            let mut values = 0;
            let may_free = |block: &[u8]| Self::values_in(block) == 0;
            if let Some(block) = self.xattr_block_of(inode)? {
                values = Self::values_in(&block.snapshot()) as u64;
                let number = FsBlock(inode.core().file_acl);
                self.allocator().read_bitmaps(number, 1)?;
            }
            if !self.try_release_xattr_block(handle, inode, may_free)? {
                return Ok(false);
            }
            self.orphans().remove(self, handle, inode);
            // Includes the pending times, which must not be written later, when another inode may
            // have the number.
            inode.fold_lazy(handle);
            inode.end_charges(handle, values);
            inode.set_size(0);
            inode.core().dtime = self.deletion_time();
            when_planted!(Fault::ForgetBeforeFree, {
                self.inodes().remove(inode);
                crate::sync::yield_now();
            });
            self.allocator().free_inode(handle, inode.ino(), inode.is_dir())?;
            // Only after the number is free: until the transaction closes, the table block contains
            // the inode as in use, and a lookup must not read that. The number may already belong
            // to a new inode.
            self.inodes().remove(inode);
            Ok(true)
        })
    }
}

impl Engine {
    /// Returns the time of a deletion now, in seconds. While an inode is an orphan, the field has
    /// the number of the next one, so e2fsck takes 0 and the numbers of inodes for a damaged list,
    /// whatever the clock says.
    pub(crate) fn deletion_time(&self) -> u32 {
        saturating_u32(self.clock().now().seconds).max(self.layout().inodes_count)
    }

    /// Frees the blocks past the size of an inode on the orphan list, and removes it from the list.
    /// An inode that lost its last name meanwhile stays on the list until its deletion removes it.
    pub(crate) fn finish_truncation(&self, inode: &Arc<Inode>) -> Result<()> {
        if inode.has_block_map() {
            self.free_tail(inode, self.layout().block_size.blocks_from(inode.size()))?;
        }
        self.transact(Orphans::CREDITS, |handle| {
            self.cut_inline(handle, inode)?;
            self.orphans().remove_named(self, handle, inode);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use parext4_device::{Device, FaultDevice, FaultKind, FaultPlan, MemDevice};

    use crate::file::OpenOptions;
    use crate::journal::EmptiedLog;
    use crate::memory::Evict;
    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::sync::Arc;
    use crate::volume::{Volume, VolumeOptions};

    #[test]
    fn an_inode_whose_bitmap_cannot_be_read_again_stays_an_orphan() {
        let memory = Arc::new(MemDevice::new(16 << 20));
        mkfs(&*memory, &MkfsOptions::new()).unwrap();
        let device = Arc::new(FaultDevice::new(Arc::clone(&memory) as Arc<dyn Device>, FaultPlan::default()));
        let options = VolumeOptions::new().commit_interval(None);
        let volume = Volume::open_device(Arc::clone(&device) as _, &options).unwrap();
        let free = volume.space().free_inodes;
        let file = volume.open_direct("/file", &OpenOptions::read_write().create_new(true)).unwrap();
        volume.remove_file("/file").unwrap();
        volume.empty_journal(EmptiedLog::Kept).unwrap();
        // More than the groups, and the blocks in the cache.
        (0..8).for_each(|_| Evict::evict(&**volume.engine.allocator()));
        (0..4096).for_each(|_| Evict::evict(&**volume.engine.cache()));
        device.arm(FaultPlan::at(1).kind(FaultKind::Reads));
        drop(file);
        assert!(device.failed().is_some(), "no bitmap was read");
        assert!(volume.stopped().is_none());
        volume.create_dir("/dir", 0o755).unwrap();
        volume.close().unwrap();
        let volume = Volume::open_device(memory, &options).unwrap();
        assert_eq!(volume.space().free_inodes, free - 1, "of the directory");
        volume.close().unwrap();
    }
}
