//! The superblock of a new volume, with the fields that mke2fs sets.

use parext4_format::InodeNo;
use parext4_format::checksum::crc32c;
use parext4_format::features::{Compat, Incompat, RoCompat};
use parext4_format::inode::Inode;
use parext4_format::jbd2::JournalDevice;
use parext4_format::superblock::{Encoding, MAGIC, RawSuperblock, STATE_VALID, SuperCopies, Superblock};
use zerocopy::FromZeros;

use crate::error::{MkfsError, Result};
use crate::features::Features;
use crate::geometry::{FIRST_INODE, Geometry};
use crate::placement::Placement;
use crate::{Casefold, Identity, MkfsOptions};

/// `s_flags`: the directory hash treats bytes as signed, as on x86.
const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: for tests of drivers in development.
const FLAG_TEST: u32 = 4;
/// `s_def_hash_version`: half MD4.
const HASH_HALF_MD4: u8 = 1;
/// `s_default_mount_opts`: `user_xattr` and `acl`.
const DEFAULT_MOUNT_OPTIONS: u32 = 0x4 | 0x8;
/// `s_max_mnt_count`: no check after a number of mounts (-1).
const NO_MAX_MOUNT_COUNT: u16 = 0xffff;
/// `s_checksum_type`: crc32c.
const CHECKSUM_CRC32C: u8 = 1;
/// Number of bytes after the first 128 of an inode that the kernel uses for fields.
const EXTRA_ISIZE: u16 = 32;
/// `s_encrypt_algos`: AES-256-XTS for contents and AES-256-CTS for names, as mke2fs has it. The
/// kernel does not read them.
const ENCRYPTION_MODES: [u8; 2] = [1, 4];
/// `s_jnl_backup_type`: `s_jnl_blocks` contains the journal inode's block map.
const JOURNAL_BACKUP_BLOCKS: u8 = 1;

/// Returns the superblock of a volume of `geometry`, with all counters zero.
pub(crate) fn build(geometry: &Geometry, options: &MkfsOptions, identity: &Identity) -> Result<Superblock> {
    let mut raw = RawSuperblock::new_zeroed();
    raw.s_magic.set(MAGIC);
    raw.s_state.set(STATE_VALID);
    raw.s_rev_level.set(geometry.revision);
    set_geometry(&mut raw, geometry);
    set_policies(&mut raw, geometry, identity);
    set_choices(&mut raw, options);
    // Refuses a geometry that could not be opened, before anything is written.
    let mut sb = Superblock::from_raw(raw).map_err(MkfsError::invalid)?;
    set_name_features(&mut sb, options);
    Ok(sb)
}

/// Sets the fields that only the options determine.
fn set_choices(raw: &mut RawSuperblock, options: &MkfsOptions) {
    raw.s_volume_name[..options.label.len()].copy_from_slice(options.label.as_bytes());
    raw.s_last_mounted[..options.last_mounted.len()].copy_from_slice(options.last_mounted.as_bytes());
    raw.s_errors.set(options.on_error as u16);
    raw.s_raid_stride.set(options.stride);
    raw.s_raid_stripe_width.set(options.stripe_width);
    if options.for_tests {
        raw.s_flags.set(raw.s_flags.get() | FLAG_TEST);
    }
}

/// Sets the fields that the features of names need.
fn set_name_features(sb: &mut Superblock, options: &MkfsOptions) {
    if let Some(casefold) = options.casefold {
        sb.set_encoding(Encoding { strict: casefold == Casefold::Strict, misplaced_names: true });
    }
    if sb.incompat().contains(Incompat::ENCRYPT) {
        sb.raw_mut().s_encrypt_algos[..2].copy_from_slice(&ENCRYPTION_MODES);
    }
}

fn set_geometry(raw: &mut RawSuperblock, geometry: &Geometry) {
    let log_block_size = geometry.block_size.ilog2() - 10;
    raw.s_log_block_size.set(log_block_size);
    raw.s_log_cluster_size.set(log_block_size + geometry.cluster_blocks.ilog2());
    raw.s_blocks_per_group.set(geometry.blocks_per_group);
    raw.s_clusters_per_group.set(geometry.blocks_per_group / geometry.cluster_blocks);
    raw.s_inodes_per_group.set(geometry.inodes_per_group);
    raw.s_first_data_block.set(geometry.first_data_block);
    raw.s_blocks_count_lo.set(low(geometry.blocks_count));
    raw.s_blocks_count_hi.set(high(geometry.blocks_count));
    raw.s_r_blocks_count_lo.set(low(geometry.reserved_blocks));
    raw.s_r_blocks_count_hi.set(high(geometry.reserved_blocks));
    raw.s_inodes_count.set(geometry.inodes_count());
    raw.s_first_ino.set(FIRST_INODE);
    set_inode_size(raw, geometry.inode_size);
    if geometry.features.incompat.contains(Incompat::BIT64) {
        raw.s_desc_size.set(u16::try_from(geometry.features.desc_size()).expect("64"));
    }
    raw.s_reserved_gdt_blocks
        .set(u16::try_from(geometry.reserved_gdt_blocks).expect("at most a quarter of the bytes of a block"));
    raw.s_log_groups_per_flex = u8::try_from(geometry.flex_groups.ilog2()).expect("at most 31");
    if let SuperCopies::Two(groups) = geometry.copies.supers {
        raw.s_backup_bgs = groups.map(Into::into);
    }
}

