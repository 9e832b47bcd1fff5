//! Building inodes in memory.

// Its orders are visible to ThreadSanitizer, unlike those inside `std::sync::OnceLock`.
use once_cell::sync::OnceCell;
use parext4_format::features::Incompat;
use parext4_format::inode::{FileType, Inode as RawInode, InodeFlags};
use parext4_format::superblock::Superblock;
use parext4_format::{BlockSize, ChecksumSeed, InodeNo};
use rangelock::RangeLock;

use super::time::Written;
use super::{Inode, Tail};
use crate::allocator::FileWindows;
use crate::block_map::BlockMap;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::memory::Charge;
use crate::meta::MetaBlock;
use crate::quota::Charges;
use crate::stats::FileUsage;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use crate::sync::{Arc, Mutex, Rank, RwLock};

/// The parts of an inode besides its fields.
#[derive(Debug)]
pub(crate) struct InodeParts {
    pub ino: InodeNo,
    /// Checksum seed of the inode's own blocks.
    pub seed: Option<ChecksumSeed>,
    pub superblock: Arc<Superblock>,
    pub table_block: Arc<MetaBlock>,
    /// Offset of the inode in `table_block`, in bytes.
    pub table_offset: usize,
    pub charge: Charge,
    pub clock: Clock,
    /// The user, group and project that are charged for the inode.
    pub charges: Option<Charges>,
}

impl Inode {
    /// Builds an inode that is not on the device yet. Its block map is empty: in the inode if `raw`
    /// has the flag `INLINE_DATA`, a tree of extents if the volume has them, otherwise it is read
    /// from the empty `i_block` on first use.
    ///
    /// # Errors
    /// Returns an error for fields that no inode can have.
    pub(crate) fn build_new(parts: InodeParts, mut raw: RawInode, block_size: BlockSize) -> Result<Self> {
        let mapped = matches!(FileType::from_mode(raw.mode), Some(FileType::Regular | FileType::Directory));
        let mut block_map = None;
        if raw.flags.contains(InodeFlags::INLINE_DATA) {
            return Self::build(parts, raw, Some(BlockMap::inline()));
        }
        if mapped && parts.superblock.incompat().contains(Incompat::EXTENTS) {
            raw.flags |= InodeFlags::EXTENTS;
        }
        if raw.flags.contains(InodeFlags::EXTENTS) {
            block_map = Some(BlockMap::empty(block_size, parts.ino, parts.seed));
        }
        Self::build(parts, raw, block_map)
    }

    /// Builds an inode from its fields. Without `block_map`, its block map is read on first use.
    ///
    /// # Errors
    /// Returns an error for fields that no inode can have.
    pub(crate) fn build(parts: InodeParts, raw: RawInode, block_map: Option<BlockMap>) -> Result<Self> {
        let InodeParts { ino, seed, superblock, table_block, table_offset, charge, charges, clock } = parts;
        let file_type = FileType::from_mode(raw.mode).ok_or_else(|| {
            let problem = format_args!("{:#o} has no file type", raw.mode);
            Error::corrupt_field("inode", "i_mode", problem).of_inode(ino)
        })?;
        if i64::try_from(raw.size).is_err() {
            let problem = format_args!("{} is out of range", raw.size);
            return Err(Error::corrupt_field("inode", "i_size", problem).of_inode(ino));
        }
        let cell = OnceCell::new();
        if let Some(block_map) = block_map {
            let _ = cell.set(block_map);
        }
        let raw_size = raw.size;
        let lacks_fields = raw.extra_isize != 0 && raw.extra_isize < superblock.want_extra_isize();
        Ok(Self {
            ino,
            file_type,
            seed,
            superblock,
            table_block,
            table_offset,
            flags: AtomicU32::new(raw.flags.bits()),
            size: AtomicU64::new(raw.size),
            disk_size: AtomicU64::new(raw.size),
            sectors: AtomicU64::new(raw.blocks),
            charges,
            tail: Mutex::new(Rank::Tail, Tail::at(raw.size)),
            core: Mutex::new(Rank::InodeCore, raw),
            written: Written::new(clock),
            block_map: cell,
            cached: OnceCell::new(),
            merkle_tree: OnceCell::new(),
            block_map_load: Mutex::new(Rank::BlockMapLoad, ()),
            ranges: Arc::new(new_ranges()),
            usage: FileUsage::default(),
            windows: FileWindows::new(),
            xattrs: RwLock::new(Rank::Xattrs, ()),
            lacks_fields: AtomicBool::new(lacks_fields),
            entries: RwLock::new(Rank::Directory, 0),
            names_placed: AtomicBool::new(false),
            references: AtomicU32::new(0),
            departing: AtomicU32::new(0),
            stays: AtomicBool::new(false),
            // No block size is larger, so a file whose size is a multiple of this ends at a block
            // boundary.
            tail_clean: AtomicBool::new(raw_size.is_multiple_of(65536)),
            emptied: AtomicBool::new(false),
            past_end: AtomicU8::new(0),
            joined: AtomicU64::new(0),
            changed_in: AtomicU64::new(0),
            charge,
        })
    }
}

#[cfg(not(shuttle))]
fn new_ranges() -> RangeLock {
    RangeLock::new()
}

#[cfg(shuttle)]
fn new_ranges() -> RangeLock {
    // The faults of the range lock have their own switch.
    let passes_waiters = crate::fault::Fault::PassWaiters.is_planted();
    rangelock::plant(passes_waiters.then_some(rangelock::Fault::PassWaiters));
    RangeLock::new()
}
