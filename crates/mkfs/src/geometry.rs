//! The sizes of a new volume: blocks, groups, inodes, descriptors. Arithmetic only, no I/O.
//!
//! The rules and thresholds are taken from mke2fs 1.47 with its default configuration. Invariant:
//! for the same device and options, the volume has the counts that mke2fs computes.

use std::ops::Range;

use parext4_format::GroupNo;
use parext4_format::features::{Compat, Incompat, RoCompat};
use parext4_format::superblock::{Copies, SuperCopies, Superblock, max_inodes_per_group};
use parext4_format::{BlockSize, indirect};

use crate::MkfsOptions;
use crate::check_options::{check_options, checked_ratio, max_blocks_per_group};
use crate::error::{MkfsError, Result};
use crate::features::Features;
use crate::types::Usage;
use parext4_format::convert::saturating_u32;

/// Number of the first inode that is not reserved (`EXT4_GOOD_OLD_FIRST_INO`). `lost+found` gets
/// it.
pub(crate) const FIRST_INODE: u32 = 11;
/// Number of groups that keep their bitmaps and inode tables together with `flex_bg`.
const DEFAULT_FLEX_GROUPS: u32 = 16;
/// Number of blocks in a cluster, unless the options set it.
const DEFAULT_CLUSTER_BLOCKS: u32 = 16;
/// Maximum number of blocks in a cluster.
const MAX_CLUSTER_BLOCKS: u32 = 1 << 14;
/// A last group with fewer blocks than this, beyond its own metadata, is left out.
const MIN_LAST_GROUP_SPACE: u64 = 50;
/// The size of a volume is a multiple of this number of bytes, a page of memory, so that its last
/// page is on the device.
const SIZE_UNIT: u64 = 4096;
/// Maximum length of an orphan file in blocks, as in the kernel (`EXT4_MAX_ORPHAN_FILE_BLOCKS`).
const MAX_ORPHAN_BLOCKS: u32 = 512;
/// Factor by which a volume can be extended with the reserved descriptor blocks.
const MAX_GROWTH: u64 = 1024;

/// The sizes of a volume. Every group has `blocks_per_group` blocks; the last may have fewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub revision: u32,
    pub features: Features,
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of blocks, counted from the start of the device, including the blocks before
    /// `first_data_block`.
    pub blocks_count: u64,
    /// The first block of group 0: 1 if blocks are 1024 bytes, for the boot sector; 0 otherwise,
    /// and with clusters.
    pub first_data_block: u32,
    /// Number of blocks in a cluster; 1 without bigalloc.
    pub cluster_blocks: u32,
    pub blocks_per_group: u32,
    pub group_count: u32,
    pub inodes_per_group: u32,
    /// Inode size in bytes.
    pub inode_size: u16,
    /// Length of each group's inode table, in blocks.
    pub inode_table_blocks: u32,
    /// Length of the descriptor table, in blocks.
    pub gdt_blocks: u32,
    /// Number of blocks after the descriptor table into which it can be extended.
    pub reserved_gdt_blocks: u32,
    /// The groups that start with copies of the superblock and of descriptors.
    pub copies: Copies,
    /// Number of groups whose bitmaps and inode tables lie together.
    pub flex_groups: u32,
    /// Number of blocks that only root may use.
    pub reserved_blocks: u64,
}

/// The parameters that all attempts to fit a volume into a device share.
#[derive(Clone, Copy)]
struct Request {
    inodes: u64,
    block_size: u32,
    cluster_blocks: u32,
    blocks_per_group: u32,
    inode_size: u16,
    flex_groups: u32,
    revision: u32,
    features: Features,
    /// Number of blocks to which the volume can be extended, if the options set it.
    max_blocks: Option<u64>,
    superblock_backups: u8,
}