fn set_policies(raw: &mut RawSuperblock, geometry: &Geometry, identity: &Identity) {
    let Features { compat, incompat, ro_compat } = geometry.features;
    raw.s_feature_compat.set(compat.bits());
    raw.s_feature_incompat.set(incompat.bits());
    raw.s_feature_ro_compat.set(ro_compat.bits());
    if ro_compat.contains(RoCompat::METADATA_CSUM) {
        raw.s_checksum_type = CHECKSUM_CRC32C;
    }
    set_identity(raw, identity);
    if incompat.contains(Incompat::CSUM_SEED) {
        raw.s_checksum_seed.set(crc32c(!0, &identity.uuid));
    }
    raw.s_flags.set(FLAG_SIGNED_HASH);
    if geometry.revision > 0 {
        raw.s_default_mount_opts.set(DEFAULT_MOUNT_OPTIONS);
    }
}

fn set_inode_size(raw: &mut RawSuperblock, bytes: u16) {
    raw.s_inode_size.set(bytes);
    if bytes > 128 {
        raw.s_min_extra_isize.set(EXTRA_ISIZE);
        raw.s_want_extra_isize.set(EXTRA_ISIZE);
    }
}

fn set_identity(raw: &mut RawSuperblock, identity: &Identity) {
    raw.s_uuid = identity.uuid;
    for (word, bytes) in raw.s_hash_seed.iter_mut().zip(identity.hash_seed.chunks_exact(4)) {
        word.set(u32::from_le_bytes(bytes.try_into().expect("four bytes")));
    }
    raw.s_def_hash_version = HASH_HALF_MD4;
    raw.s_max_mnt_count.set(NO_MAX_MOUNT_COUNT);
    raw.s_mkfs_time.set(identity.now);
    raw.s_lastcheck.set(identity.now);
    raw.s_wtime.set(identity.now);
}

/// Sets the counters of the volume, including its first files.
pub(crate) fn set_counters(sb: &mut Superblock, geometry: &Geometry, placement: &Placement) {
    let whole = u64::from(geometry.first_data_block)..geometry.blocks_count;
    let free = whole.end - whole.start - placement.used.count(whole);
    sb.set_free_blocks(free);
    sb.set_free_inodes(geometry.inodes_count() - placement.used_inodes);
    // The field has 32 bits. With 0, the kernel computes the value.
    sb.raw_mut().s_overhead_clusters.set(u32::try_from(placement.overhead).unwrap_or(0));
}

/// Sets the journal's inode number and the copy of its block map, which e2fsck uses if the inode is
/// lost.
pub(crate) fn set_journal(sb: &mut Superblock, inode: &Inode) {
    sb.set_compat(sb.compat() | Compat::HAS_JOURNAL);
    let raw = sb.raw_mut();
    raw.s_journal_inum.set(InodeNo::JOURNAL.get());
    raw.s_jnl_backup_type = JOURNAL_BACKUP_BLOCKS;
    for (word, bytes) in raw.s_jnl_blocks.iter_mut().zip(inode.block.chunks_exact(4)) {
        word.set(u32::from_le_bytes(bytes.try_into().expect("four bytes")));
    }
    raw.s_jnl_blocks[15].set(high(inode.size));
    raw.s_jnl_blocks[16].set(low(inode.size));
}

/// Names the device that has the journal. `number` is the number of the block device, as a hint for
/// the kernel.
pub(crate) fn set_external_journal(sb: &mut Superblock, journal: &JournalDevice, number: u32) {
    sb.set_compat(sb.compat() | Compat::HAS_JOURNAL);
    let raw = sb.raw_mut();
    raw.s_journal_uuid = journal.uuid;
    raw.s_journal_dev.set(number);
}

/// Returns the superblock of a journal device, as mke2fs makes it.
pub(crate) fn of_journal_device(
    block_size: u32,
    blocks: u64,
    options: &MkfsOptions,
    identity: &Identity,
) -> RawSuperblock {
    let mut raw = RawSuperblock::new_zeroed();
    raw.s_magic.set(MAGIC);
    raw.s_state.set(STATE_VALID);
    raw.s_rev_level.set(1);
    raw.s_feature_incompat.set(Incompat::JOURNAL_DEV.bits());
    let log_block_size = block_size.ilog2() - 10;
    raw.s_log_block_size.set(log_block_size);
    raw.s_log_cluster_size.set(log_block_size);
    raw.s_blocks_per_group.set(8 * block_size);
    raw.s_clusters_per_group.set(8 * block_size);
    raw.s_first_data_block.set(u32::from(block_size == 1024));
    raw.s_blocks_count_lo.set(low(blocks));
    raw.s_first_ino.set(FIRST_INODE);
    set_inode_size(&mut raw, options.inode_size);
    set_identity(&mut raw, identity);
    raw.s_default_mount_opts.set(DEFAULT_MOUNT_OPTIONS);
    set_choices(&mut raw, options);
    raw
}

/// Returns the backup of the superblock for group `group`. Its state is not valid, so that e2fsck
/// checks a volume that is repaired from it.
pub(crate) fn backup(sb: &Superblock, group: u32) -> Superblock {
    let mut copy = sb.clone();
    copy.set_state(0);
    // The field has 16 bits, and no reader needs the upper bits.
    copy.raw_mut().s_block_group_nr.set(low(u64::from(group) & 0xffff) as u16);
    copy
}

const fn low(n: u64) -> u32 {
    (n & 0xffff_ffff) as u32
}

const fn high(n: u64) -> u32 {
    (n >> 32) as u32
}
