//! The geometry of a volume, derived once from its superblock, and the blocks that belong to the
//! file system itself.
//!
//! Responsible for arithmetic between blocks, groups and inodes, and for the check that no file
//! refers to a block outside the volume or of the file system (I9). Does no I/O. Invariant: nothing
//! here changes after the volume was opened.

mod clusters;

use parext4_format::features::RoCompat;
use parext4_format::group_desc::GroupDesc;
use parext4_format::indirect::Shape;
use parext4_format::superblock::Superblock;
use parext4_format::{BlockSize, ChecksumSeed, FsBlock, GroupNo, InodeNo};

use crate::convert::saturating_u32;
use crate::error::{Error, Result};

/// Limit of the number of blocks of a file with extents. `ee_block` has 32 bits, and the last value
/// is not used.
pub(crate) const MAX_FILE_BLOCKS: u64 = u32::MAX as u64;

/// Contiguous blocks of one group, counted from the first block of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupRun {
    pub start: u32,
    pub len: u32,
}

impl GroupRun {
    /// Returns the number of the block after the last one.
    pub(crate) fn end(self) -> u32 {
        self.start + self.len
    }
}

/// The constants of one volume. [`Superblock::parse`] has checked their ranges.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub block_size: BlockSize,
    pub blocks_count: u64,
    pub first_data_block: u32,
    pub blocks_per_group: u32,
    pub inodes_per_group: u32,
    pub inodes_count: u32,
    pub first_inode: u32,
    pub inode_size: u16,
    pub group_count: u32,
    pub desc_size: u16,
    pub descs_per_block: u32,
    /// Binary logarithm of the number of blocks in a cluster, the unit of allocation: 0 without
    /// `bigalloc`.
    pub cluster_bits: u32,
    /// Limit of the number of blocks of a file with extents.
    pub max_file_blocks: u64,
    /// Limit of the number of blocks of a file without extents.
    pub max_indirect_blocks: u64,
    /// Limit of the number of blocks that the extents of a file map. With `shared_blocks` they may
    /// map one block any number of times.
    pub max_mapped_blocks: u64,
    /// `Some` with `metadata_csum`.
    pub seed: Option<ChecksumSeed>,
    /// Clusters with blocks of the superblock, descriptors, bitmaps, inode tables, multi-mount
    /// protection and journal: sorted, disjoint `(start, end)`, in blocks.
    system: Vec<(u64, u64)>,
}

impl Layout {
    pub(crate) fn new(sb: &Superblock) -> Self {
        Self {
            block_size: sb.block_unit(),
            blocks_count: sb.blocks_count(),
            first_data_block: sb.first_data_block(),
            blocks_per_group: sb.blocks_per_group(),
            inodes_per_group: sb.inodes_per_group(),
            inodes_count: sb.inodes_count(),
            first_inode: sb.first_inode(),
            inode_size: sb.inode_size(),
            group_count: sb.group_count(),
            desc_size: sb.desc_size(),
            descs_per_block: sb.descs_per_block(),
            cluster_bits: sb.cluster_bits(),
            max_file_blocks: max_file_blocks(sb),
            max_indirect_blocks: Shape::new(sb.block_unit())
                .max_blocks(sb.ro_compat().contains(RoCompat::HUGE_FILE)),
            max_mapped_blocks: match sb.ro_compat().contains(RoCompat::SHARED_BLOCKS) {
                true => u64::MAX,
                false => sb.blocks_count(),
            },
            seed: sb.checksum_seed(),
            system: Vec::new(),
        }
    }