impl Geometry {
    /// Returns the geometry of a volume on all of a device of `size` bytes.
    ///
    /// # Errors
    /// [`MkfsError::Invalid`] if the options are out of range or do not fit the device.
    pub(crate) fn new(size: u64, block_size: u32, options: &MkfsOptions) -> Result<Self> {
        let defaults = options.usage.unwrap_or_else(|| Usage::for_size(size));
        check_options(block_size, options)?;
        let cluster_blocks = cluster_blocks(block_size, options)?;
        let inode_ratio = match options.inode_ratio {
            Some(ratio) => checked_ratio(ratio)?,
            None => defaults.inode_ratio.max(u64::from(block_size) * u64::from(cluster_blocks)),
        };
        let wanted_blocks = (size - size % SIZE_UNIT) / u64::from(block_size);
        let wanted_blocks = wanted_blocks - wanted_blocks % u64::from(cluster_blocks);
        let by_ratio = wanted_blocks * u64::from(block_size) / inode_ratio;
        let request = Request {
            inodes: options.inodes.map_or(by_ratio, u64::from).max(u64::from(FIRST_INODE) + 1),
            block_size,
            cluster_blocks,
            blocks_per_group: options.blocks_per_group.unwrap_or(max_blocks_per_group(block_size))
                * cluster_blocks,
            inode_size: if options.revision == 0 { 128 } else { options.inode_size },
            flex_groups: flex_groups(options)?,
            revision: options.revision,
            features: if options.revision == 0 { Features::NONE } else { options.features.checked()? },
            max_blocks: options.max_blocks,
            superblock_backups: options.superblock_backups,
        };
        if !request.features.incompat.contains(Incompat::EXTENTS) && wanted_blocks > indirect::MAX_BLOCK {
            return Err(MkfsError::invalid("a volume of 2^32 blocks and more must have extents"));
        }
        let geometry = Self::fit(wanted_blocks, request)?;
        let reserved_blocks = reserved_blocks(wanted_blocks, geometry.blocks_count, options.reserved_percent);
        Ok(Self { reserved_blocks, ..geometry })
    }

    /// Returns the geometry, without the last group if that is too small to be useful.
    fn fit(blocks: u64, request: Request) -> Result<Self> {
        let whole = Self::with_blocks(blocks, request)?;
        let last = whole.group(whole.group_count - 1);
        let last_len = last.end - last.start;
        let partial = last_len < u64::from(whole.blocks_per_group);
        if !partial || last_len >= whole.last_group_overhead() + MIN_LAST_GROUP_SPACE {
            return Ok(whole);
        }
        if whole.group_count == 1 {
            return Err(too_small(blocks, request.block_size));
        }
        Self::with_blocks(last.start, request)
    }

    fn with_blocks(blocks: u64, request: Request) -> Result<Self> {
        let Request { inodes, block_size, cluster_blocks, blocks_per_group, inode_size, .. } = request;
        let Request { flex_groups, revision, mut features, .. } = request;
        let first_data_block = u32::from(block_size == 1024 && cluster_blocks == 1);
        let group_count = blocks.saturating_sub(first_data_block.into()).div_ceil(blocks_per_group.into());
        if group_count == 0 {
            return Err(too_small(blocks, block_size));
        }
        let group_count = u32::try_from(group_count).map_err(|_| {
            MkfsError::invalid(format_args!("{blocks} blocks need more groups than ext4 can count"))
        })?;
        if u32::try_from(blocks).is_err() && !features.incompat.contains(Incompat::BIT64) {
            return Err(MkfsError::invalid(format_args!("{blocks} blocks need the feature 64bit")));
        }
        let inodes_per_group = inodes_per_group(inodes, group_count, block_size, inode_size)?;
        let inode_table_blocks = (inodes_per_group * u32::from(inode_size)).div_ceil(block_size);
        let descs_per_block = block_size / features.desc_size();
        let gdt_blocks = group_count.div_ceil(descs_per_block);
        let mut reserved_gdt_blocks = match features.compat.contains(Compat::RESIZE_INODE) {
            true => reserved_gdt_blocks(blocks, request, first_data_block, gdt_blocks, descs_per_block)?,
            false => 0,
        };
        if gdt_blocks + reserved_gdt_blocks > blocks_per_group * 3 / 4 {
            // As mke2fs, allows at most three quarters of a group for descriptors.
            features.incompat |= Incompat::META_BG;
        }
        // The block pointers of the resize inode have 32 bits.
        if features.incompat.contains(Incompat::META_BG) || u32::try_from(blocks).is_err() {
            features.compat -= Compat::RESIZE_INODE;
            reserved_gdt_blocks = 0;
        }
        let has_meta_groups = features.incompat.contains(Incompat::META_BG);
        let copies = Copies {
            supers: super_copies(&features, group_count, request.superblock_backups),
            table: if has_meta_groups { 0 } else { gdt_blocks },
            reserved: reserved_gdt_blocks,
            has_meta_groups,
            descs_per_block,
        };
        let geometry = Self {
            revision,
            features,
            block_size,
            blocks_count: blocks,
            first_data_block,
            cluster_blocks,
            blocks_per_group,
            group_count,
            inodes_per_group,
            inode_size,
            inode_table_blocks,
            gdt_blocks,
            reserved_gdt_blocks,
            copies,
            flex_groups,
            reserved_blocks: 0,
        };
        let overhead = u64::from(geometry.base_blocks(0)) + 2 + u64::from(inode_table_blocks);
        if overhead > u64::from(blocks_per_group) {
            return Err(MkfsError::invalid(format_args!(
                "{overhead} blocks of group descriptors and inodes do not fit one group of {blocks_per_group} blocks; \
                 use larger blocks than {block_size} bytes or fewer inodes"
            )));
        }
        Ok(geometry)
    }

