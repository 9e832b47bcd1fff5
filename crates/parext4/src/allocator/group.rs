//! One block group: its descriptor, its free blocks and its inodes.
//!
//! The module is responsible for the bitmaps, the counters and the free extents of the group. It is
//! not responsible for choosing a group. The bitmaps are read when the group is first used, and may
//! be [evicted](evict). Invariant: the free extents are the blocks that may be allocated now. In
//! the bitmap and the counters, blocks of a transaction that is not durable are already free (I7).

mod evict;
mod window_blocks;

use parext4_format::group_desc::{GroupDesc, GroupFlags};
use parext4_format::superblock::Superblock;
use parext4_format::{FsBlock, GroupNo, InodeNo, bitmap};

use super::free_extents::{End, FreeExtents};
use super::{AllocMode, Run};
use crate::convert::saturating_u32;
use crate::error::{Error, Result};
use crate::journal::{Handle, Participant};
use crate::layout::{GroupRun, Layout};
use crate::memory::{Charge, NEVER};
use crate::meta::{BlockKind, MetaBlock, MetaCache};
use crate::sync::Rank;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};

/// Number of blocks that a change of the group registers: the descriptor's block and the bitmap.
pub(super) const GROUP_CREDITS: u32 = 2;

#[derive(Debug)]
pub(super) struct Group {
    pub(super) number: GroupNo,
    /// The layout in clusters.
    layout: Arc<Layout>,
    superblock: Arc<Superblock>,
    /// The block that contains this group's descriptor, and the offset in it.
    desc_block: Arc<MetaBlock>,
    desc_offset: usize,
    /// The descriptor as it was read at open. Its variable fields are in `blocks` and `inodes`.
    desc: GroupDesc,
    pub(super) blocks: Mutex<Blocks>,
    pub(super) inodes: Mutex<Inodes>,
    joined: AtomicU64,
    /// Hints that are read without the lock, to skip groups that cannot serve a request. Relaxed
    /// suffices: they order no other accesses, and a search that fails is repeated without hints.
    pub(super) largest_hint: AtomicU32,
    pub(super) free_inodes_hint: AtomicU32,
    pub(super) used_dirs_hint: AtomicU32,
    /// The time of the last use of a bitmap, by the clock of the budget; `NEVER` if none is in
    /// memory.
    used_at: AtomicU64,
}

/// The blocks of a group.
#[derive(Debug)]
pub(super) struct Blocks {
    free_count: u32,
    uninit: bool,
    checksum: u32,
    bitmap: Option<Arc<MetaBlock>>,
    pub(super) free: FreeExtents,
    /// Number of blocks that are free in the bitmap but not in `free`: blocks of windows, claimed
    /// blocks, blocks being discarded, and blocks freed by a transaction that is not durable. While
    /// the number is above zero, the bitmap and `free` stay in memory.
    in_windows: u32,
    /// The memory of `free`, charged to the metadata budget while the bitmap is in memory.
    charge: Option<Charge>,
}

/// The inodes of a group.
#[derive(Debug)]
pub(super) struct Inodes {
    pub(super) free_count: u32,
    pub(super) used_dirs: u32,
    pub(super) table_unused: u32,
    pub(super) uninit: bool,
    checksum: u32,
    pub(super) bitmap: Option<Arc<MetaBlock>>,
    /// True if the bitmap was in memory and no later read of it has failed, so that new inodes may
    /// get numbers.
    pub(super) was_loaded: bool,
}

