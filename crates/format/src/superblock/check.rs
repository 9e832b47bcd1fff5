//! The checks of a superblock. Invariant: after they pass, no accessor divides by zero or
//! overflows, and all counts agree with each other, but for the counts of free blocks and inodes:
//! these are stale after a crash, and any value may be left there. The kernel computes them from
//! the groups.

use std::fmt;

use super::Superblock;
use super::revision::DYNAMIC;
use crate::block_size::BlockSize;
use crate::error::{FormatError, Result};
use crate::features::{Incompat, RoCompat};

/// The most blocks of a volume: a block number in an extent has 48 bits.
const MAX_BLOCKS: u64 = 1 << 48;
/// The smallest first inode that is not reserved (`EXT4_GOOD_OLD_FIRST_INO`).
const MIN_FIRST_INO: u32 = 11;
/// The largest block is 2^(10 + 6) bytes (`EXT4_MAX_BLOCK_LOG_SIZE`).
const MAX_LOG_BLOCK_SIZE: u32 = BlockSize::MAX.bits() - BlockSize::MIN.bits();
/// The maximum number of clusters of a group, which 16 bits count (`EXT2_MAX_CLUSTERS_PER_GROUP`).
pub const MAX_CLUSTERS_PER_GROUP: u32 = (1 << 16) - 8;
/// The largest cluster is 2^(10 + 20) bytes (`EXT4_MAX_CLUSTER_LOG_SIZE`).
const MAX_LOG_CLUSTER_SIZE: u32 = 20;
/// `EXT4_MAX_DESC_SIZE`.
const MAX_DESC_SIZE: u16 = 1024;

/// Returns the maximum number of inodes of a group, whose inode table has `per_block` of them in a
/// block. 16 bits count them (`EXT2_MAX_INODES_PER_GROUP`).
#[must_use]
pub const fn max_inodes_per_group(per_block: u32) -> u32 {
    (1 << 16) - per_block
}

/// Checks every geometry field.
pub(super) fn check(sb: &Superblock) -> Result<()> {
    // A journal device has a superblock of its own kind. Name it, rather than a field that is zero
    // there.
    let is_journal = sb.incompat().contains(Incompat::JOURNAL_DEV);
    ensure(!is_journal, "s_feature_incompat", "journal_dev: an external journal, not a file system")?;

    let revision = sb.raw.s_rev_level.get();
    ensure(revision <= DYNAMIC, "s_rev_level", format_args!("{revision}, but only 0 and 1 are supported"))?;
    // The Hurd uses the field for the upper half of block numbers for another purpose. The kernel
    // refuses such a volume too.
    let wide = sb.incompat().contains(Incompat::BIT64);
    ensure(!(wide && sb.is_of_hurd()), "s_creator_os", "the Hurd has no 64bit feature")?;

    block_size(sb)?;
    group_size(sb)?;
    block_counts(sb)?;
    inodes(sb)?;
    extra_isize(sb)?;
    descriptors(sb)
}

fn ensure(ok: bool, field: &'static str, problem: impl fmt::Display) -> Result<()> {
    if ok { Ok(()) } else { Err(FormatError::new("superblock", field, problem)) }
}

fn block_size(sb: &Superblock) -> Result<()> {
    let log = sb.raw.s_log_block_size.get();
    let problem = format_args!("{log}, but only 0 to 6 (1k to 64k) are supported");
    ensure(log <= MAX_LOG_BLOCK_SIZE, "s_log_block_size", problem)?;

    let cluster = sb.raw.s_log_cluster_size.get();
    let bigalloc = sb.ro_compat().contains(RoCompat::BIGALLOC);
    let cluster_ok = if bigalloc { (log..=MAX_LOG_CLUSTER_SIZE).contains(&cluster) } else { cluster == log };
    ensure(cluster_ok, "s_log_cluster_size", format_args!("{cluster} with s_log_block_size {log}"))?;

    // The boot sector is the first 1024 bytes, which are block 0 if blocks have 1024 bytes.
    let first = sb.first_data_block();
    let first_ok = first == u32::from(log == 0) || (bigalloc && first == 0);
    ensure(first_ok, "s_first_data_block", format_args!("{first} with {}-byte blocks", sb.block_size()))
}

fn group_size(sb: &Superblock) -> Result<()> {
    let bits_per_block = 8 * sb.block_size();
    let fits = |n: u32| n > 0 && n.is_multiple_of(8) && n <= bits_per_block;

    let clusters = sb.clusters_per_group();
    let has_clusters = sb.ro_compat().contains(RoCompat::BIGALLOC);
    let field = if has_clusters { "s_clusters_per_group" } else { "s_blocks_per_group" };
    ensure(fits(clusters), field, format_args!("{clusters} does not fit a bitmap block"))?;
    let countable = clusters <= MAX_CLUSTERS_PER_GROUP;
    ensure(countable, field, format_args!("{clusters} is more than {MAX_CLUSTERS_PER_GROUP}"))?;

    let blocks = sb.blocks_per_group();
    let ratio_bits = sb.raw.s_log_cluster_size.get() - sb.raw.s_log_block_size.get();
    let agrees = u64::from(clusters) << ratio_bits == u64::from(blocks);
    ensure(agrees, "s_blocks_per_group", format_args!("{blocks} with {clusters} clusters per group"))?;

    let inodes = sb.inodes_per_group();
    ensure(fits(inodes), "s_inodes_per_group", format_args!("{inodes} does not fit a bitmap block"))
}

