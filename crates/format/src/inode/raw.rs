//! The fields of an inode in their on-disk layout.
//!
//! Source: kernel documentation, "Index Nodes", and `struct ext4_inode`, whose names are kept
//! (without the prefixes of its unions).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of the fields that every inode has, in bytes.
pub(super) const BASE_SIZE: usize = 128;
/// Size of all fields that the kernel knows, in bytes: 128, and 32 extra.
pub(super) const FIELDS_SIZE: usize = 160;
/// Offset of the lower half of the checksum.
pub(super) const CHECKSUM_LO: usize = std::mem::offset_of!(RawInode, i_checksum_lo);
/// Offset of the upper half of the checksum.
pub(super) const CHECKSUM_HI: usize = std::mem::offset_of!(RawInode, i_checksum_hi);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawInode {
    pub(super) i_mode: U16,
    pub(super) i_uid: U16,
    pub(super) i_size_lo: U32,
    pub(super) i_atime: U32,
    pub(super) i_ctime: U32,
    pub(super) i_mtime: U32,
    pub(super) i_dtime: U32,
    pub(super) i_gid: U16,
    pub(super) i_links_count: U16,
    pub(super) i_blocks_lo: U32,
    pub(super) i_flags: U32,
    pub(super) i_version: U32,
    pub(super) i_block: [u8; 60],
    pub(super) i_generation: U32,
    pub(super) i_file_acl_lo: U32,
    pub(super) i_size_high: U32,
    pub(super) i_obso_faddr: U32,
    pub(super) i_blocks_high: U16,
    pub(super) i_file_acl_high: U16,
    pub(super) i_uid_high: U16,
    pub(super) i_gid_high: U16,
    pub(super) i_checksum_lo: U16,
    pub(super) i_reserved: U16,
    pub(super) i_extra_isize: U16,
    pub(super) i_checksum_hi: U16,
    pub(super) i_ctime_extra: U32,
    pub(super) i_mtime_extra: U32,
    pub(super) i_atime_extra: U32,
    pub(super) i_crtime: U32,
    pub(super) i_crtime_extra: U32,
    pub(super) i_version_hi: U32,
    pub(super) i_projid: U32,
}

const _: () = assert!(size_of::<RawInode>() == FIELDS_SIZE);
const _: () = assert!(std::mem::offset_of!(RawInode, i_extra_isize) == BASE_SIZE);
const _: () = assert!(std::mem::offset_of!(RawInode, i_block) == 0x28);
const _: () = assert!(CHECKSUM_LO == 0x7c && CHECKSUM_HI == 0x82);