    /// Returns the shape of the trees of indirect blocks.
    pub(crate) fn shape(&self) -> indirect::Shape {
        let size = BlockSize::from_bits(self.block_size.ilog2());
        indirect::Shape::new(size.unwrap_or(BlockSize::MAX))
    }

    /// Returns the blocks of one group, as block numbers of the volume.
    pub(crate) fn group(&self, group: u32) -> Range<u64> {
        let first = u64::from(self.first_data_block);
        let start = first + u64::from(group) * u64::from(self.blocks_per_group);
        start..(start + u64::from(self.blocks_per_group)).min(self.blocks_count)
    }

    /// Returns the block of a group at which its copy of the superblock is, or would be. With
    /// clusters the boot sector may be in an earlier block of the group.
    pub(crate) fn super_block(&self, group: u32) -> u64 {
        let boot = if group == 0 { Superblock::OFFSET / u64::from(self.block_size) } else { 0 };
        self.group(group).start.max(boot)
    }

    /// Returns a number of blocks rounded up to whole clusters.
    pub(crate) fn round_to_clusters(&self, blocks: u64) -> u64 {
        blocks.next_multiple_of(self.cluster_blocks.into())
    }

    /// Returns the groups that start with a backup of the superblock, in ascending order.
    pub(crate) fn backup_groups(&self) -> impl Iterator<Item = u32> {
        (1..self.group_count).filter(|&group| self.copies.has_super(GroupNo(group)))
    }

    /// Returns the number of blocks at the start of a group for copies of the superblock and of
    /// descriptors, and for reserved descriptors.
    pub(crate) fn base_blocks(&self, group: u32) -> u32 {
        self.copies.base_blocks(GroupNo(group))
    }

    /// Returns the number of inodes of the volume.
    pub(crate) fn inodes_count(&self) -> u32 {
        self.inodes_per_group * self.group_count
    }

    /// Returns true if the volume has a resize inode.
    pub(crate) fn has_resize_inode(&self) -> bool {
        self.features.compat.contains(Compat::RESIZE_INODE)
    }

    /// Returns true if files are mapped by extents.
    pub(crate) fn has_extents(&self) -> bool {
        self.features.incompat.contains(Incompat::EXTENTS)
    }

    /// Returns the length of the orphan file in blocks: as the options ask, or the default of
    /// e2fsprogs.
    ///
    /// # Errors
    /// If the file would be empty or longer than the kernel accepts.
    pub(crate) fn orphan_blocks(&self, asked: Option<u32>) -> Result<u32> {
        match asked {
            Some(blocks) if (1..=MAX_ORPHAN_BLOCKS).contains(&blocks) => Ok(blocks),
            Some(blocks) => Err(MkfsError::invalid(format_args!(
                "orphan file of {blocks} blocks: not between 1 and {MAX_ORPHAN_BLOCKS}"
            ))),
            None => Ok(match self.blocks_count {
                0..0x2_0000 => 32,
                0x2_0000..0x20_0000 => saturating_u32(self.blocks_count / 4096),
                _ => MAX_ORPHAN_BLOCKS,
            }),
        }
    }

    /// Returns the number of metadata blocks of the last group by which mke2fs decides whether it
    /// is useful: superblock copy, all descriptors, bitmaps, inode table.
    fn last_group_overhead(&self) -> u64 {
        let has_super = self.copies.has_super(GroupNo(self.group_count - 1));
        let head = if has_super { 1 + self.gdt_blocks + self.reserved_gdt_blocks } else { 0 };
        u64::from(head) + 2 + u64::from(self.inode_table_blocks)
    }
}

