//! The sizes of a new volume: blocks, groups, inodes, descriptors. Arithmetic only, no I/O.
//!
//! The rules and thresholds are taken from mke2fs 1.47 with its default configuration. Invariant: for the same device and
//! options, the volume has the counts that mke2fs computes.

use std::ops::Range;

use parext4_format::mmp::MAX_UPDATE_INTERVAL;
use parext4_format::{BlockSize, indirect};

use super::MkfsOptions;
use crate::convert::saturating_u32;
use crate::error::{Error, Result};

/// Number of the first inode that is not reserved (`EXT4_GOOD_OLD_FIRST_INO`). `lost+found` gets it.
pub(super) const FIRST_INODE: u32 = 11;
/// Sizes of a group descriptor with `64bit` and without, in bytes.
const DESC_SIZES: [u32; 2] = [64, 32];
/// `s_log_groups_per_flex`: 16 groups keep their bitmaps and inode tables together.
pub(super) const LOG_GROUPS_PER_FLEX: u8 = 4;
/// A last group with fewer blocks than this, beyond its own metadata, is left out.
const MIN_LAST_GROUP_SPACE: u64 = 50;
/// The size of a volume is a multiple of this many bytes, a page of memory, so that its last page is on the device.
const SIZE_UNIT: u64 = 4096;
/// Factor by which a volume can be extended with the reserved descriptor blocks.
const MAX_GROWTH: u64 = 1024;

/// The sizes of a volume. Every group has 8 * `block_size` blocks; the last may have fewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// In bytes.
    pub block_size: u32,
    /// Number of blocks, counted from the start of the device, including the blocks before `first_data_block`.
    pub blocks_count: u64,
    /// The block of the primary superblock: 1 if blocks are 1024 bytes, 0 otherwise.
    pub first_data_block: u32,
    pub blocks_per_group: u32,
    pub group_count: u32,
    pub inodes_per_group: u32,
    /// In bytes.
    pub inode_size: u16,
    /// Whether files are mapped by extents. Without them the volume does not have `64bit`.
    pub extents: bool,
    /// Length of each group's inode table, in blocks.
    pub inode_table_blocks: u32,
    /// Length of the descriptor table, in blocks.
    pub gdt_blocks: u32,
    /// Number of blocks after the descriptor table into which it can be extended.
    pub reserved_gdt_blocks: u32,
    /// Number of blocks that only root may use.
    pub reserved_blocks: u64,
}

fn desc_size(extents: bool) -> u32 {
    DESC_SIZES[usize::from(!extents)]
}

/// Defaults of mke2fs, which depend on the size of the device.
struct Defaults {
    block_size: u32,
    /// Bytes of the volume for each inode.
    inode_ratio: u64,
}

impl Defaults {
    fn for_size(size: u64) -> Self {
        const MIB: u64 = 1 << 20;
        const TIB: u64 = 1 << 40;
        let (block_size, inode_ratio) = match size {
            _ if size < 3 * MIB => (1024, 8192),
            _ if size < 512 * MIB => (1024, 4096),
            _ if size < 4 * TIB => (4096, 16384),
            _ if size < 16 * TIB => (4096, 32768),
            _ => (4096, 65536),
        };
        Self { block_size, inode_ratio }
    }
}

impl Geometry {
    /// Returns the geometry of a volume on all of a device of `size` bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the options are out of range or do not fit the device.
    pub(super) fn new(size: u64, options: &MkfsOptions) -> Result<Self> {
        let defaults = Defaults::for_size(size);
        let block_size = options.block_size.unwrap_or(defaults.block_size);
        check_options(block_size, options)?;
        let inode_ratio = match options.inode_ratio {
            Some(ratio) => checked_ratio(ratio)?,
            None => defaults.inode_ratio.max(u64::from(block_size)),
        };
        let wanted_blocks = (size - size % SIZE_UNIT) / u64::from(block_size);
        let wanted_inodes =
            (wanted_blocks * u64::from(block_size) / inode_ratio).max(u64::from(FIRST_INODE) + 1);
        let (inode_size, extents) = (options.inode_size, options.extents);
        if !extents && wanted_blocks > indirect::MAX_BLOCK {
            return Err(Error::invalid("a volume of 2^32 blocks and more must have extents"));
        }
        let geometry = Self::fit(wanted_blocks, wanted_inodes, block_size, inode_size, extents)?;
        let reserved_blocks = reserved_blocks(wanted_blocks, geometry.blocks_count, options.reserved_percent);
        Ok(Self { reserved_blocks, ..geometry })
    }

