//! The superblock's counters, encoded into it at commit.

use parext4_format::superblock::Superblock;

use crate::error::{Error, Result};
use crate::journal::{Handle, Participant};
use crate::lock_order::Rank;
use crate::meta::MetaBlock;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};

/// The fields of the superblock that change while the volume is open.
#[derive(Debug)]
pub(crate) struct SuperCounts {
    block: Arc<MetaBlock>,
    /// Byte offset of the superblock in its block.
    offset: usize,
    superblock: Mutex<Superblock>,
    free_blocks: AtomicU64,
    free_inodes: AtomicU32,
    last_orphan: AtomicU32,
    joined: AtomicU64,
}

impl SuperCounts {
    /// Counters that start from those in `superblock`; the caller has made those agree with the group
    /// descriptors.
    pub(crate) fn new(block: Arc<MetaBlock>, offset: usize, superblock: Superblock) -> Self {
        Self {
            block,
            offset,
            free_blocks: AtomicU64::new(superblock.free_blocks()),
            free_inodes: AtomicU32::new(superblock.free_inodes()),
            last_orphan: AtomicU32::new(superblock.last_orphan()),
            superblock: Mutex::new(Rank::Leaf, superblock),
            joined: AtomicU64::new(0),
        }
    }

    // All counters are Relaxed: they change under handles only, and the commit that reads them has waited
    // for every handle (the journal's lock orders that). They saturate, as a wrapped count is one that the
    // next open refuses; it does not come to that, because the groups check theirs against the bitmaps.

    /// Free blocks, those held until their commit included.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks.load(Ordering::Relaxed)
    }

    pub(crate) fn free_inodes(&self) -> u32 {
        self.free_inodes.load(Ordering::Relaxed)
    }

    pub(super) fn take_blocks(self: &Arc<Self>, handle: &Handle<'_>, blocks: u32) {
        self.touch(handle);
        let less = |free: u64| Some(free.saturating_sub(blocks.into()));
        let _ = self.free_blocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub(super) fn give_blocks(self: &Arc<Self>, handle: &Handle<'_>, blocks: u32) {
        self.touch(handle);
        let more = |free: u64| Some(free.saturating_add(blocks.into()));
        let _ = self.free_blocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    pub(super) fn take_inode(self: &Arc<Self>, handle: &Handle<'_>) {
        self.touch(handle);
        let less = |free: u32| Some(free.saturating_sub(1));
        let _ = self.free_inodes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub(super) fn give_inode(self: &Arc<Self>, handle: &Handle<'_>) {
        self.touch(handle);
        let more = |free: u32| Some(free.saturating_add(1));
        let _ = self.free_inodes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Sets the head of the orphan list.
    pub(crate) fn set_last_orphan(self: &Arc<Self>, handle: &Handle<'_>, ino: u32) {
        self.touch(handle);
        self.last_orphan.store(ino, Ordering::Relaxed);
    }

    /// Changes the superblock outside any transaction and returns its block, for the caller to write.
    pub(crate) fn change_directly(&self, f: impl FnOnce(&mut Superblock)) -> &MetaBlock {
        f(&mut self.superblock.lock());
        let superblock = self.current();
        self.block.change(|bytes| superblock.encode(&mut bytes[self.offset..self.offset + Superblock::SIZE]));
        &self.block
    }

    /// The superblock as a commit would write it now.
    pub(crate) fn current(&self) -> Superblock {
        let mut superblock = self.superblock.lock().clone();
        superblock.set_free_blocks(self.free_blocks());
        superblock.set_free_inodes(self.free_inodes());
        superblock.set_last_orphan(self.last_orphan.load(Ordering::Relaxed));
        superblock
    }

    fn touch(self: &Arc<Self>, handle: &Handle<'_>) {
        handle.register(&self.block);
        handle.join(self);
    }
}

impl Participant for SuperCounts {
    fn encode(&self) -> Result<()> {
        let superblock = self.current();
        self.block.change(|bytes| match bytes.get_mut(self.offset..self.offset + Superblock::SIZE) {
            Some(out) => {
                superblock.encode(out);
                Ok(())
            }
            None => Err(Error::corrupt("the superblock does not fit its block")),
        })
    }

    fn joined(&self) -> &AtomicU64 {
        &self.joined
    }
}
