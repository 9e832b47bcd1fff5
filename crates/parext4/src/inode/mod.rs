//! Inodes in memory.
//!
//! Responsible for the attributes, the size and the block map of an inode, and for encoding them.
//! Not responsible for data and names. Invariant: the [`Inode`] in memory is authoritative; it is
//! encoded into the inode table when a transaction that changed it closes.
//! [`InodeRef`](crate::InodeRef) is the counted reference that users hold.

mod build;
mod cache;
mod cached;
mod delayed_clusters;
mod flags;
mod space;
mod tail;
mod time;
mod verity;

// Its orders are visible to ThreadSanitizer, unlike those inside `std::sync::OnceLock`.
use once_cell::sync::OnceCell;
use parext4_format::features::Incompat;
use parext4_format::inode::{FileType, Inode as RawInode, InodeFlags};
use parext4_format::superblock::Superblock;
use parext4_format::{BlockRange, BlockSize, ChecksumSeed, InodeNo};
use rangelock::RangeLock;

pub(crate) use build::InodeParts;
pub(crate) use cache::InodeCache;
pub(crate) use cached::Cached;
pub(crate) use flags::{FIXED, inherited, suitable};
pub(crate) use tail::{Claim, Tail};
use time::Written;

use crate::allocator::FileWindows;
use crate::block_map::{BlockMap, BlockMapRoot};
use crate::error::{Error, Result};
use crate::fault::{Fault, when_planted};
use crate::journal::{Handle, Participant};
use crate::layout::Layout;
use crate::memory::Charge;
use crate::meta::{MetaBlock, MetaCache};
use crate::quota::Charges;
use crate::stats::FileUsage;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};
use crate::verity::VerifiedTree;

/// An inode in memory.
#[derive(Debug)]
pub(crate) struct Inode {
    ino: InodeNo,
    file_type: FileType,
    /// Checksum seed of the inode's own blocks, with `metadata_csum`.
    seed: Option<ChecksumSeed>,
    superblock: Arc<Superblock>,
    table_block: Arc<MetaBlock>,
    table_offset: usize,
    /// `i_flags`, readable without locking `core`. Excludes the flags that only directory
    /// operations change.
    flags: AtomicU32,
    /// Mode, owner, links, times, flags. The size, the blocks and the extent root in it are current
    /// only during a commit, and the times only while no newer one is pending in `written`.
    core: Mutex<RawInode>,
    written: Written,
    /// Visible size in bytes. Changes only under a handle (so that size and block map commit
    /// together, I3) and under a range that covers the change, except for data in the page cache,
    /// whose write needs no handle.
    size: AtomicU64,
    /// The size that the next commit writes. Less than `size` while the data past it is only in the
    /// page cache.
    disk_size: AtomicU64,
    /// Space used by the block map, in units of 512 bytes.
    sectors: AtomicU64,
    /// The user, group and project that are charged for the inode, if the volume counts it.
    charges: Option<Charges>,
    block_map: OnceCell<BlockMap>,
    block_map_load: Mutex<()>,
    /// Free blocks kept for the file.
    pub(crate) windows: FileWindows,
    /// The range lock of the file's bytes (I2).
    pub(crate) ranges: Arc<RangeLock>,
    /// Counters of operations on the file's data.
    pub(crate) usage: FileUsage,
    /// The offset of the next append.
    pub(crate) tail: Mutex<Tail>,
    /// The file's page-cache state, from its first buffered use on.
    cached: OnceCell<Cached>,
    /// The Merkle tree of a file that fs-verity protects, from its first use on.
    merkle_tree: OnceCell<VerifiedTree>,
    /// True if the bytes of the last block past the size are known to be zeros on the device. A
    /// volume written by another driver does not guarantee that (H3).
    tail_clean: AtomicBool,
    /// True if the file was truncated to zero since it was last closed, so that the data written
    /// next replaces its contents.
    emptied: AtomicBool,
    /// The lock of the extended attributes.
    pub(crate) xattrs: RwLock<()>,
    /// True if the inode has fewer extra fields than new inodes have, and no attempt was made to
    /// add them.
    lacks_fields: AtomicBool,
    /// The lock of the entries of a directory, and how often it was held exclusively since the
    /// inode was loaded.
    entries: RwLock<u64>,
    /// True if all names of a directory that ignores case are known to be in the places of their
    /// hashes.
    names_placed: AtomicBool,
    /// Number of `InodeRef`s that refer to this inode.
    pub(crate) references: AtomicU32,
    /// Number of them that go without an action of a user.
    pub(crate) departing: AtomicU32,
    /// True if a thread that found no space has waited in vain for the deletion of the inode, which
    /// has no names.
    pub(crate) stays: AtomicBool,
    /// The state of the blocks past the end of the file: a [`PastEnd`].
    past_end: AtomicU8,
    joined: AtomicU64,
    /// The last transaction that changed this inode, for fsync.
    changed_in: AtomicU64,
    /// The charge of the inode and its block map to the volume's metadata budget.
    charge: Charge,
}

