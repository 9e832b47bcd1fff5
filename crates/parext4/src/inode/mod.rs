//! Inodes in memory.
//!
//! An [`Inode`] is the truth about its attributes, size and extent map; it is encoded into the inode table
//! when a transaction that changed it closes. [`Node`](crate::Node) is the counted reference that users hold.

mod build;
mod cache;
mod cached;
mod flags;
mod tail;
mod time;

use std::sync::OnceLock;

use parext4_format::inode::{FileType, Inode as RawInode, InodeFlags, Timestamp};
use parext4_format::superblock::Superblock;
use parext4_format::{ChecksumSeed, InodeNo};
use rangelock::RangeLock;

pub(crate) use build::InodeParts;
pub(crate) use cache::InodeCache;
pub(crate) use cached::Cached;
pub(crate) use flags::{FIXED, inherited, suitable};
pub(crate) use tail::{Claim, Tail};
use time::Written;

use crate::allocator::FileWindows;
use crate::clock::now;
use crate::error::{Error, Result};
use crate::extent_map::ExtentMap;
use crate::fault::{Fault, planted};
use crate::journal::{Handle, Participant};
use crate::layout::Layout;
use crate::memory::Charge;
use crate::meta::{BlockKind, MetaBlock, MetaCache};
use crate::stats::FileUsage;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, RwLock};

/// One inode in memory.
#[derive(Debug)]
pub(crate) struct Inode {
    ino: InodeNo,
    file_type: FileType,
    /// Checksum seed of the inode's own blocks, with `metadata_csum`.
    seed: Option<ChecksumSeed>,
    superblock: Arc<Superblock>,
    table_block: Arc<MetaBlock>,
    table_offset: usize,
    /// `i_flags` for those who do not lock `core`; without what directories change of them.
    flags: AtomicU32,
    /// Mode, owner, links, times, flags. Its size, blocks and extent root are stale but at commit, its times
    /// while a newer one waits in `written`.
    core: Mutex<RawInode>,
    written: Written,
    /// Visible size in bytes. Changes only inside a handle (so that size and map commit together, I3) and
    /// under a range that covers the change; but for data in the page cache, whose write needs no handle.
    size: AtomicU64,
    /// The size that the next commit writes. Less than `size` while data behind it is only in the page cache.
    disk_size: AtomicU64,
    /// Blocks in use by data and map, in 512-byte units.
    sectors: AtomicU64,
    map: OnceLock<ExtentMap>,
    map_load: Mutex<()>,
    /// Free blocks kept for it.
    pub(crate) windows: FileWindows,
    /// Ranges of the file's bytes (I2).
    pub(crate) ranges: Arc<RangeLock>,
    /// What operations on the file's data did.
    pub(crate) usage: FileUsage,
    /// Where the next append goes.
    pub(crate) tail: Mutex<Tail>,
    /// The file's part of the page cache, from its first buffered use on.
    cached: OnceLock<Cached>,
    /// Whether the rest of the last block, behind the size, is known to be zeros on the device. A volume
    /// written by others does not promise it (H3).
    tail_clean: AtomicBool,
    /// True if the file was truncated to zero since it was last closed, so that the data written next replaces its
    /// contents.
    emptied: AtomicBool,
    /// The extended attributes.
    pub(crate) xattrs: RwLock<()>,
    /// The entries of a directory.
    pub(crate) entries: RwLock<()>,
    /// `Node`s that refer to this inode.
    pub(crate) references: AtomicU32,
    /// Whether the inode is on the list of those whose times ride along with the next transaction (H25).
    listed: AtomicBool,
    /// What is mapped behind the size: a [`Behind`].
    behind: AtomicU8,
    joined: AtomicU64,
    /// The last transaction that changed this inode, for fsync.
    changed_in: AtomicU64,
    /// The charge of the inode and its map to the volume's metadata budget.
    charge: Charge,
}

/// What an inode takes in memory besides its map: itself, the bytes of its place in the table, the lock of its ranges,
/// its entry in the cache, and what the memory allocator adds.
const MEMORY: usize = size_of::<Inode>() + size_of::<RangeLock>() + 512;

impl Inode {
    pub(crate) fn ino(&self) -> InodeNo {
        self.ino
    }

    pub(crate) fn file_type(&self) -> FileType {
        self.file_type
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }

    pub(crate) fn seed(&self) -> Option<ChecksumSeed> {
        self.seed
    }

    /// Visible size in bytes. Acquire pairs with the Release of whoever raised it, so that a reader who
    /// sees the size sees the map under it.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Raises the size to at least `size` (I3). Within a handle whose transaction also carries what the
    /// size newly covers.
    pub(crate) fn raise_size(&self, size: u64) {
        if planted(Fault::SizeLowered) {
            self.set_size(size);
            return;
        }
        // Before the size that all see: who finds that large enough need not raise this one.
        if self.disk_size() < size {
            self.disk_size.fetch_max(size, Ordering::AcqRel);
        }
        self.raise_visible_size(size);
    }