    /// Sets the blocks that belong to the file system itself, so that no file may refer to them
    /// (I9). `journal` lists the runs of the journal's blocks as `(start, length)`; they lie in the
    /// volume.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a descriptor places a bitmap or an inode table outside the volume, or
    /// if two structures overlap. The kernel checks the same (`ext4_setup_system_zone`).
    pub(crate) fn set_system_zone(
        &mut self,
        sb: &Superblock,
        groups: &[GroupDesc],
        journal: impl Iterator<Item = (FsBlock, u32)>,
    ) -> Result<()> {
        let table_blocks = u64::from(sb.inode_table_blocks());
        let mut zones = Vec::with_capacity(groups.len() * 2);
        for (index, desc) in (0u32..).zip(groups) {
            let group = GroupNo(index);
            zones.extend(self.base_zone(sb, group));
            for (start, len, field) in [
                (desc.block_bitmap, 1, "bg_block_bitmap"),
                (desc.inode_bitmap, 1, "bg_inode_bitmap"),
                (desc.inode_table, table_blocks, "bg_inode_table"),
            ] {
                let end = start.get().checked_add(len).filter(|&end| end <= self.blocks_count);
                match end {
                    Some(end) if start.get() > u64::from(self.first_data_block) => {
                        zones.push((start.get(), end));
                    }
                    _ => {
                        let problem = format_args!("block {start} is out of range");
                        let error = Error::corrupt_field("group descriptor", field, problem);
                        return Err(error.in_group(group));
                    }
                }
            }
        }
        zones.extend(sb.mmp_block()?.map(|block| (block.get(), block.get() + 1)));
        zones.extend(journal.map(|(start, len)| (start.get(), start.get() + u64::from(len))));
        self.system = self.round_out(merge(zones)?);
        Ok(())
    }

    /// Returns the blocks of the superblock and the descriptors, or their copies, in a group.
    fn base_zone(&self, sb: &Superblock, group: GroupNo) -> Option<(u64, u64)> {
        let base = u64::from(sb.base_blocks(group));
        // With clusters, group 0 begins at block 0, which is the boot block if blocks have 1024
        // bytes.
        let start = match group.get() {
            0 => Superblock::OFFSET / u64::from(sb.block_size()),
            _ => self.group_start(group).get(),
        };
        (base > 0).then(|| (start, (start + base).min(self.blocks_count)))
    }

    /// Checks that `block` belongs to no structure of a group. May be called before
    /// [`set_system_zone`](Self::set_system_zone), which checks all structures.
    ///
    /// # Errors
    /// [`Error::Corrupt`] otherwise.
    pub(crate) fn check_apart(
        &self,
        sb: &Superblock,
        group: GroupNo,
        desc: &GroupDesc,
        block: FsBlock,
    ) -> Result<()> {
        let table = desc.inode_table.get();
        let zones = [
            self.base_zone(sb, group).unwrap_or_default(),
            (desc.block_bitmap.get(), desc.block_bitmap.get().saturating_add(1)),
            (desc.inode_bitmap.get(), desc.inode_bitmap.get().saturating_add(1)),
            (table, table.saturating_add(sb.inode_table_blocks().into())),
        ];
        if zones.iter().any(|&(start, end)| (start..end).contains(&block.get())) {
            let problem = format_args!("block {block} belongs to the structures of group {group}");
            return Err(Error::corrupt_field("superblock", "s_mmp_block", problem));
        }
        Ok(())
    }

