//! Group descriptors: the locations of a block group's bitmaps and inode table, and its counts of
//! free blocks and inodes.
//!
//! A descriptor has 32 bytes. With `64bit` it has at least 64, whose second 32 bytes hold the upper
//! halves. Source: kernel documentation, "Block Group Descriptors".

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{ChecksumSeed, crc16};
use crate::convert::{low_16, low_32};
use crate::error::{FormatError, Result};
use crate::number::{FsBlock, GroupNo};
use crate::superblock::Superblock;

const NAME: &str = "group descriptor";
/// Offset of `bg_checksum`, which neither kind of checksum covers.
const CHECKSUM_OFFSET: usize = 0x1e;
/// The size of a descriptor without the upper halves.
const NARROW_SIZE: usize = 32;
/// The size of all fields. The bytes after them in a larger descriptor have no meaning.
const WIDE_SIZE: usize = 64;

bitflags::bitflags! {
    /// `bg_flags`. Only a file system with group checksums ([`Superblock::has_group_checksums`])
    /// uses them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap and table were never written; no inode is in use.
        const INODE_UNINIT = 1;
        /// The block bitmap was never written; only the file system's own blocks are in use.
        const BLOCK_UNINIT = 2;
        /// The inode table has been zeroed.
        const ITABLE_ZEROED = 4;
    }
}

/// A group descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDesc {
    /// The block bitmap's block.
    pub block_bitmap: FsBlock,
    /// The inode bitmap's block.
    pub inode_bitmap: FsBlock,
    /// The first block of the inode table.
    pub inode_table: FsBlock,
    /// Free blocks (clusters with `bigalloc`).
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Inodes that are directories.
    pub used_dirs: u32,
    /// The parts that are not initialised.
    pub flags: GroupFlags,
    /// The exclude bitmap's block; used by no released kernel.
    pub exclude_bitmap: u64,
    /// The block bitmap's checksum; 32-byte descriptors hold its low 16 bits only.
    pub block_bitmap_csum: u32,
    /// The inode bitmap's checksum; 32-byte descriptors hold its low 16 bits only.
    pub inode_bitmap_csum: u32,
    /// Inodes at the end of the table that were never used.
    pub itable_unused: u32,
    /// The checksum as it was read. [`GroupDesc::encode`] computes it again.
    pub checksum: u16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawGroupDesc {
    bg_block_bitmap_lo: U32,
    bg_inode_bitmap_lo: U32,
    bg_inode_table_lo: U32,
    bg_free_blocks_count_lo: U16,
    bg_free_inodes_count_lo: U16,
    bg_used_dirs_count_lo: U16,
    bg_flags: U16,
    bg_exclude_bitmap_lo: U32,
    bg_block_bitmap_csum_lo: U16,
    bg_inode_bitmap_csum_lo: U16,
    bg_itable_unused_lo: U16,
    bg_checksum: U16,
    bg_block_bitmap_hi: U32,
    bg_inode_bitmap_hi: U32,
    bg_inode_table_hi: U32,
    bg_free_blocks_count_hi: U16,
    bg_free_inodes_count_hi: U16,
    bg_used_dirs_count_hi: U16,
    bg_itable_unused_hi: U16,
    bg_exclude_bitmap_hi: U32,
    bg_block_bitmap_csum_hi: U16,
    bg_inode_bitmap_csum_hi: U16,
    bg_reserved: U32,
}

const _: () = assert!(size_of::<RawGroupDesc>() == WIDE_SIZE);
const _: () = assert!(std::mem::offset_of!(RawGroupDesc, bg_checksum) == CHECKSUM_OFFSET);

