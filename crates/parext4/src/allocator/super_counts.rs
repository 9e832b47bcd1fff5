//! The superblock's counters, encoded into it at commit.

use parext4_format::features::Compat;
use parext4_format::superblock::Superblock;

use crate::error::{Error, Result};
use crate::findings::ErrorSummary;
use crate::journal::{Handle, Participant};
use crate::meta::MetaBlock;
use crate::stripes::Stripes;
use crate::sync::Rank;
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};

/// The fields of the superblock that change while the volume is open.
#[derive(Debug)]
pub(crate) struct SuperCounts {
    block: Arc<MetaBlock>,
    /// Byte offset of the superblock in its block.
    offset: usize,
    superblock: Mutex<Superblock>,
    free_blocks: Count,
    free_inodes: Count,
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
            free_blocks: Count::new(superblock.free_blocks()),
            free_inodes: Count::new(superblock.free_inodes().into()),
            last_orphan: AtomicU32::new(superblock.last_orphan()),
            superblock: Mutex::new(Rank::Leaf, superblock),
            joined: AtomicU64::new(0),
        }
    }

    /// Free blocks, those held until their commit included.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks.get()
    }

    pub(crate) fn free_inodes(&self) -> u32 {
        u32::try_from(self.free_inodes.get()).unwrap_or(u32::MAX)
    }

    pub(super) fn take_blocks(self: &Arc<Self>, handle: &Handle<'_>, blocks: u32) {
        self.touch(handle);
        self.free_blocks.add(-i64::from(blocks));
    }

    pub(super) fn give_blocks(self: &Arc<Self>, handle: &Handle<'_>, blocks: u32) {
        self.touch(handle);
        self.free_blocks.add(blocks.into());
    }

    pub(super) fn take_inode(self: &Arc<Self>, handle: &Handle<'_>) {
        self.touch(handle);
        self.free_inodes.add(-1);
    }

    pub(super) fn give_inode(self: &Arc<Self>, handle: &Handle<'_>) {
        self.touch(handle);
        self.free_inodes.add(1);
    }

    /// Sets the head of the orphan list.
    pub(crate) fn set_last_orphan(self: &Arc<Self>, handle: &Handle<'_>, ino: u32) {
        self.touch(handle);
        // Relaxed, as a `Count`.
        self.last_orphan.store(ino, Ordering::Relaxed);
    }

    /// Records errors found in the volume. Registers one block.
    pub(crate) fn record_errors(self: &Arc<Self>, handle: &Handle<'_>, errors: &ErrorSummary) {
        self.touch(handle);
        errors.record_in(&mut self.superblock.lock());
    }

    /// Adds features that volumes have once they use them. Registers one block if there is one to add.
    pub(crate) fn add_compat(self: &Arc<Self>, handle: &Handle<'_>, features: Compat) {
        let has = |superblock: &Superblock| superblock.compat().contains(features);
        if has(&self.superblock.lock()) {
            return;
        }
        self.touch(handle);
        let mut superblock = self.superblock.lock();
        let features = superblock.compat() | features;
        superblock.set_compat(features);
    }

    /// Sets the volume's label. Registers one block.
    pub(crate) fn set_label(self: &Arc<Self>, handle: &Handle<'_>, label: &[u8]) {
        self.touch(handle);
        self.superblock.lock().set_label(label);
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

/// A count that many threads change under their handles.
///
/// Relaxed: the commit that reads it has waited for every handle, and the journal's gate orders that. It
/// saturates, as a wrapped count is one that the next open refuses; it does not come to that, because the
/// groups check theirs against the bitmaps.
#[derive(Debug)]
struct Count {
    at_open: u64,
    changes: Stripes<AtomicI64, 16>,
}

impl Count {
    fn new(at_open: u64) -> Self {
        Self { at_open, changes: Stripes::default() }
    }

    fn add(&self, change: i64) {
        self.changes.mine().fetch_add(change, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        let changes = self.changes.iter().map(|change| change.load(Ordering::Relaxed)).sum();
        self.at_open.saturating_add_signed(changes)
    }
}
