//! Values of attributes: bytes beside the entry, or an inode of their own (`ea_inode`).
//!
//! An inode of a value has the flag `EA_INODE`. Its size is the length of the value, `i_atime` is
//! the hash of the value, and `i_version` counts the entries that refer to it
//! (`ext4_xattr_inode_get_ref`). Source: kernel documentation, "ext4: Extended Attributes".

use super::PAD;
use crate::{ChecksumSeed, InodeNo};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The value itself.
    Bytes(Vec<u8>),
    /// The inode that has the value.
    Inode(ValueInode),
}

/// The inode of a value, as an entry refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueInode {
    /// Number of the inode.
    pub ino: InodeNo,
    /// Length of the value in bytes.
    pub size: u32,
    /// `e_hash` of the entry.
    pub entry_hash: u32,
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl Value {
    /// Returns the inode that has the value, if it has one.
    #[must_use]
    pub fn inode(&self) -> Option<ValueInode> {
        match self {
            Self::Bytes(_) => None,
            Self::Inode(inode) => Some(*inode),
        }
    }

    /// Returns how many bytes the value occupies beside the entries, with its padding. A value in
    /// an inode occupies none.
    #[must_use]
    pub fn padded_len(&self) -> usize {
        match self {
            Self::Bytes(value) => value.len().next_multiple_of(PAD),
            Self::Inode(_) => 0,
        }
    }
}

/// Inodes of values.
impl ValueInode {
    /// Length of the longest value that the format permits, in bytes (`EXT4_XATTR_SIZE_MAX`).
    pub const MAX_SIZE: u32 = 1 << 24;

    /// Returns the hash of a value. `seed` is the volume's, also on a volume without checksums.
    #[must_use]
    pub fn hash(seed: ChecksumSeed, value: &[u8]) -> u32 {
        seed.of(value)
    }

    /// Returns the entry for attribute `name` with a value of this hash.
    #[must_use]
    pub fn new(ino: InodeNo, name: &[u8], size: u32, hash: u32) -> Self {
        Self { ino, size, entry_hash: name_hash(name).rotate_left(16) ^ hash }
    }

    /// Returns true if the entry, for attribute `name`, fits a value with this hash. Kernels before
    /// 6.2 treated the bytes of a name as signed.
    #[must_use]
    pub fn has_hash(&self, name: &[u8], hash: u32) -> bool {
        let signed = name
            .iter()
            .fold(0_u32, |sum, &byte| sum.rotate_left(5) ^ i32::from(byte.cast_signed()).cast_unsigned());
        [name_hash(name), signed].iter().any(|name| name.rotate_left(16) ^ hash == self.entry_hash)
    }
}

/// Computes the part of `e_hash` that depends on the name. The bytes of the name count as unsigned.
/// Kernels before 6.2 used `char`, which is signed on some machines; all kernels accept both
/// hashes.
pub(super) fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(0, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte))
}