impl GroupDesc {
    /// Parses the descriptor of `group` from its [`Superblock::desc_size`] bytes, and checks its
    /// checksum, that its blocks are on the volume and that its counts do not exceed the group.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn parse(bytes: &[u8], sb: &Superblock, group: GroupNo) -> Result<Self> {
        Self::parse_checked(bytes, sb, group).map_err(|error| error.in_group(group))
    }

    fn parse_checked(bytes: &[u8], sb: &Superblock, group: GroupNo) -> Result<Self> {
        let size = usize::from(sb.desc_size());
        let short = || FormatError::new(NAME, "size", format_args!("{} bytes, not {size}", bytes.len()));
        let bytes = bytes.get(..size).ok_or_else(short)?;
        let desc = Self::from_wire(&read_raw(bytes));
        if let Some(computed) = checksum(bytes, sb, group)
            && computed != desc.checksum
        {
            return Err(FormatError::checksum(NAME, desc.checksum.into(), computed.into()));
        }
        desc.check_blocks(sb)?;
        desc.check_counts(sb)?;
        Ok(desc)
    }

    /// Like [`parse`](Self::parse), for a volume that is only read: only the locations matter
    /// there. Ignores the checksum and limits counts to the size of a group.
    ///
    /// # Errors
    /// Names the field whose location is wrong.
    pub fn parse_locations(bytes: &[u8], sb: &Superblock) -> Result<Self> {
        let mut desc = Self::from_wire(&read_raw(bytes));
        desc.check_blocks(sb)?;
        let inodes = sb.inodes_per_group();
        desc.free_blocks = desc.free_blocks.min(sb.clusters_per_group());
        desc.free_inodes = desc.free_inodes.min(inodes);
        desc.used_dirs = desc.used_dirs.min(inodes);
        desc.itable_unused = desc.itable_unused.min(inodes);
        Ok(desc)
    }

    /// Writes the descriptor of `group` over its [`Superblock::desc_size`] bytes, with its
    /// checksum. Bytes that have no field keep their value.
    ///
    /// # Panics
    /// If `out` is shorter than [`Superblock::desc_size`].
    pub fn encode(&self, out: &mut [u8], sb: &Superblock, group: GroupNo) {
        let out = &mut out[..usize::from(sb.desc_size())];
        let mut raw = read_raw(out);
        self.to_wire(&mut raw);
        let fields = out.len().min(WIDE_SIZE);
        out[..fields].copy_from_slice(&raw.as_bytes()[..fields]);
        let checksum = checksum(out, sb, group).unwrap_or(self.checksum);
        out[CHECKSUM_OFFSET..NARROW_SIZE].copy_from_slice(&checksum.to_le_bytes());
    }

    fn from_wire(raw: &RawGroupDesc) -> Self {
        Self {
            block_bitmap: FsBlock(join_block(raw.bg_block_bitmap_lo, raw.bg_block_bitmap_hi)),
            inode_bitmap: FsBlock(join_block(raw.bg_inode_bitmap_lo, raw.bg_inode_bitmap_hi)),
            inode_table: FsBlock(join_block(raw.bg_inode_table_lo, raw.bg_inode_table_hi)),
            free_blocks: join_count(raw.bg_free_blocks_count_lo, raw.bg_free_blocks_count_hi),
            free_inodes: join_count(raw.bg_free_inodes_count_lo, raw.bg_free_inodes_count_hi),
            used_dirs: join_count(raw.bg_used_dirs_count_lo, raw.bg_used_dirs_count_hi),
            flags: GroupFlags::from_bits_retain(raw.bg_flags.get()),
            exclude_bitmap: join_block(raw.bg_exclude_bitmap_lo, raw.bg_exclude_bitmap_hi),
            block_bitmap_csum: join_count(raw.bg_block_bitmap_csum_lo, raw.bg_block_bitmap_csum_hi),
            inode_bitmap_csum: join_count(raw.bg_inode_bitmap_csum_lo, raw.bg_inode_bitmap_csum_hi),
            itable_unused: join_count(raw.bg_itable_unused_lo, raw.bg_itable_unused_hi),
            checksum: raw.bg_checksum.get(),
        }
    }

    fn to_wire(&self, raw: &mut RawGroupDesc) {
        (raw.bg_block_bitmap_lo, raw.bg_block_bitmap_hi) = split_block(self.block_bitmap.get());
        (raw.bg_inode_bitmap_lo, raw.bg_inode_bitmap_hi) = split_block(self.inode_bitmap.get());
        (raw.bg_inode_table_lo, raw.bg_inode_table_hi) = split_block(self.inode_table.get());
        (raw.bg_free_blocks_count_lo, raw.bg_free_blocks_count_hi) = split_count(self.free_blocks);
        (raw.bg_free_inodes_count_lo, raw.bg_free_inodes_count_hi) = split_count(self.free_inodes);
        (raw.bg_used_dirs_count_lo, raw.bg_used_dirs_count_hi) = split_count(self.used_dirs);
        raw.bg_flags.set(self.flags.bits());
        (raw.bg_exclude_bitmap_lo, raw.bg_exclude_bitmap_hi) = split_block(self.exclude_bitmap);
        (raw.bg_block_bitmap_csum_lo, raw.bg_block_bitmap_csum_hi) = split_count(self.block_bitmap_csum);
        (raw.bg_inode_bitmap_csum_lo, raw.bg_inode_bitmap_csum_hi) = split_count(self.inode_bitmap_csum);
        (raw.bg_itable_unused_lo, raw.bg_itable_unused_hi) = split_count(self.itable_unused);
    }

    fn check_blocks(&self, sb: &Superblock) -> Result<()> {
        let blocks = [
            ("bg_block_bitmap", self.block_bitmap, 1),
            ("bg_inode_bitmap", self.inode_bitmap, 1),
            ("bg_inode_table", self.inode_table, sb.inode_table_blocks()),
        ];
        for (field, first, count) in blocks {
            let end = first.checked_add(count.into()).map_or(u64::MAX, FsBlock::get);
            if first.get() <= sb.first_data_block().into() || end > sb.blocks_count() {
                let problem =
                    format_args!("{count} blocks from {first}, on a volume of {} blocks", sb.blocks_count());
                return Err(FormatError::new(NAME, field, problem));
            }
        }
        Ok(())
    }

    fn check_counts(&self, sb: &Superblock) -> Result<()> {
        let inodes = sb.inodes_per_group();
        // Without group checksums no implementation keeps bg_itable_unused up to date.
        let unused = if sb.has_group_checksums() { self.itable_unused } else { 0 };
        let counts = [
            ("bg_free_blocks_count", self.free_blocks, sb.clusters_per_group()),
            ("bg_free_inodes_count", self.free_inodes, inodes),
            ("bg_used_dirs_count", self.used_dirs, inodes),
            ("bg_itable_unused", unused, inodes),
        ];
        for (field, count, limit) in counts {
            if count > limit {
                return Err(FormatError::new(NAME, field, format_args!("{count}, the limit is {limit}")));
            }
        }
        Ok(())
    }
}

