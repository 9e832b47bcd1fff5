//! Making inodes: from the device, and new ones.

use std::sync::OnceLock;

use parext4_format::InodeNo;
use parext4_format::inode::{FileType, Inode as RawInode, InodeFlags};
use rangelock::RangeLock;

use super::time::Written;
use super::{Inode, Tail};
use crate::allocator::FileWindows;
use crate::error::{Error, Result};
use crate::extent_map::ExtentMap;

use crate::meta::{BlockKind, MetaBlock};
use crate::stats::FileUsage;
use crate::sync::Rank;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use crate::sync::{Arc, Mutex, RwLock};
use crate::volume::Inner;

impl Inner {
    /// The inode, from memory or the device.
    ///
    /// # Errors
    /// Corruption, a failed read, or a number that is not in use.
    pub(crate) fn inode(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        let inode = self.inodes.get(ino, || self.load_inode(ino));
        inode.map_err(|error| self.health.note(ino, error))
    }

    fn load_inode(&self, ino: InodeNo) -> Result<Inode> {
        self.load_made(ino)?
            .ok_or_else(|| Error::corrupt(format_args!("inode {ino}: its place in the table is zeros")))
    }

    /// Reads the inode from the device. `None` if its place in the table is zeros, as for an inode that is being
    /// created, whose number is in use before its transaction closes.
    pub(super) fn load_made(&self, ino: InodeNo) -> Result<Option<Inode>> {
        let place = self.allocator.inode_place(ino)?;
        let block = self.cache.read(place.block, BlockKind::InodeTable)?;
        let bytes = block.snapshot();
        let raw = bytes
            .get(place.offset..place.offset + usize::from(self.layout.inode_size))
            .ok_or_else(|| Error::corrupt(format_args!("inode {ino} lies outside its block")))?;
        if raw.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let mut raw = RawInode::parse(raw, &self.superblock, ino)
            .map_err(|e| Error::corrupt(format_args!("inode {ino}: {e}")))?;
        // It comes to the device with the first change of the inode.
        if !self.is_read_only() {
            raw.expand_extra(self.superblock.want_extra_isize());
        }
        self.build_inode(ino, raw, block, place.offset, None).map(Some)
    }

    /// A new inode over its zeroed place in the table. It becomes visible with a directory entry.
    pub(crate) fn new_inode(
        &self,
        ino: InodeNo,
        mut raw: RawInode,
        table_block: Arc<MetaBlock>,
    ) -> Result<Arc<Inode>> {
        let place = self.allocator.inode_place(ino)?;
        raw.generation = self.next_generation();
        let mapped = matches!(FileType::from_mode(raw.mode), Some(FileType::Regular | FileType::Directory));
        let seed = self.layout.seed.map(|seed| seed.inode(ino, raw.generation));
        let mut map = None;
        if mapped || raw.flags.contains(InodeFlags::EXTENTS) {
            raw.flags |= InodeFlags::EXTENTS;
            map = Some(ExtentMap::empty(self.layout.block_size, BlockKind::ExtentNode(ino, seed)));
        }
        let inode = Arc::new(self.build_inode(ino, raw, table_block, place.offset, map)?);
        self.inodes.insert(Arc::clone(&inode));
        Ok(inode)
    }

    fn build_inode(
        &self,
        ino: InodeNo,
        raw: RawInode,
        table_block: Arc<MetaBlock>,
        table_offset: usize,
        map: Option<ExtentMap>,
    ) -> Result<Inode> {
        let file_type = FileType::from_mode(raw.mode).ok_or_else(|| {
            Error::corrupt(format_args!("inode {ino}: i_mode {:#o} has no file type", raw.mode))
        })?;
        if i64::try_from(raw.size).is_err() {
            return Err(Error::corrupt(format_args!("inode {ino}: i_size {} is out of range", raw.size)));
        }
        let cell = OnceLock::new();
        if let Some(map) = map {
            let _ = cell.set(map);
        }
        let raw_size = raw.size;
        Ok(Inode {
            ino,
            file_type,
            seed: self.layout.seed.map(|seed| seed.inode(ino, raw.generation)),
            superblock: Arc::clone(&self.superblock),
            table_block,
            table_offset,
            flags: AtomicU32::new(raw.flags.bits()),
            size: AtomicU64::new(raw.size),
            disk_size: AtomicU64::new(raw.size),
            sectors: AtomicU64::new(raw.blocks),
            tail: Mutex::new(Rank::Tail, Tail::at(raw.size)),
            core: Mutex::new(Rank::InodeCore, raw),
            written: Written::new(),
            map: cell,
            cached: OnceLock::new(),
            map_load: Mutex::new(Rank::MapLoad, ()),
            ranges: Arc::new(new_ranges()),
            usage: FileUsage::default(),
            windows: FileWindows::new(),
            xattrs: RwLock::new(Rank::Xattrs, ()),
            entries: RwLock::new(Rank::Directory, ()),
            references: AtomicU32::new(0),
            listed: AtomicBool::new(false),
            // No block is larger, so a size on this boundary leaves no rest of a block.
            tail_clean: AtomicBool::new(raw_size.is_multiple_of(65536)),
            emptied: AtomicBool::new(false),
            behind: AtomicU8::new(0),
            joined: AtomicU64::new(0),
            changed_in: AtomicU64::new(0),
            charge: self.inodes.charge(),
        })
    }
}

#[cfg(not(shuttle))]
fn new_ranges() -> RangeLock {
    RangeLock::new()
}

#[cfg(shuttle)]
fn new_ranges() -> RangeLock {
    use crate::fault::{Fault, planted};
    RangeLock::with_fault(planted(Fault::PassWaiters).then_some(rangelock::Fault::PassWaiters))
}