    /// Checks that the blocks `[start, start + len)` lie in the volume and do not belong to the
    /// file system itself.
    ///
    /// # Errors
    /// [`Error::Corrupt`] otherwise.
    pub(crate) fn check_data_range(&self, start: FsBlock, len: u64) -> Result<()> {
        let start = start.get();
        let end = start.checked_add(len).filter(|&end| end <= self.blocks_count);
        let Some(end) = end.filter(|_| start > u64::from(self.first_data_block)) else {
            return Err(Error::corrupt(format_args!("blocks {start}+{len} lie outside the volume")));
        };
        let at = self.system.partition_point(|&(_, zone_end)| zone_end <= start);
        match self.system.get(at) {
            Some(&(zone_start, _)) if zone_start < end => {
                Err(Error::corrupt(format_args!("blocks {start}+{len} overlap the file system's own blocks")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of blocks that belong to the file system itself.
    pub(crate) fn system_blocks(&self) -> u64 {
        self.system.iter().map(|&(start, end)| end - start).sum()
    }

    /// Returns the file system's own blocks in a group.
    pub(crate) fn system_blocks_in(&self, group: GroupNo) -> impl Iterator<Item = GroupRun> + '_ {
        let first = self.group_start(group).get();
        let last = first + u64::from(self.group_blocks(group));
        let at = self.system.partition_point(|&(_, end)| end <= first);
        self.system[at..].iter().take_while(move |&&(start, _)| start < last).map(move |&(start, end)| {
            let within = |block: u64| saturating_u32(block - first);
            let (start, end) = (within(start.max(first)), within(end.min(last)));
            GroupRun { start, len: end - start }
        })
    }

    /// Returns the first block of a group.
    pub(crate) fn group_start(&self, group: GroupNo) -> FsBlock {
        FsBlock(u64::from(self.first_data_block) + u64::from(group.get()) * u64::from(self.blocks_per_group))
    }

    /// Returns true if a block lies in a group, and so in the volume.
    pub(crate) fn contains(&self, block: FsBlock) -> bool {
        (u64::from(self.first_data_block)..self.blocks_count).contains(&block.get())
    }

    /// Returns `goal` if it lies in the volume, and the first block of group 0 otherwise.
    pub(crate) fn nearest(&self, goal: FsBlock) -> FsBlock {
        if self.contains(goal) { goal } else { FsBlock(u64::from(self.first_data_block)) }
    }

    /// Returns the number of blocks of a group. The last group may be shorter than the others.
    pub(crate) fn group_blocks(&self, group: GroupNo) -> u32 {
        let rest = self.blocks_count - self.group_start(group).get();
        saturating_u32(rest).min(self.blocks_per_group)
    }

    /// Returns the group of a block and the block's index in it. The block must lie in the volume.
    pub(crate) fn group_of(&self, block: FsBlock) -> (GroupNo, u32) {
        let from_first = block.get() - u64::from(self.first_data_block);
        let per_group = u64::from(self.blocks_per_group);
        #[expect(clippy::cast_possible_truncation, reason = "the group count fits 32 bits, checked at open")]
        (GroupNo((from_first / per_group) as u32), (from_first % per_group) as u32)
    }

    /// Returns the group of an inode and the inode's index in the group's table.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the volume has no such inode.
    pub(crate) fn inode_place(&self, ino: InodeNo) -> Result<(GroupNo, u32)> {
        if ino.get() == 0 || ino.get() > self.inodes_count {
            return Err(Error::corrupt(format_args!("inode number {ino} is out of range")));
        }
        let index = ino.get() - 1;
        Ok((GroupNo(index / self.inodes_per_group), index % self.inodes_per_group))
    }

    /// Returns the offset of a block on the device, in bytes.
    pub(crate) fn offset(&self, block: FsBlock) -> u64 {
        self.block_size.device_offset(block)
    }

    /// Returns true if directory blocks end in a checksum tail.
    pub(crate) fn has_dir_tail(&self) -> bool {
        self.seed.is_some()
    }
}

/// Returns the limit of the number of blocks of a file. Without `huge_file`, `i_blocks` counts at
/// most 2^32 - 1 units of 512 bytes (`ext4_max_size` of the kernel).
fn max_file_blocks(sb: &Superblock) -> u64 {
    let counted = u64::from(u32::MAX >> (sb.block_bits() - 9));
    if sb.ro_compat().contains(RoCompat::HUGE_FILE) { MAX_FILE_BLOCKS } else { counted }
}

/// Sorts ranges and joins adjacent ones.
///
/// # Errors
/// [`Error::Corrupt`] if two ranges overlap.
fn merge(mut zones: Vec<(u64, u64)>) -> Result<Vec<(u64, u64)>> {
    zones.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in zones {
        match merged.last_mut() {
            Some(last) if start < last.1 => {
                let text = "of the file system's own structures claim it";
                return Err(Error::corrupt(format_args!("group descriptors: block {start}: two {text}")));
            }
            Some(last) if start == last.1 => last.1 = end,
            _ => merged.push((start, end)),
        }
    }
    Ok(merged)
}
