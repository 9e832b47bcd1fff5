//! The superblock of an open volume: its counters and other fields that change.
//!
//! The module is responsible for counting free blocks and inodes, and for encoding the superblock
//! at commit. It is not responsible for the groups' own counters. Invariant: at commit the counters
//! equal the sums over the groups.

use parext4_format::features::{Compat, RoCompat};
use parext4_format::superblock::Superblock;

use crate::convert::saturating_u32;
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
    /// Offset of the superblock in its block, in bytes.
    offset: usize,
    superblock: Mutex<Superblock>,
    free_blocks: Count,
    free_inodes: Count,
    last_orphan: AtomicU32,
    joined: AtomicU64,
}

impl SuperCounts {
    /// Returns counters that start at the values in `superblock`. The caller has made these values
    /// agree with the group descriptors.
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

    /// Returns the number of free blocks, including blocks freed by a transaction that is not
    /// durable.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks.get()
    }

    pub(crate) fn free_inodes(&self) -> u32 {
        saturating_u32(self.free_inodes.get())
    }

    pub(super) fn sub_blocks(self: &Arc<Self>, handle: &Handle<'_>, blocks: u64) {
        self.touch(handle);
        self.free_blocks.add(-blocks.cast_signed());
    }

    pub(super) fn add_blocks(self: &Arc<Self>, handle: &Handle<'_>, blocks: u64) {
        self.touch(handle);
        self.free_blocks.add(blocks.cast_signed());
    }

    pub(super) fn sub_inode(self: &Arc<Self>, handle: &Handle<'_>) {
        self.touch(handle);
        self.free_inodes.add(-1);
    }

    pub(super) fn add_inode(self: &Arc<Self>, handle: &Handle<'_>) {
        self.touch(handle);
        self.free_inodes.add(1);
    }

    /// Sets the head of the orphan list.
    pub(crate) fn set_last_orphan(self: &Arc<Self>, handle: &Handle<'_>, ino: u32) {
        self.touch(handle);
        // Relaxed suffices, as for a `Count`.
        self.last_orphan.store(ino, Ordering::Relaxed);
    }

    /// Records errors found in the volume. Registers one block.
    pub(crate) fn record_errors(self: &Arc<Self>, handle: &Handle<'_>, errors: &ErrorSummary) {
        self.touch(handle);
        errors.record_in(&mut self.superblock.lock());
    }

    /// Adds `features` to the superblock. Registers one block if one of them is missing.
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

    /// Adds `features` to the superblock. Registers one block.
    pub(crate) fn add_ro_compat(self: &Arc<Self>, handle: &Handle<'_>, features: RoCompat) {
        self.touch(handle);
        let mut superblock = self.superblock.lock();
        let features = superblock.ro_compat() | features;
        superblock.set_ro_compat(features);
    }

    /// Returns true if the superblock has `features`.
    pub(crate) fn has_ro_compat(&self, features: RoCompat) -> bool {
        self.superblock.lock().ro_compat().contains(features)
    }

    /// Sets the directory on which the volume was last mounted. Registers one block.
    pub(crate) fn set_last_mounted(self: &Arc<Self>, handle: &Handle<'_>, dir: &[u8]) {
        self.touch(handle);
        self.superblock.lock().set_last_mounted(dir);
    }

    /// Sets the volume's label. Registers one block.
    pub(crate) fn set_label(self: &Arc<Self>, handle: &Handle<'_>, label: &[u8]) {
        self.touch(handle);
        self.superblock.lock().set_label(label);
    }

    /// Changes the superblock outside any transaction. Returns its block; the caller writes that to
    /// the device.
    pub(crate) fn change_directly(&self, f: impl FnOnce(&mut Superblock)) -> &MetaBlock {
        f(&mut self.superblock.lock());
        let superblock = self.current();
        self.block.change(|bytes| superblock.encode(&mut bytes[self.offset..self.offset + Superblock::SIZE]));
        &self.block
    }

    /// Returns the superblock as a commit would write it now.
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

/// A counter that many threads change under their handles.
///
/// Relaxed suffices: the commit that reads it has waited for all handles, and the journal's gate
/// orders that. The value saturates, because the next open would refuse a wrapped one. It cannot
/// saturate while the groups check their counters against the bitmaps.
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