/// Returns the groups with a copy of the superblock.
fn super_copies(features: &Features, group_count: u32, backups: u8) -> SuperCopies {
    if features.compat.contains(Compat::SPARSE_SUPER2) {
        let last = group_count - 1;
        let first = if backups > 0 { 1.min(last) } else { 0 };
        SuperCopies::Two([first, if backups > 1 && last > 1 { last } else { 0 }])
    } else if features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
        SuperCopies::Sparse
    } else {
        SuperCopies::All
    }
}

/// Returns the number of blocks in a cluster.
fn cluster_blocks(block_size: u32, options: &MkfsOptions) -> Result<u32> {
    let has_clusters = options.revision > 0 && options.features.ro_compat.contains(RoCompat::BIGALLOC);
    let Some(size) = options.cluster_size else {
        return Ok(if has_clusters { DEFAULT_CLUSTER_BLOCKS } else { 1 });
    };
    if !has_clusters {
        return Err(MkfsError::invalid("a cluster size needs the feature bigalloc"));
    }
    let blocks = size / block_size;
    if size.is_power_of_two() && (1..=MAX_CLUSTER_BLOCKS).contains(&blocks) {
        return Ok(blocks);
    }
    Err(MkfsError::invalid(format_args!(
        "cluster size {size}: not a power of two from the block size, {block_size}, to {MAX_CLUSTER_BLOCKS} blocks"
    )))
}

/// Returns the number of groups whose bitmaps and inode tables lie together.
fn flex_groups(options: &MkfsOptions) -> Result<u32> {
    let has_flex = options.revision > 0 && options.features.incompat.contains(Incompat::FLEX_BG);
    match options.flex_groups {
        None => Ok(if has_flex { DEFAULT_FLEX_GROUPS } else { 1 }),
        Some(_) if !has_flex => Err(MkfsError::invalid("a number of flex groups needs the feature flex_bg")),
        Some(groups) if groups.is_power_of_two() => Ok(groups),
        Some(groups) => Err(MkfsError::invalid(format_args!("{groups} flex groups: not a power of two"))),
    }
}

/// Returns the number of inodes of each group: enough for `wanted` in all, a multiple of 8, and
/// filling whole blocks of the table.
fn inodes_per_group(wanted: u64, group_count: u32, block_size: u32, inode_size: u16) -> Result<u32> {
    // Inode numbers have 32 bits.
    let per_block = block_size / u32::from(inode_size);
    let most = (u32::MAX / group_count).min(8 * block_size).min(max_inodes_per_group(per_block)) & !7;
    // The reserved inodes and lost+found are in the first group.
    let least = (FIRST_INODE + 1).next_multiple_of(8);
    let wanted = wanted.div_ceil(group_count.into()).max(least.into());
    let wanted = saturating_u32(wanted).min(most);
    // This stays within both limits of a group, because they are multiples of `per_block`.
    let filled = (wanted.next_multiple_of(per_block) & !7).max(least);
    if filled <= most {
        return Ok(filled);
    }
    if most >= least {
        return Ok(most);
    }
    Err(MkfsError::invalid(format_args!("{group_count} groups need more inodes than ext4 can count")))
}

/// Returns the number of blocks to reserve for descriptors of later groups, as mke2fs does.
///
/// # Errors
/// If the volume is to be extended to fewer blocks than it has.
fn reserved_gdt_blocks(
    blocks: u64,
    request: Request,
    first_data_block: u32,
    gdt_blocks: u32,
    descs_per_block: u32,
) -> Result<u32> {
    let limit = u64::from(u32::MAX);
    let most = match request.max_blocks {
        Some(most) if most <= blocks => {
            return Err(MkfsError::invalid(format_args!(
                "a volume of {blocks} blocks cannot be extended to {most} blocks"
            )));
        }
        // mke2fs counts from block 0 here.
        Some(most) => most.min(limit).saturating_add(first_data_block.into()),
        None if blocks < limit / MAX_GROWTH => blocks * MAX_GROWTH,
        None => limit,
    };
    if blocks > limit {
        return Ok(0);
    }
    let groups = (most - u64::from(first_data_block)).div_ceil(u64::from(request.blocks_per_group));
    let wanted = groups.div_ceil(u64::from(descs_per_block)).saturating_sub(u64::from(gdt_blocks));
    // The resize inode's double-indirect block must have a pointer for each reserved block.
    Ok(saturating_u32(wanted).min(request.block_size / 4))
}

