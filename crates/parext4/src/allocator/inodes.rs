//! Allocating and freeing inode numbers.
//!
//! The module is responsible for the inode bitmaps and for choosing the group of an inode. It is
//! not responsible for the contents of inodes.

use parext4_format::{FsBlock, GroupNo, InodeNo, bitmap};

use super::Allocator;
use super::group::{Group, Inodes};
use crate::convert::to_usize;
use crate::error::{Error, Result};
use crate::journal::Handle;
use crate::meta::{BlockKind, MetaBlock};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// The place of an inode on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodePlace {
    pub block: FsBlock,
    /// Byte offset in the block.
    pub offset: usize,
}

impl Allocator {
    /// Returns the place of inode `ino`.
    ///
    /// # Errors
    /// Returns an error if the volume has no such inode.
    pub(crate) fn inode_place(&self, ino: InodeNo) -> Result<InodePlace> {
        let (group, index) = self.layout.inode_place(ino)?;
        let byte = u64::from(index) * u64::from(self.layout.inode_size);
        let block_size = u64::from(self.layout.block_size.bytes());
        let offset = to_usize(byte % block_size);
        Ok(InodePlace { block: self.group(group).inode_table() + byte / block_size, offset })
    }

    /// Returns true if inode `ino` is marked as in use.
    ///
    /// # Errors
    /// Returns an error if the volume has no such inode, or its group's bitmap is corrupt.
    pub(crate) fn inode_in_use(&self, ino: InodeNo) -> Result<bool> {
        let (_, index) = self.layout.inode_place(ino)?;
        Ok(bitmap::test(&self.inode_bitmap(ino)?.snapshot(), index))
    }

    /// Returns the bitmap that has inode `ino`. It stays in memory while the caller keeps it.
    ///
    /// # Errors
    /// As [`inode_in_use`](Self::inode_in_use).
    pub(crate) fn inode_bitmap(&self, ino: InodeNo) -> Result<Arc<MetaBlock>> {
        let (group, _) = self.layout.inode_place(ino)?;
        let group = self.group(group);
        group.load_inodes(&self.cache, &mut group.inodes.lock())
    }

    /// Returns true if a new inode may get the number `ino`. Reads the bitmap only if it was in
    /// memory before. Returns false if the bitmap cannot be read: no inode gets a number while the
    /// bitmap is not in memory.
    ///
    /// # Errors
    /// Corruption: the volume has no such inode.
    pub(crate) fn offers_inode(&self, ino: InodeNo) -> Result<bool> {
        let (group, index) = self.layout.inode_place(ino)?;
        let group = self.group(group);
        let mut inodes = group.inodes.lock();
        if !inodes.was_loaded {
            return Ok(inodes.uninit);
        }
        let Ok(bitmap) = group.load_inodes(&self.cache, &mut inodes) else {
            // The next allocation in the group reports the error.
            inodes.was_loaded = false;
            return Ok(false);
        };
        Ok(!bitmap::test(&bitmap.snapshot(), index))
    }

    /// Allocates an inode for a new entry of directory `parent`, in the parent's group if possible.
    /// Directories directly below the root are spread over the volume. Returns the number and the
    /// inode's table block, in which the inode is zeroed.
    ///
    /// Registers at most [`super::INODE_CREDITS`] blocks.
    ///
    /// # Errors
    /// [`Error::NoInodes`]; corruption of a group that was tried.
    pub(crate) fn allocate_inode(
        &self,
        handle: &Handle<'_>,
        parent: InodeNo,
        is_dir: bool,
    ) -> Result<(InodeNo, Arc<MetaBlock>)> {
        let (parent_group, _) = self.layout.inode_place(parent)?;
        let first = if is_dir && parent == InodeNo::ROOT { self.emptiest_group() } else { parent_group };
        for group in self.groups_from(first) {
            if self.group(group).free_inodes_hint.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if let Some((ino, block)) = self.take_inode(handle, group, is_dir)? {
                self.group(group).initialise_blocks(&self.cache, handle)?;
                self.counts.sub_inode(handle);
                return Ok((ino, block));
            }
        }
        Err(Error::NoInodes)
    }

    /// Returns the group for a new directory below the root: a group with free inodes and blocks,
    /// then with the fewest directories, then with the most free inodes.
    fn emptiest_group(&self) -> GroupNo {
        let key = |group: &Arc<super::Group>| {
            let free = group.free_inodes_hint.load(Ordering::Relaxed);
            let blocks = group.largest_hint();
            let dirs = group.used_dirs_hint.load(Ordering::Relaxed);
            (free > 0 && blocks > 0, std::cmp::Reverse(dirs), free)
        };
        // On a tie the first group is chosen, because `max_by_key` returns the last maximum of the
        // reversed order.
        self.groups.iter().rev().max_by_key(|group| key(group)).map_or(GroupNo(0), |group| group.number)
    }