impl Group {
    pub(super) fn new(
        number: GroupNo,
        layout: &Arc<Layout>,
        superblock: &Arc<Superblock>,
        desc_block: Arc<MetaBlock>,
        desc_offset: usize,
        desc: GroupDesc,
    ) -> Self {
        // Without group checksums the flags have no meaning.
        let uninit = |flag| superblock.has_group_checksums() && desc.flags.contains(flag);
        let blocks = Blocks {
            free_count: desc.free_blocks,
            uninit: uninit(GroupFlags::BLOCK_UNINIT),
            checksum: desc.block_bitmap_csum,
            bitmap: None,
            free: FreeExtents::default(),
            in_windows: 0,
            charge: None,
        };
        let inodes = Inodes {
            free_count: desc.free_inodes,
            used_dirs: desc.used_dirs,
            // A group that was never used has no inodes, whatever the field says.
            table_unused: if uninit(GroupFlags::INODE_UNINIT) {
                layout.inodes_per_group
            } else {
                desc.itable_unused
            },
            uninit: uninit(GroupFlags::INODE_UNINIT),
            checksum: desc.inode_bitmap_csum,
            bitmap: None,
            was_loaded: false,
        };
        Self {
            number,
            layout: Arc::clone(layout),
            superblock: Arc::clone(superblock),
            desc_block,
            desc_offset,
            // This is the upper bound, until the bitmap is read.
            largest_hint: AtomicU32::new(desc.free_blocks),
            free_inodes_hint: AtomicU32::new(desc.free_inodes),
            used_dirs_hint: AtomicU32::new(desc.used_dirs),
            used_at: AtomicU64::new(NEVER),
            desc,
            blocks: Mutex::new(Rank::AllocGroup, blocks),
            inodes: Mutex::new(Rank::AllocGroup, inodes),
            joined: AtomicU64::new(0),
        }
    }

    pub(super) fn largest_hint(&self) -> u32 {
        self.largest_hint.load(Ordering::Relaxed)
    }

    pub(super) fn inode_table(&self) -> FsBlock {
        self.desc.inode_table
    }

    /// Allocates up to `want` contiguous blocks: at `goal` (an offset in the group) if they are
    /// free there, otherwise from another free run. With `whole`, allocates all `want` blocks or
    /// none, from the given end of the run. Returns `None` if there is no such run.
    pub(super) fn take(
        self: &Arc<Self>,
        cache: &MetaCache,
        mode: AllocMode<'_>,
        goal: Option<u32>,
        want: u32,
        whole: Option<End>,
    ) -> Result<Option<Run>> {
        let mut blocks = self.blocks.lock();
        let bitmap = self.load_blocks(cache, &mut blocks)?;
        let taken = match whole {
            Some(end) => blocks.free.take_whole(goal, want, end),
            None => blocks.free.take_part(goal, want),
        };
        let Some(run) = taken else {
            self.update_hints(&blocks);
            return Ok(None);
        };
        match mode {
            AllocMode::InUse(handle) => self.mark_in_use(handle, &mut blocks, &bitmap, run),
            AllocMode::Claim => blocks.in_windows += run.len,
        }
        self.update_hints(&blocks);
        Ok(Some(Run::in_group(&self.layout, self.number, run)))
    }

    pub(super) fn mark_in_use(
        self: &Arc<Self>,
        handle: &Handle<'_>,
        blocks: &mut Blocks,
        bitmap: &Arc<MetaBlock>,
        run: GroupRun,
    ) {
        debug_assert!(bitmap::is_clear(&bitmap.snapshot(), run.start, run.len), "blocks allocated twice");
        handle.change(bitmap, |bytes| bitmap::set_range(bytes, run.start, run.len));
        blocks.free_count -= run.len;
        blocks.uninit = false;
        self.touch(handle);
    }

    /// Frees blocks in the bitmap and the counters. [`release`](Self::release) makes them
    /// allocatable. Returns false, with nothing changed, if a block is free already.
    pub(super) fn free(
        self: &Arc<Self>,
        cache: &MetaCache,
        handle: &Handle<'_>,
        run: GroupRun,
    ) -> Result<bool> {
        let mut blocks = self.blocks.lock();
        let bitmap = self.load_blocks(cache, &mut blocks)?;
        if !bitmap::is_set(&bitmap.snapshot(), run.start, run.len) {
            return Ok(false);
        }
        handle.change(&bitmap, |bytes| bitmap::clear_range(bytes, run.start, run.len));
        blocks.free_count += run.len;
        blocks.in_windows += run.len;
        blocks.uninit = false;
        self.touch(handle);
        Ok(true)
    }

    /// Reads the block bitmap, if it is not in memory.
    pub(super) fn read_block_bitmap(&self, cache: &MetaCache) -> Result<()> {
        self.load_blocks(cache, &mut self.blocks.lock()).map(drop)
    }

