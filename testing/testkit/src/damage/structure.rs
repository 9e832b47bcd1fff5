//! A place in the image, its fields, and how its checksums are made.

use parext4::MemDevice;
use parext4_format::superblock::Superblock;

use super::bytes;
use super::holder::Holder;
use super::seal::{Seal, seal};

/// The kinds of structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The primary superblock.
    Superblock,
    /// A group descriptor.
    Descriptor,
    /// A bitmap of blocks or inodes.
    Bitmap,
    /// An inode, with the root of its map, contents and attributes.
    Inode,
    /// A node of a tree of extents.
    Extents,
    /// A block of pointers.
    Pointers,
    /// A block of directory entries.
    Directory,
    /// A block of a hash tree.
    Index,
    /// A block of attributes.
    Attributes,
    /// A block of the file of orphans.
    Orphans,
    /// A block of the tree of a quota file.
    Quota,
    /// A block of hashes, or with the descriptor, of a file that fs-verity protects.
    Verity,
    /// A block of the log: its superblock, a descriptor, a revocation or a commit.
    Journal,
    /// A copy of a structure in the log, which a replay writes to its place.
    Logged,
    /// Fast commits.
    FastCommit,
}

/// A structure of a sound volume.
#[derive(Clone, Debug)]
pub struct Structure {
    /// Its kind.
    pub class: Class,
    /// Its first byte in the image.
    pub at: u64,
    /// Its length in bytes.
    pub len: usize,
    /// Offset and width of each field, in bytes.
    pub fields: Vec<(usize, usize)>,
    /// How its checksum is made.
    pub seal: Seal,
    /// What else has a checksum of it.
    pub holder: Option<Holder>,
}

impl Structure {
    /// Returns true if numbers are stored with the highest byte first.
    fn is_big_endian(&self) -> bool {
        self.class == Class::Journal
    }

    /// Returns a field.
    pub fn get(&self, bytes: &[u8], at: usize, width: usize) -> u64 {
        let field = bytes[at..at + width].iter();
        let number = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.is_big_endian() { field.fold(0, number) } else { field.rev().fold(0, number) }
    }

    /// Changes a field.
    pub fn set(&self, bytes: &mut [u8], at: usize, width: usize, value: u64) {
        let field = &mut bytes[at..at + width];
        field.copy_from_slice(&value.to_le_bytes()[..width]);
        if self.is_big_endian() {
            field.reverse();
        }
    }

    /// Writes the structure, and makes all checksums of it right.
    pub fn store(&self, superblock: &Superblock, device: &MemDevice, bytes: &mut [u8]) {
        seal(self.seal, superblock, bytes);
        bytes::write(device, self.at, bytes);
        if let Some(holder) = &self.holder {
            holder.update(superblock, device);
        }
    }
}