    /// Raises the size over data that is in the page cache. What the device knows of it follows when that is written
    /// back (I3).
    pub(crate) fn raise_visible_size(&self, size: u64) {
        if self.size() < size {
            self.size.fetch_max(size, Ordering::AcqRel);
        }
    }

    /// The size that the next commit writes.
    pub(crate) fn disk_size(&self) -> u64 {
        self.disk_size.load(Ordering::Acquire)
    }

    /// Sets the size, within a handle. For truncation and directories, whose callers exclude every other
    /// change of the size.
    pub(crate) fn set_size(&self, size: u64) {
        self.disk_size.store(size, Ordering::Release);
        self.size.store(size, Ordering::Release);
    }

    /// The attributes, to read, or to change inside a handle that the inode has [joined](Self::join).
    pub(crate) fn core(&self) -> MutexGuard<'_, RawInode> {
        self.core.lock()
    }

    /// Adds blocks (of the file system) to what the inode uses.
    pub(crate) fn add_blocks(&self, blocks: u64, block_size: u32) {
        // Relaxed: read by `encode`, which the commit orders after the handle.
        self.sectors.fetch_add(blocks * u64::from(block_size / 512), Ordering::Relaxed);
    }

    /// Takes blocks away from what the inode uses.
    pub(crate) fn sub_blocks(&self, blocks: u64, block_size: u32) {
        let sectors = blocks * u64::from(block_size / 512);
        let sub = |used: u64| Some(used.saturating_sub(sectors));
        let _ = self.sectors.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sub);
    }

    /// 512-byte units in use, as `st_blocks`.
    pub(crate) fn sectors(&self) -> u64 {
        self.sectors.load(Ordering::Relaxed)
    }

    /// Whether the extent map is in memory.
    pub(crate) fn is_map_loaded(&self) -> bool {
        self.map.get().is_some()
    }

    /// The extent map, read from the device at first use; `disjoint` as for [`ExtentMap::load`].
    ///
    /// # Errors
    /// Corruption, a failed read, or an inode without an extent map.
    pub(crate) fn map(&self, layout: &Layout, cache: &MetaCache, disjoint: bool) -> Result<&ExtentMap> {
        if let Some(map) = self.map.get() {
            return Ok(map);
        }
        // One thread loads: a second might read nodes that the first's user has changed or freed by then.
        let _loading = self.map_load.lock();
        if let Some(map) = self.map.get() {
            return Ok(map);
        }
        let (flags, block) = {
            let core = self.core.lock();
            (core.flags, core.block)
        };
        if !flags.contains(InodeFlags::EXTENTS) {
            return Err(Error::Unsupported(format!("inode {}: a file mapped by indirect blocks", self.ino)));
        }
        let kind = BlockKind::ExtentNode(self.ino, self.seed);
        let map = ExtentMap::load(&block, layout, kind, cache, disjoint)
            .map_err(|error| error.of_inode(self.ino))?;
        let map = self.map.get_or_init(|| map);
        self.recharge();
        Ok(map)
    }

    /// Charges the budget with what the inode takes now.
    pub(crate) fn recharge(&self) {
        self.charge.set(MEMORY + self.map.get().map_or(0, ExtentMap::memory));
    }

    /// Makes the inode part of the handle's transaction: it is encoded when that closes.
    /// Registers one block.
    pub(crate) fn join(self: &Arc<Self>, handle: &Handle<'_>) {
        handle.register(&self.table_block);
        handle.join(self);
        // Looked at first, for those who share the line.
        if self.changed_in.load(Ordering::Acquire) < handle.tid() {
            self.changed_in.fetch_max(handle.tid(), Ordering::AcqRel);
        }
    }

    /// The transaction that fsync must wait for.
    pub(crate) fn changed_in(&self) -> u64 {
        self.changed_in.load(Ordering::Acquire)
    }

    /// As [`core`](Self::core), to set times in it: those that wait are set first, so that the newer win.
    pub(crate) fn core_with_times(&self) -> MutexGuard<'_, RawInode> {
        let mut core = self.core();
        if let Some(time) = self.written.take() {
            (core.mtime, core.ctime) = (time, time);
        }
        core
    }

    /// Modification and change time; `core` is the inode's own.
    pub(crate) fn times(&self, core: &RawInode) -> (Timestamp, Timestamp) {
        self.written.get().map_or((core.mtime, core.ctime), |time| (time, time))
    }

    /// Sets modification and change time to now, inside a handle that the inode has joined.
    pub(crate) fn touch_modified(&self) {
        self.written.set_now();
    }

    /// Sets the change time to now, inside a handle that the inode has joined.
    pub(crate) fn touch_changed(&self) {
        self.core_with_times().ctime = now();
    }

    /// As [`touch_modified`](Self::touch_modified) without a transaction (H25). Returns whether the inode
    /// must be put on the list of those that ride along with the next one.
    pub(crate) fn touch_lazily(&self) -> bool {
        // If the time waits already, a transaction that is still open takes it, or whoever set it lists it.
        self.written.set_now()
            && !self.listed.load(Ordering::SeqCst)
            && !self.listed.swap(true, Ordering::SeqCst)
    }

    /// Takes the inode off the list, before a look whether times wait: later ones list it again.
    pub(crate) fn unlist(&self) {
        self.listed.store(false, Ordering::SeqCst);
    }

    /// Whether timestamps wait for a transaction.
    pub(crate) fn has_lazy_times(&self) -> bool {
        self.written.is_waiting()
    }

    /// Adds the waiting timestamps to a transaction.
    pub(crate) fn fold_lazy(self: &Arc<Self>, handle: &Handle<'_>) {
        // In this order: who finds no times waiting must find the transaction that took them.
        self.join(handle);
        drop(self.core_with_times());
    }

    /// The file's pages, if it was ever used through the page cache.
    pub(crate) fn cached(&self) -> Option<&Cached> {
        self.cached.get()
    }

    /// The file's pages. Whoever calls this first holds all of the file.
    pub(crate) fn cached_or_init(&self, init: impl FnOnce() -> Cached) -> &Cached {
        self.cached.get_or_init(init)
    }

    /// Whether the rest of the last block is known to be zeros. True as long as a range is held that has the
    /// end of the file in it.
    pub(crate) fn is_tail_clean(&self) -> bool {
        self.tail_clean.load(Ordering::Acquire)
    }

    /// Notes that the rest of the last block is zeros.
    pub(crate) fn set_tail_clean(&self) {
        self.tail_clean.store(true, Ordering::Release);
    }

    /// Notes that the file was truncated to zero.
    pub(crate) fn set_emptied(&self) {
        // Relaxed, here and below: it is looked at when a handle is closed, which the caller orders after the cut.
        self.emptied.store(true, Ordering::Relaxed);
    }

    /// Returns true if the file was truncated to zero since the last call.
    pub(crate) fn take_emptied(&self) -> bool {
        self.emptied.load(Ordering::Relaxed) && self.emptied.swap(false, Ordering::Relaxed)
    }

    /// What may be mapped behind the size.
    pub(crate) fn behind(&self) -> Behind {
        match self.behind.load(Ordering::Acquire) {
            1 => Behind::Ahead,
            2 => Behind::Kept,
            _ => Behind::Nothing,
        }
    }

    /// Notes what may be mapped behind the size, if it was `from` until now; returns whether it was. Whoever
    /// calls it holds a range behind the size, or is the last user.
    pub(crate) fn set_behind(&self, from: Behind, to: Behind) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.behind.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Inode {
    /// Whether the inode has blocks of its own, which are found through a map. For a file mapped by indirect
    /// blocks that is so too, though there is no reading its [map](Self::map).
    pub(crate) fn has_map(&self) -> bool {
        match self.file_type() {
            FileType::Regular | FileType::Directory => true,
            FileType::Symlink => {
                let core = self.core();
                // The kernel clears a short target before it deletes the inode, and may be interrupted there.
                let cleared = !core.flags.contains(InodeFlags::EXTENTS) && core.block == [0; 60];
                !cleared && !core.is_fast_symlink()
            }
            _ => false,
        }
    }

    /// Whether the blocks behind the map are metadata: journaled, and revoked when freed.
    pub(crate) fn holds_metadata(&self) -> bool {
        self.file_type() != FileType::Regular && self.ino() != InodeNo::JOURNAL
    }
}

/// What may be mapped behind the size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Behind {
    /// Nothing of which anybody knows.
    Nothing = 0,
    /// Blocks mapped ahead of need, to be given back.
    Ahead = 1,
    /// Blocks that somebody allocated there.
    Kept = 2,
}

impl Participant for Inode {
    fn encode(&self) -> Result<()> {
        let mut core = self.core_with_times();
        core.size = self.disk_size();
        core.blocks = self.sectors();
        if let Some(map) = self.map.get() {
            map.encode(&mut core.block);
        }
        let end = self.table_offset + usize::from(self.superblock.inode_size());
        self.table_block.change(|bytes| match bytes.get_mut(self.table_offset..end) {
            Some(out) => {
                core.encode(out, &self.superblock, self.ino);
                Ok(())
            }
            None => Err(Error::corrupt(format_args!("inode {} lies outside its block", self.ino))),
        })
    }

    fn joined(&self) -> &AtomicU64 {
        &self.joined
    }
}