/// Returns a percentage of the `wanted` blocks, scaled to the `blocks` that the volume has. Each
/// step rounds down.
fn reserved_blocks(wanted: u64, blocks: u64, percent: f64) -> u64 {
    // mke2fs computes it so too: a percentage need not be a whole number.
    let of_wanted = u128::from((percent * wanted as f64 / 100.0) as u64);
    let scaled = of_wanted * u128::from(blocks) / u128::from(wanted);
    u64::try_from(scaled).expect("at most half of `blocks`")
}

/// Returns the error for a device that cannot hold even an empty volume.
pub(crate) fn too_small(blocks: u64, block_size: u32) -> MkfsError {
    MkfsError::invalid(format_args!(
        "device too small: {blocks} blocks of {block_size} bytes cannot hold a volume"
    ))
}

/// Returns the length of `lost+found`: 16 KiB, so that e2fsck need not allocate blocks, but at
/// least 2 and at most 12 blocks.
pub(crate) fn lost_found_blocks(block_size: u32) -> u64 {
    (16384 / u64::from(block_size)).clamp(2, 12)
}

#[cfg(test)]
mod tests {
    use parext4_format::superblock::MAX_CLUSTERS_PER_GROUP;

    use super::*;

    fn geometry(size: u64, block_size: Option<u32>) -> Result<Geometry> {
        let options = MkfsOptions::new().block_size(block_size);
        Geometry::new(size, options.block_size_on(size)?, &options)
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
        for size in [512, 3000, 131_072] {
            assert!(text(geometry(1 << 30, Some(size))).contains(&format!("block size {size}")));
        }
        assert!(text(geometry(0, None)).contains("too small"));
        assert!(text(geometry(16 << 10, None)).contains("too small"));
        let with = |options: &MkfsOptions| text(Geometry::new(1 << 30, 4096, options));
        assert!(with(&MkfsOptions::new().inode_size(200)).contains("inode size 200"));
        assert!(
            with(&MkfsOptions::new().inode_size(128).features("inline_data").unwrap())
                .contains("inline_data")
        );
        assert!(with(&MkfsOptions::new().inode_ratio(1)).contains("ratio 1"));
        assert!(with(&MkfsOptions::new().mmp_update_interval(301)).contains("interval 301"));
        assert!(with(&MkfsOptions::new().reserved_percent(50.5)).contains("50.5%"));
        assert!(with(&MkfsOptions::new().max_blocks(1000)).contains("cannot be extended to 1000"));
        assert!(with(&MkfsOptions::new().superblock_backups(3)).contains("3 backups"));
        assert!(with(&MkfsOptions::new().label("x".repeat(17))).contains("label"));
        assert!(with(&MkfsOptions::new().blocks_per_group(260)).contains("260 blocks per group"));
        assert!(with(&MkfsOptions::new().flex_groups(3)).contains("3 flex groups"));
        assert!(with(&MkfsOptions::new().revision(2)).contains("revision 2"));
        let features = |list| with(&MkfsOptions::new().features(list).unwrap());
        assert!(features("meta_bg").contains("exclude each other"));
        assert!(features("^sparse_super").contains("needs sparse_super"));
        assert!(
            text(MkfsOptions::new().features("shared_blocks").map(|_| unreachable!()))
                .contains("shared_blocks")
        );
        let narrow = MkfsOptions::new().features("^64bit,^resize_inode").unwrap();
        assert!(text(Geometry::new(1 << 42, 1024, &narrow)).contains("64bit"));
    }

    #[test]
    fn any_size_gives_consistent_numbers() {
        for shift in 15..64 {
            for size in [1_u64 << shift, (1 << shift) + (3 << 10), u64::MAX >> (63 - shift)] {
                for block_size in (10..=16).map(|bits| 1 << bits) {
                    let Ok(g) = geometry(size, Some(block_size)) else { continue };
                    assert!(g.blocks_count * u64::from(block_size) <= size);
                    assert_eq!(g.group(g.group_count - 1).end, g.blocks_count);
                    assert!(g.inodes_per_group.is_multiple_of(8) && g.inodes_per_group > FIRST_INODE);
                    assert!(g.reserved_blocks <= g.blocks_count);
                    assert!(g.blocks_per_group <= MAX_CLUSTERS_PER_GROUP);
                    assert!(g.inodes_per_group <= max_inodes_per_group(block_size / 256));
                }
            }
        }
    }
}