    /// Makes runs of blocks allocatable: freed blocks whose transaction is durable, or the rest of
    /// a window.
    pub(super) fn release(&self, runs: impl IntoIterator<Item = GroupRun>) {
        let mut blocks = self.blocks.lock();
        for run in runs {
            let added = blocks.free.insert(run);
            debug_assert!(added, "blocks released twice");
            blocks.in_windows -= run.len;
        }
        self.update_hints(&blocks);
    }

    /// Registers the block bitmap of a group whose bitmap was never written, as the kernel does
    /// when the group gets its first inode.
    pub(super) fn initialise_blocks(self: &Arc<Self>, cache: &MetaCache, handle: &Handle<'_>) -> Result<()> {
        let mut blocks = self.blocks.lock();
        if blocks.uninit {
            let bitmap = self.load_blocks(cache, &mut blocks)?;
            handle.register(&bitmap);
            blocks.uninit = false;
            self.touch(handle);
        }
        Ok(())
    }

    /// Registers the descriptor's block, and joins the transaction so that the descriptor is
    /// encoded at commit.
    pub(super) fn touch(self: &Arc<Self>, handle: &Handle<'_>) {
        handle.register(&self.desc_block);
        handle.join(self);
    }

    pub(super) fn update_hints(&self, blocks: &Blocks) {
        self.largest_hint.store(blocks.free.largest(), Ordering::Relaxed);
    }

    /// Returns the block bitmap. On first use, reads or creates it and builds the free extents.
    pub(super) fn load_blocks(&self, cache: &MetaCache, blocks: &mut Blocks) -> Result<Arc<MetaBlock>> {
        self.used_at.store(cache.budget().now(), Ordering::Relaxed);
        if let Some(bitmap) = &blocks.bitmap {
            return Ok(Arc::clone(bitmap));
        }
        let place = self.desc.block_bitmap;
        let bitmap = if blocks.uninit {
            let bitmap = cache.create(place, BlockKind::Bitmap)?;
            bitmap.change(|bytes| self.fill_uninit_blocks(bytes));
            bitmap
        } else {
            cache.read(place, BlockKind::Bitmap)?
        };
        let bytes = bitmap.snapshot();
        if !blocks.uninit {
            let mut desc = GroupDesc { block_bitmap_csum: blocks.checksum, ..self.desc.clone() };
            desc.flags.set(GroupFlags::BLOCK_UNINIT, false);
            bitmap::verify_block_bitmap(&desc, &bytes, &self.superblock)
                .map_err(|e| e.in_block(place).in_group(self.number))?;
        }
        let limit = self.layout.group_blocks(self.number);
        let free = bitmap::count_zeros(&bytes, limit);
        if free != blocks.free_count {
            let problem = format_args!("{}, but the bitmap has {free}", blocks.free_count);
            return Err(Error::corrupt_field("group descriptor", "bg_free_blocks_count", problem)
                .in_group(self.number));
        }
        for run in self.layout.system_blocks_in(self.number) {
            if !bitmap::is_set(&bytes, run.start, run.len) {
                let error = Error::corrupt("block bitmap: the file system's own blocks are free");
                return Err(error.in_block(place).in_group(self.number));
            }
        }
        for (start, len) in bitmap::free_runs(&bytes, 0, limit) {
            blocks.free.insert(GroupRun { start, len });
        }
        blocks.bitmap = Some(Arc::clone(&bitmap));
        blocks.charge = Some(cache.budget().charge(blocks.free.memory()));
        self.update_hints(blocks);
        Ok(bitmap)
    }

    /// Fills in the bitmap of a group with `BLOCK_UNINIT`, in which only the file system's own
    /// blocks are in use.
    fn fill_uninit_blocks(&self, bytes: &mut [u8]) {
        bytes.fill(0);
        for run in self.layout.system_blocks_in(self.number) {
            bitmap::set_range(bytes, run.start, run.len);
        }
        pad(bytes, self.layout.group_blocks(self.number));
    }