/// Returns the fields of a descriptor. The upper halves are zero if it has only 32 bytes.
fn read_raw(bytes: &[u8]) -> RawGroupDesc {
    let mut raw = RawGroupDesc::new_zeroed();
    let len = bytes.len().min(WIDE_SIZE);
    raw.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
    raw
}

/// Returns the checksum of an encoded descriptor. It covers the whole descriptor except the
/// checksum.
fn checksum(bytes: &[u8], sb: &Superblock, group: GroupNo) -> Option<u16> {
    let group = group.get().to_le_bytes();
    let (before, after) = (&bytes[..CHECKSUM_OFFSET], &bytes[NARROW_SIZE..]);
    match sb.checksum_seed() {
        // crc32c counts the checksum's own two bytes as zero and is cut to its low half.
        Some(seed) => Some(low_16(checksum_with_seed(seed, group, before, after))),
        // crc16 skips the checksum's own two bytes.
        None if sb.has_group_checksums() => {
            let crc = crc16(crc16(!0, &sb.uuid()), &group);
            Some(crc16(crc16(crc, before), after))
        }
        None => None,
    }
}

fn checksum_with_seed(seed: ChecksumSeed, group: [u8; 4], before: &[u8], after: &[u8]) -> u32 {
    seed.then(&group).then(before).then(&[0; 2]).of(after)
}

fn join_block(low: U32, high: U32) -> u64 {
    u64::from(high.get()) << 32 | u64::from(low.get())
}

fn join_count(low: U16, high: U16) -> u32 {
    u32::from(high.get()) << 16 | u32::from(low.get())
}

fn split_block(block: u64) -> (U32, U32) {
    (U32::new(low_32(block)), U32::new(low_32(block >> 32)))
}

fn split_count(count: u32) -> (U16, U16) {
    (U16::new(low_16(count)), U16::new(low_16(count >> 16)))
}