    /// Returns the geometry, without the last group if that is too small to be useful.
    fn fit(blocks: u64, inodes: u64, block_size: u32, inode_size: u16, extents: bool) -> Result<Self> {
        let whole = Self::with_blocks(blocks, inodes, block_size, inode_size, extents)?;
        let last = whole.group(whole.group_count - 1);
        let last_len = last.end - last.start;
        let partial = last_len < u64::from(whole.blocks_per_group);
        if !partial || last_len >= whole.group_overhead(whole.group_count - 1) + MIN_LAST_GROUP_SPACE {
            return Ok(whole);
        }
        if whole.group_count == 1 {
            return Err(too_small(blocks, block_size));
        }
        Self::with_blocks(last.start, inodes, block_size, inode_size, extents)
    }

    fn with_blocks(
        blocks: u64,
        inodes: u64,
        block_size: u32,
        inode_size: u16,
        extents: bool,
    ) -> Result<Self> {
        let first_data_block = u32::from(block_size == 1024);
        let blocks_per_group = 8 * block_size;
        let group_count = blocks.saturating_sub(first_data_block.into()).div_ceil(blocks_per_group.into());
        if group_count == 0 {
            return Err(too_small(blocks, block_size));
        }
        let group_count = u32::try_from(group_count).map_err(|_| {
            Error::invalid(format_args!("{blocks} blocks need more groups than ext4 can count"))
        })?;
        let inodes_per_group = inodes_per_group(inodes, group_count, block_size, inode_size)?;
        let inode_table_blocks = (inodes_per_group * u32::from(inode_size)).div_ceil(block_size);
        let descs = block_size / desc_size(extents);
        let gdt_blocks = group_count.div_ceil(descs);
        let geometry = Self {
            block_size,
            blocks_count: blocks,
            first_data_block,
            blocks_per_group,
            group_count,
            inodes_per_group,
            inode_size,
            extents,
            inode_table_blocks,
            gdt_blocks,
            reserved_gdt_blocks: reserved_gdt_blocks(blocks, first_data_block, block_size, descs),
            reserved_blocks: 0,
        };
        if geometry.group_overhead(0) > u64::from(blocks_per_group) {
            return Err(Error::invalid(format_args!(
                "{gdt_blocks} blocks of group descriptors do not fit one group of {blocks_per_group} blocks; \
                 use larger blocks than {block_size} bytes or fewer inodes"
            )));
        }
        Ok(geometry)
    }

    /// Returns the size of a group descriptor in bytes.
    pub(super) fn desc_size(&self) -> u32 {
        desc_size(self.extents)
    }

    /// Returns the shape of the trees of indirect blocks.
    pub(super) fn shape(&self) -> indirect::Shape {
        let size = BlockSize::from_bits(self.block_size.ilog2());
        indirect::Shape::new(size.unwrap_or(BlockSize::MAX))
    }

    /// Returns the blocks of one group, as block numbers of the volume.
    pub(super) fn group(&self, group: u32) -> Range<u64> {
        let first = u64::from(self.first_data_block);
        let start = first + u64::from(group) * u64::from(self.blocks_per_group);
        start..(start + u64::from(self.blocks_per_group)).min(self.blocks_count)
    }

    /// Returns true if a group starts with a copy of the superblock and the descriptors (`sparse_super`).
    pub(super) fn has_super(group: u32) -> bool {
        group <= 1 || [3, 5, 7].iter().any(|&base| is_power_of(group, base))
    }