/// Memory of an inode besides its block map, in bytes: itself, its place in the table, the range
/// lock, its entry in the cache, and the overhead of the memory allocator.
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

    /// Returns true if a thread or a user has the inode.
    pub(crate) fn has_references(&self) -> bool {
        self.references.load(Ordering::Acquire) > 0
    }

    /// Returns true if no user refers to the inode.
    pub(crate) fn has_only_departing_references(&self) -> bool {
        self.references.load(Ordering::Acquire) <= self.departing.load(Ordering::Acquire)
    }

    /// Returns the visible size in bytes. Acquire pairs with the Release of the thread that raised
    /// it, so a reader that sees the size also sees the map below it.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Raises the size to at least `size` (I3), under a handle whose transaction also includes the
    /// newly covered blocks.
    pub(crate) fn raise_size(&self, size: u64) {
        when_planted!(Fault::SizeLowered, return self.set_size(size));
        // Before the visible size: a thread that finds the visible size large enough does not raise
        // this one.
        if self.disk_size() < size {
            self.disk_size.fetch_max(size, Ordering::AcqRel);
        }
        self.raise_visible_size(size);
    }

    /// Raises the visible size to at least `size`, for data in the page cache. The size on disk
    /// follows when the data is written back (I3).
    pub(crate) fn raise_visible_size(&self, size: u64) {
        if self.size() < size {
            self.size.fetch_max(size, Ordering::AcqRel);
        }
    }

    /// Returns the size that the next commit writes.
    pub(crate) fn disk_size(&self) -> u64 {
        self.disk_size.load(Ordering::Acquire)
    }

    /// Sets the size, under a handle. For truncation and for directories, whose callers exclude
    /// every other change of the size.
    pub(crate) fn set_size(&self, size: u64) {
        self.disk_size.store(size, Ordering::Release);
        self.size.store(size, Ordering::Release);
    }

    /// Locks the attributes, to read them, or to change them under a handle that the inode has
    /// [joined](Self::join).
    pub(crate) fn core(&self) -> MutexGuard<'_, RawInode> {
        self.core.lock()
    }

    /// Returns true if the mapping of `blocks` is in memory.
    pub(crate) fn is_block_map_loaded(&self, blocks: BlockRange) -> bool {
        let ends = || std::iter::once(blocks.start()).chain(blocks.last());
        self.loaded_block_map().is_some_and(|block_map| ends().all(|block| block_map.is_loaded(block)))
    }

    /// Returns true if the file is mapped by extents, or will be once its contents leave the inode.
    pub(crate) fn has_extents(&self) -> bool {
        let leaves = || self.superblock.incompat().contains(Incompat::EXTENTS);
        let flags = self.flags();
        flags.contains(InodeFlags::EXTENTS) || flags.contains(InodeFlags::INLINE_DATA) && leaves()
    }

    /// Returns the block map in use, if it is in memory.
    pub(crate) fn loaded_block_map(&self) -> Option<&BlockMap> {
        self.block_map.get().map(BlockMap::current)
    }

    /// Returns the block map. Reads it from the device on first use, with `disjoint` as for
    /// [`BlockMap::load`].
    ///
    /// # Errors
    /// As [`BlockMap::load`].
    pub(crate) fn block_map(
        &self,
        layout: &Arc<Layout>,
        cache: &Arc<MetaCache>,
        disjoint: bool,
    ) -> Result<&BlockMap> {
        if let Some(block_map) = self.loaded_block_map() {
            return Ok(block_map);
        }
        // Only one thread loads. A second one might read nodes that a user of the first block map
        // has changed or freed by then.
        let _loading = self.block_map_load.lock();
        if let Some(block_map) = self.loaded_block_map() {
            return Ok(block_map);
        }
        let (flags, block) = {
            let core = self.core.lock();
            (core.flags, core.block)
        };
        let has_feature = self.superblock.incompat().contains(Incompat::INLINE_DATA);
        if flags.contains(InodeFlags::INLINE_DATA) && !has_feature {
            let problem = "INLINE_DATA, but the volume does not have inline_data";
            return Err(Error::corrupt_field("inode", "i_flags", problem).of_inode(self.ino));
        }
        let root = BlockMapRoot { ino: self.ino, seed: self.seed, flags, block };
        let block_map = BlockMap::load(&root, layout, cache, disjoint)?;
        let block_map = self.block_map.get_or_init(|| block_map);
        self.recharge();
        Ok(block_map)
    }

    /// Replaces the block map of an inode whose contents have left the inode, under the handle that
    /// moves them. The caller holds the range of the whole file, or the lock of the directory's
    /// entries.
    pub(crate) fn replace_block_map(&self, block_map: BlockMap) -> bool {
        let replaced = self.block_map.get().is_some_and(|inline| inline.replace(block_map));
        self.recharge();
        replaced
    }

    /// Returns the device offset of `i_block`, where contents in the inode begin.
    pub(crate) fn inline_offset(&self, block_size: BlockSize) -> u64 {
        /// Offset of `i_block` in an inode.
        const I_BLOCK: usize = 40;
        let start = self.table_block.number().get() << block_size.bits();
        start + (self.table_offset + I_BLOCK) as u64
    }

    /// Updates the charge to the memory that the inode uses now.
    pub(crate) fn recharge(&self) {
        let tree = self.merkle_tree().map_or(0, VerifiedTree::memory);
        self.charge.set(MEMORY + self.loaded_block_map().map_or(0, BlockMap::memory) + tree);
    }

    /// Adds the inode to the handle's transaction, which encodes it when it closes. Registers one
    /// block.
    pub(crate) fn join(self: &Arc<Self>, handle: &Handle<'_>) {
        handle.register(&self.table_block);
        handle.join(self);
        // The load first avoids writing to a cache line that threads share.
        if self.changed_in.load(Ordering::Acquire) < handle.tid() {
            self.changed_in.fetch_max(handle.tid(), Ordering::AcqRel);
        }
    }

    /// Returns true if the inode has fewer extra fields than new inodes have; at most once.
    pub(crate) fn take_lack_of_fields(&self) -> bool {
        self.lacks_fields.load(Ordering::Relaxed) && self.lacks_fields.swap(false, Ordering::Relaxed)
    }

    /// Returns the transaction that fsync must wait for.
    pub(crate) fn changed_in(&self) -> u64 {
        self.changed_in.load(Ordering::Acquire)
    }

    /// Returns the page-cache state, or `None` if the file was never used through the page cache.
    pub(crate) fn cached(&self) -> Option<&Cached> {
        self.cached.get()
    }

    /// Returns the page-cache state, and creates it with `init` on first use. The first caller
    /// holds the whole file's range.
    pub(crate) fn cached_or_init(&self, init: impl FnOnce() -> Cached) -> &Cached {
        self.cached.get_or_init(init)
    }

    /// Returns true if the bytes of the last block past the size are known to be zeros. Stays true
    /// while the caller holds a range that contains the end of the file.
    pub(crate) fn is_tail_clean(&self) -> bool {
        self.tail_clean.load(Ordering::Acquire)
    }

    /// Records that the bytes of the last block past the size are zeros.
    pub(crate) fn set_tail_clean(&self) {
        self.tail_clean.store(true, Ordering::Release);
    }

    /// Locks the entries of a directory shared. Returns a number that changes whenever an entry
    /// does, as long as the inode is loaded.
    pub(crate) fn read_entries(&self) -> ReadGuard<'_, u64> {
        self.entries.read()
    }

    /// Locks the entries of a directory exclusively.
    pub(crate) fn change_entries(&self) -> WriteGuard<'_, u64> {
        let mut changes = self.entries.write();
        *changes += 1;
        changes
    }

    /// Returns true if all names of the directory are known to be in the places of their hashes.
    pub(crate) fn are_names_placed(&self) -> bool {
        // Relaxed suffices: the lock of the entries orders the search that found this before later
        // insertions.
        self.names_placed.load(Ordering::Relaxed)
    }

    /// Records that all names of the directory are in the places of their hashes. The caller holds
    /// the lock of the entries.
    pub(crate) fn set_names_placed(&self) {
        self.names_placed.store(true, Ordering::Relaxed);
    }

    /// Records that the file was truncated to zero.
    pub(crate) fn set_emptied(&self) {
        // Relaxed suffices, here and below: the flag is read when a handle is closed, which the
        // caller orders after the truncation.
        self.emptied.store(true, Ordering::Relaxed);
    }

    /// Returns true if the file was truncated to zero since the last call.
    pub(crate) fn take_emptied(&self) -> bool {
        self.emptied.load(Ordering::Relaxed) && self.emptied.swap(false, Ordering::Relaxed)
    }

    /// Returns what may be mapped past the end of the file.
    pub(crate) fn past_end(&self) -> PastEnd {
        match self.past_end.load(Ordering::Acquire) {
            1 => PastEnd::Preallocated,
            2 => PastEnd::Requested,
            _ => PastEnd::Nothing,
        }
    }

    /// Returns true if the file has blocks that are freed with its last user: preallocated ones, or
    /// blocks that failed writes have claimed.
    pub(crate) fn has_spare_blocks(&self) -> bool {
        let claims = || self.loaded_block_map().is_some_and(BlockMap::has_claims);
        self.past_end() == PastEnd::Preallocated || claims()
    }

    /// Replaces `from` with `to`. Returns false, without effect, if the state is not `from`. The
    /// caller holds a range past the end of the file, or is the last user.
    pub(crate) fn set_past_end(&self, from: PastEnd, to: PastEnd) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.past_end.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Inode {
    /// Returns true if the inode has a block map, whether or not its format is supported.
    pub(crate) fn has_block_map(&self) -> bool {
        match self.file_type() {
            FileType::Regular | FileType::Directory => true,
            FileType::Symlink => {
                let core = self.core();
                // The kernel clears a short target before it deletes the inode, and may be
                // interrupted there.
                let elsewhere = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
                // `block` has no pointers of a new block map before a transaction closes, so a
                // block map in memory counts.
                let cleared = self.block_map.get().is_none()
                    && !core.flags.intersects(elsewhere)
                    && core.block == [0; 60];
                !cleared && !core.is_fast_symlink()
            }
            _ => false,
        }
    }

    /// Returns true if the mapped blocks are metadata: journaled, and revoked when freed.
    pub(crate) fn holds_metadata(&self) -> bool {
        (self.file_type() != FileType::Regular || self.has_value()) && self.ino() != InodeNo::JOURNAL
    }

    /// Returns true if this inode is the value of an attribute (`ea_inode`).
    pub(crate) fn has_value(&self) -> bool {
        self.flags().contains(InodeFlags::EA_INODE)
    }
}

/// What may be mapped past the end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PastEnd {
    /// Nothing, as far as is known.
    Nothing = 0,
    /// Preallocated blocks, to be freed when the file is closed.
    Preallocated = 1,
    /// Blocks that a user requested.
    Requested = 2,
}

impl Participant for Inode {
    fn encode(&self) -> Result<()> {
        let mut core = self.core();
        self.store_time(&mut core);
        core.size = self.disk_size();
        core.blocks = self.sectors();
        if let Some(block_map) = self.loaded_block_map() {
            block_map.encode(&mut core.block);
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