    /// Returns the inode bitmap. On first use, reads or creates it.
    pub(super) fn load_inodes(&self, cache: &MetaCache, inodes: &mut Inodes) -> Result<Arc<MetaBlock>> {
        self.used_at.store(cache.budget().now(), Ordering::Relaxed);
        if let Some(bitmap) = &inodes.bitmap {
            return Ok(Arc::clone(bitmap));
        }
        let place = self.desc.inode_bitmap;
        let bitmap = if inodes.uninit {
            let bitmap = cache.create(place, BlockKind::Bitmap)?;
            bitmap.change(|bytes| {
                bytes.fill(0);
                pad(bytes, self.layout.inodes_per_group);
            });
            bitmap
        } else {
            let bitmap = cache.read(place, BlockKind::Bitmap)?;
            let mut desc = GroupDesc { inode_bitmap_csum: inodes.checksum, ..self.desc.clone() };
            desc.flags.set(GroupFlags::INODE_UNINIT, false);
            bitmap::verify_inode_bitmap(&desc, &bitmap.snapshot(), &self.superblock)
                .map_err(|e| e.in_block(place).in_group(self.number))?;
            bitmap
        };
        let free = bitmap::count_zeros(&bitmap.snapshot(), self.layout.inodes_per_group);
        if free != inodes.free_count {
            let problem = format_args!("{}, but the bitmap has {free}", inodes.free_count);
            return Err(Error::corrupt_field("group descriptor", "bg_free_inodes_count", problem)
                .in_group(self.number));
        }
        if let Some(ino) = self.own_inode_marked_free(&bitmap.snapshot()) {
            let problem = format_args!("inode {ino} of the file system itself is marked free");
            return Err(Error::corrupt_field("inode bitmap", "bit", problem).in_group(self.number));
        }
        (inodes.bitmap, inodes.was_loaded) = (Some(Arc::clone(&bitmap)), true);
        Ok(bitmap)
    }

    /// Returns an inode of the group that has a reserved number, or that the superblock names,
    /// although the bitmap marks it free. It must not be allocated, and a new inode must not clear
    /// its block of the table.
    fn own_inode_marked_free(&self, bitmap: &[u8]) -> Option<InodeNo> {
        let first = self.number.get() * self.layout.inodes_per_group + 1;
        // A group may have fewer inodes than there are reserved ones.
        let reserved = self.layout.first_inode.saturating_sub(first);
        let of_group =
            |ino: InodeNo| ino.get().checked_sub(first).filter(|&index| index < self.layout.inodes_per_group);
        let free = bitmap::next_zero(bitmap, 0, reserved.min(self.layout.inodes_per_group));
        let mut own_files = self.superblock.own_files().filter_map(of_group);
        let free = free.or_else(|| own_files.find(|&index| !bitmap::test(bitmap, index)));
        free.map(|index| InodeNo(first + index))
    }
}

impl Participant for Group {
    fn encode(&self) -> Result<()> {
        let mut desc = self.desc.clone();
        let seed = self.layout.seed;
        {
            let mut blocks = self.blocks.lock();
            if let (Some(seed), Some(bitmap)) = (seed, &blocks.bitmap) {
                blocks.checksum = bitmap::block_bitmap_checksum(seed, &bitmap.snapshot(), &self.superblock);
            }
            desc.free_blocks = blocks.free_count;
            desc.block_bitmap_csum = blocks.checksum;
            desc.flags.set(GroupFlags::BLOCK_UNINIT, blocks.uninit);
        }
        {
            let mut inodes = self.inodes.lock();
            if let (Some(seed), Some(bitmap)) = (seed, &inodes.bitmap) {
                inodes.checksum = bitmap::inode_bitmap_checksum(seed, &bitmap.snapshot(), &self.superblock);
            }
            desc.free_inodes = inodes.free_count;
            desc.used_dirs = inodes.used_dirs;
            desc.inode_bitmap_csum = inodes.checksum;
            // Without group checksums the field has no meaning, and the kernel leaves it unchanged.
            if self.superblock.has_group_checksums() {
                desc.itable_unused = inodes.table_unused;
            }
            desc.flags.set(GroupFlags::INODE_UNINIT, inodes.uninit);
        }
        let range = self.desc_offset..self.desc_offset + usize::from(self.layout.desc_size);
        self.desc_block.change(|bytes| desc.encode(&mut bytes[range], &self.superblock, self.number));
        Ok(())
    }

    fn joined(&self) -> &AtomicU64 {
        &self.joined
    }
}

/// Sets the bits from `from` to the end of the bitmap, as the format requires.
fn pad(bytes: &mut [u8], from: u32) {
    let bits = saturating_u32(bytes.len() * 8);
    if from < bits {
        bitmap::set_range(bytes, from, bits - from);
    }
}