    /// Returns the groups that start with a backup, in ascending order.
    pub(super) fn backup_groups(&self) -> impl Iterator<Item = u32> {
        (1..self.group_count).filter(|&group| Self::has_super(group))
    }

    /// Returns the number of blocks at the start of a group for the superblock, the descriptors and the reserved descriptors.
    pub(super) fn super_blocks(&self, group: u32) -> u32 {
        if Self::has_super(group) { 1 + self.gdt_blocks + self.reserved_gdt_blocks } else { 0 }
    }

    /// Returns the number of inodes of the volume.
    pub(super) fn inodes_count(&self) -> u32 {
        self.inodes_per_group * self.group_count
    }

    /// Returns true if the volume has a resize inode, whose block pointers have 32 bits.
    pub(super) fn has_resize_inode(&self) -> bool {
        self.blocks_count <= u64::from(u32::MAX)
    }

    /// Returns the number of metadata blocks of a group, in the group or elsewhere: superblock copy, descriptors, bitmaps,
    /// inode table.
    fn group_overhead(&self, group: u32) -> u64 {
        u64::from(self.super_blocks(group)) + 2 + u64::from(self.inode_table_blocks)
    }
}

fn check_options(block_size: u32, options: &MkfsOptions) -> Result<()> {
    if !matches!(block_size, 1024 | 2048 | 4096) {
        return Err(Error::invalid(format_args!("block size {block_size}: only 1024, 2048 and 4096 bytes")));
    }
    let inode_size = u32::from(options.inode_size);
    if !inode_size.is_power_of_two() || inode_size < 128 || inode_size > block_size {
        return Err(Error::invalid(format_args!(
            "inode size {inode_size}: not a power of two between 128 and the block size, {block_size}"
        )));
    }
    let percent = options.reserved_percent;
    if percent > 50 {
        return Err(Error::invalid(format_args!("{percent}% reserved blocks: at most 50%")));
    }
    let interval = options.mmp_update_interval;
    if !(1..=MAX_UPDATE_INTERVAL).contains(&interval) {
        return Err(Error::invalid(format_args!(
            "mmp update interval {interval}: not between 1 and 300 seconds"
        )));
    }
    if options.label.len() > 16 {
        let bytes = options.label.len();
        return Err(Error::invalid(format_args!("label of {bytes} bytes: at most 16")));
    }
    Ok(())
}

fn checked_ratio(ratio: u64) -> Result<u64> {
    if (1024..=64 << 20).contains(&ratio) {
        return Ok(ratio);
    }
    Err(Error::invalid(format_args!("inode ratio {ratio}: not between 1024 and 67108864 bytes")))
}

/// Returns the number of inodes of each group: enough for `wanted` in all, a multiple of 8, and filling whole blocks of the
/// table.
fn inodes_per_group(wanted: u64, group_count: u32, block_size: u32, inode_size: u16) -> Result<u32> {
    // Inode numbers have 32 bits.
    let most = (u32::MAX / group_count).min(8 * block_size) & !7;
    // The reserved inodes and lost+found are in the first group.
    let least = (FIRST_INODE + 1).next_multiple_of(8);
    let wanted = wanted.div_ceil(group_count.into()).max(least.into());
    let wanted = saturating_u32(wanted).min(most);
    let per_block = block_size / u32::from(inode_size);
    // This stays at most 8 * block_size, because `per_block` and that limit are powers of two.
    let filled = (wanted.next_multiple_of(per_block) & !7).max(least);
    if filled <= most {
        return Ok(filled);
    }
    if most >= least {
        return Ok(most);
    }
    Err(Error::invalid(format_args!("{group_count} groups need more inodes than ext4 can count")))
}