    fn take_inode(
        &self,
        handle: &Handle<'_>,
        number: GroupNo,
        is_dir: bool,
    ) -> Result<Option<(InodeNo, Arc<MetaBlock>)>> {
        let group = self.group(number);
        // The first block of the inode is likely to be in this group. A failed read of its bitmap
        // after this change would stop the volume.
        group.read_block_bitmap(&self.cache)?;
        let mut inodes = group.inodes.lock();
        let bitmap = group.load_inodes(&self.cache, &mut inodes)?;
        let per_group = self.layout.inodes_per_group;
        let reserved = if number.get() == 0 { self.layout.first_inode - 1 } else { 0 };
        let Some(index) = bitmap::next_zero(&bitmap.snapshot(), reserved, per_group) else {
            group.free_inodes_hint.store(0, Ordering::Relaxed);
            return Ok(None);
        };
        let ino = InodeNo(number.get() * per_group + index + 1);
        let block = self.take_inode_at(handle, group, &mut inodes, (ino, index), is_dir)?;
        Ok(Some((ino, block)))
    }

    /// Marks inode `ino` of `group`, which has number `index` in it, as in use. Returns its table
    /// block, in which the inode is zeroed.
    pub(super) fn take_inode_at(
        &self,
        handle: &Handle<'_>,
        group: &Arc<Group>,
        inodes: &mut Inodes,
        (ino, index): (InodeNo, u32),
        is_dir: bool,
    ) -> Result<Arc<MetaBlock>> {
        let bitmap = group.load_inodes(&self.cache, inodes)?;
        // The caller holds the group's lock, so of two new inodes in one fresh block only the first
        // zeroes it.
        let block = self.prepare_table_block(handle, ino, index, &bitmap.snapshot())?;
        handle.change(&bitmap, |bytes| bitmap::set_range(bytes, index, 1));
        inodes.free_count = inodes.free_count.saturating_sub(1);
        inodes.used_dirs += u32::from(is_dir);
        inodes.table_unused = inodes.table_unused.min(self.layout.inodes_per_group - index - 1);
        inodes.uninit = false;
        group.free_inodes_hint.store(inodes.free_count, Ordering::Relaxed);
        group.used_dirs_hint.store(inodes.used_dirs, Ordering::Relaxed);
        group.touch(handle);
        Ok(block)
    }

    /// Returns the table block of a new inode. If no other inode of the block is in use, the block
    /// is zeroed, because the device may have stale bytes there (lazily initialised tables).
    fn prepare_table_block(
        &self,
        handle: &Handle<'_>,
        ino: InodeNo,
        index: u32,
        bitmap: &[u8],
    ) -> Result<Arc<MetaBlock>> {
        let place = self.inode_place(ino)?;
        let size = usize::from(self.layout.inode_size);
        let per_block = self.layout.block_size.bytes() / u32::from(self.layout.inode_size);
        let first = index - index % per_block;
        let end = (first + per_block).min(self.layout.inodes_per_group);
        let alone = (first..end).all(|other| !bitmap::test(bitmap, other));
        let block = if alone {
            self.cache.create(place.block, BlockKind::InodeTable)?
        } else {
            self.cache.read(place.block, BlockKind::InodeTable)?
        };
        let clear = if alone {
            0..self.layout.block_size.bytes() as usize
        } else {
            place.offset..place.offset + size
        };
        handle.change(&block, |bytes| bytes[clear].fill(0));
        Ok(block)
    }

    /// Frees an inode number under `handle`. The caller has cleared the inode.
    ///
    /// # Errors
    /// Corruption: the volume has no such inode, or it is not in use.
    pub(crate) fn free_inode(&self, handle: &Handle<'_>, ino: InodeNo, is_dir: bool) -> Result<()> {
        let (number, index) = self.layout.inode_place(ino)?;
        let group = self.group(number);
        let mut inodes = group.inodes.lock();
        let bitmap = group.load_inodes(&self.cache, &mut inodes)?;
        if !bitmap::test(&bitmap.snapshot(), index) {
            return Err(Error::corrupt(format_args!("inode {ino} is freed but not in use")));
        }
        handle.change(&bitmap, |bytes| bitmap::clear_range(bytes, index, 1));
        inodes.free_count += 1;
        inodes.used_dirs = inodes.used_dirs.saturating_sub(u32::from(is_dir));
        group.free_inodes_hint.store(inodes.free_count, Ordering::Relaxed);
        group.used_dirs_hint.store(inodes.used_dirs, Ordering::Relaxed);
        group.touch(handle);
        drop(inodes);
        self.counts.add_inode(handle);
        Ok(())
    }

    /// Returns the group of an inode.
    ///
    /// # Errors
    /// Returns an error if the volume has no such inode.
    pub(crate) fn group_of_inode(&self, ino: InodeNo) -> Result<GroupNo> {
        Ok(self.layout.inode_place(ino)?.0)
    }
}