fn block_counts(sb: &Superblock) -> Result<()> {
    let high = sb.raw.s_blocks_count_hi.get();
    let wide = sb.incompat().contains(Incompat::BIT64);
    ensure(wide || high == 0, "s_blocks_count_hi", format_args!("{high} without the 64bit feature"))?;

    let blocks = sb.blocks_count();
    let first = u64::from(sb.first_data_block());
    let in_range = blocks > first && blocks <= MAX_BLOCKS;
    ensure(in_range, "s_blocks_count", format_args!("{blocks} is not in {}..={MAX_BLOCKS}", first + 1))?;

    let groups = (blocks - first).div_ceil(u64::from(sb.blocks_per_group()));
    ensure(u32::try_from(groups).is_ok(), "s_blocks_count", format_args!("{groups} block groups"))?;

    let reserved = sb.reserved_blocks();
    ensure(reserved <= blocks, "s_r_blocks_count", format_args!("{reserved} of {blocks} blocks"))
}

fn inodes(sb: &Superblock) -> Result<()> {
    let size = sb.inode_size();
    let size_ok = size.is_power_of_two() && size >= 128 && u32::from(size) <= sb.block_size();
    ensure(size_ok, "s_inode_size", format_args!("{size} with {}-byte blocks", sb.block_size()))?;

    let most = max_inodes_per_group(sb.block_size() / u32::from(size));
    let per_group = sb.inodes_per_group();
    ensure(per_group <= most, "s_inodes_per_group", format_args!("{per_group} is more than {most}"))?;
    let inodes = sb.inodes_count();
    let expected = u64::from(sb.group_count()) * u64::from(sb.inodes_per_group());
    let agrees = u64::from(inodes) == expected;
    ensure(agrees, "s_inodes_count", format_args!("{inodes}, but the groups have {expected}"))?;

    let first = sb.first_inode();
    let first_ok = (MIN_FIRST_INO..=inodes).contains(&first);
    ensure(first_ok, "s_first_ino", format_args!("{first} is not in {MIN_FIRST_INO}..={inodes}"))?;
    let journal = sb.journal_inode();
    ensure(journal <= inodes, "s_journal_inum", format_args!("{journal} of {inodes} inodes"))
}

fn extra_isize(sb: &Superblock) -> Result<()> {
    if !sb.ro_compat().contains(RoCompat::EXTRA_ISIZE) {
        return Ok(());
    }
    let room = sb.inode_size() - 128;
    let fits = |n: u16| n <= room && n.is_multiple_of(4);
    let (min, want) = (sb.raw.s_min_extra_isize.get(), sb.raw.s_want_extra_isize.get());
    ensure(fits(min), "s_min_extra_isize", format_args!("{min}, but {room} bytes are available"))?;
    ensure(fits(want), "s_want_extra_isize", format_args!("{want}, but {room} bytes are available"))
}

fn descriptors(sb: &Superblock) -> Result<()> {
    let size = sb.desc_size();
    let wide = sb.incompat().contains(Incompat::BIT64);
    let size_ok = !wide || (size.is_power_of_two() && (64..=MAX_DESC_SIZE).contains(&size));
    ensure(size_ok, "s_desc_size", size)?;

    let reserved = sb.reserved_gdt_blocks();
    let reserved_ok = reserved <= sb.block_size() / 4;
    ensure(reserved_ok, "s_reserved_gdt_blocks", format_args!("{reserved}, one block addresses fewer"))?;

    let (first, all) = (sb.table_gdt_blocks(), sb.gdt_blocks());
    ensure(first <= all, "s_first_meta_bg", format_args!("{first} of {all} descriptor blocks"))?;
    // The superblock and the table are in group 0, and with meta_bg at least one block of
    // descriptors is.
    let table = u64::from(first.max(1)) + u64::from(reserved);
    let room = sb.blocks_count().min(u64::from(sb.blocks_per_group()) + u64::from(sb.first_data_block()));
    let fits = sb.first_gdt_block().get() + table < room;
    ensure(fits, "s_reserved_gdt_blocks", format_args!("{table} descriptor blocks in group 0"))?;

    let flex = sb.raw.s_log_groups_per_flex;
    let flex_ok = !sb.incompat().contains(Incompat::FLEX_BG) || flex < 32;
    ensure(flex_ok, "s_log_groups_per_flex", flex)
}