/// Returns the number of blocks to reserve for descriptors of later groups, as mke2fs does. A block has `descs` descriptors.
fn reserved_gdt_blocks(blocks: u64, first_data_block: u32, block_size: u32, descs: u32) -> u32 {
    let limit = u64::from(u32::MAX);
    if blocks > limit {
        return 0;
    }
    let most = if blocks < limit / MAX_GROWTH { blocks * MAX_GROWTH } else { limit };
    let groups = (most - u64::from(first_data_block)).div_ceil(8 * u64::from(block_size));
    let now = (blocks - u64::from(first_data_block)).div_ceil(8 * u64::from(block_size));
    let wanted = groups.div_ceil(descs.into()) - now.div_ceil(descs.into());
    // The resize inode's double-indirect block must have a pointer for each of them.
    saturating_u32(wanted).min(block_size / 4)
}

/// Returns a percentage of the `wanted` blocks, scaled to the `blocks` that the volume has. Each step rounds down.
fn reserved_blocks(wanted: u64, blocks: u64, percent: u8) -> u64 {
    let of_wanted = u128::from(wanted) * u128::from(percent) / 100;
    let scaled = of_wanted * u128::from(blocks) / u128::from(wanted);
    u64::try_from(scaled).expect("at most half of `blocks`")
}

/// Returns true if `n`, which is not 0, is a power of `base`.
fn is_power_of(mut n: u32, base: u32) -> bool {
    while n.is_multiple_of(base) {
        n /= base;
    }
    n == 1
}

/// Returns the error for a device that cannot hold even an empty volume.
pub(super) fn too_small(blocks: u64, block_size: u32) -> Error {
    Error::invalid(format_args!(
        "device too small: {blocks} blocks of {block_size} bytes cannot hold a volume"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(size: u64, block_size: Option<u32>) -> Result<Geometry> {
        Geometry::new(size, &MkfsOptions::new().block_size(block_size))
    }

    #[test]
    fn known_answers_of_mke2fs() {
        let g = geometry(100 << 20, None).unwrap();
        assert_eq!((g.block_size, g.blocks_count, g.group_count), (1024, 102_400, 13));
        assert_eq!((g.inodes_per_group, g.inode_table_blocks, g.reserved_gdt_blocks), (1968, 492, 256));
        assert_eq!(g.reserved_blocks, 5120);
        let g = geometry(4 << 30, None).unwrap();
        assert_eq!((g.block_size, g.inodes_count(), g.reserved_gdt_blocks), (4096, 262_144, 511));
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        let text = |result: Result<Geometry>| result.unwrap_err().to_string();
        assert!(text(geometry(1 << 30, Some(8192))).contains("block size 8192"));
        assert!(text(geometry(0, None)).contains("too small"));
        assert!(text(geometry(16 << 10, None)).contains("too small"));
        assert!(text(geometry(1 << 40, Some(1024))).contains("larger blocks"));
        let with = |options: &MkfsOptions| text(Geometry::new(1 << 30, options));
        assert!(with(&MkfsOptions::new().inode_size(200)).contains("inode size 200"));
        assert!(with(&MkfsOptions::new().inode_ratio(1)).contains("ratio 1"));
        assert!(with(&MkfsOptions::new().mmp_update_interval(301)).contains("interval 301"));
        assert!(with(&MkfsOptions::new().reserved_percent(51)).contains("51%"));
        assert!(with(&MkfsOptions::new().label("x".repeat(17))).contains("label"));
    }

    #[test]
    fn any_size_gives_consistent_numbers() {
        for shift in 15..64 {
            for size in [1_u64 << shift, (1 << shift) + (3 << 10), u64::MAX >> (63 - shift)] {
                for block_size in [1024, 2048, 4096] {
                    let Ok(g) = geometry(size, Some(block_size)) else { continue };
                    assert!(g.blocks_count * u64::from(block_size) <= size);
                    assert_eq!(g.group(g.group_count - 1).end, g.blocks_count);
                    assert!(g.inodes_per_group.is_multiple_of(8) && g.inodes_per_group > FIRST_INODE);
                    assert!(g.reserved_blocks <= g.blocks_count);
                }
            }
        }
    }
}
