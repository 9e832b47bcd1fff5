//! Checksums of a structure that another structure holds.

use parext4::MemDevice;
use parext4_format::GroupNo;
use parext4_format::jbd2::{TagFormat, data_checksum};
use parext4_format::superblock::Superblock;
use parext4_format::{bitmap, checksum::ChecksumSeed};

use super::bytes;
use super::seal::{Seal, seal};

/// What holds the checksum.
#[derive(Clone, Debug)]
pub enum Holder {
    /// The group descriptor, of a bitmap.
    Descriptor(Bitmap),
    /// A descriptor of the log, of the whole block that has the structure.
    Tag(Tag),
}

/// A bitmap, and the group descriptor that has its checksum.
#[derive(Clone, Debug)]
pub struct Bitmap {
    /// The first byte of the bitmap, and its length.
    pub at: (u64, usize),
    /// The first byte of the descriptor, and its length.
    pub descriptor: (u64, usize),
    /// The group.
    pub group: GroupNo,
    /// True for the bitmap of inodes.
    pub of_inodes: bool,
}

/// A block in the log, and the tag that has its checksum.
#[derive(Clone, Debug)]
pub struct Tag {
    /// The first byte of the block, and its length.
    pub at: (u64, usize),
    /// The first byte of the descriptor, which has the same length.
    pub descriptor: u64,
    /// The offset of the tag in the descriptor.
    pub offset: usize,
    /// The format of the tag.
    pub format: TagFormat,
    /// The seed of the journal.
    pub seed: u32,
    /// The number of the transaction.
    pub sequence: u32,
}

impl Holder {
    /// Makes the checksum right.
    pub fn update(&self, superblock: &Superblock, device: &MemDevice) {
        match (self, superblock.checksum_seed()) {
            (Self::Descriptor(bitmap), Some(seed)) => bitmap.update(superblock, seed, device),
            (Self::Tag(tag), _) if tag.format.has_checksums() => tag.update(superblock, device),
            _ => {}
        }
    }
}

impl Bitmap {
    fn update(&self, superblock: &Superblock, seed: ChecksumSeed, device: &MemDevice) {
        let bits = bytes::read(device, self.at.0, self.at.1);
        let (low, high, checksum) = match self.of_inodes {
            true => (0x1a, 0x3a, bitmap::inode_bitmap_checksum(seed, &bits, superblock)),
            false => (0x18, 0x38, bitmap::block_bitmap_checksum(seed, &bits, superblock)),
        };
        let (at, len) = self.descriptor;
        let mut descriptor = bytes::read(device, at, len);
        let checksum = checksum.to_le_bytes();
        descriptor[low..low + 2].copy_from_slice(&checksum[..2]);
        if let Some(high) = descriptor.get_mut(high..high + 2) {
            high.copy_from_slice(&checksum[2..]);
        }
        seal(Seal::Descriptor(self.group), superblock, &mut descriptor);
        bytes::write(device, at, &descriptor);
    }
}

impl Tag {
    fn update(&self, superblock: &Superblock, device: &MemDevice) {
        let (at, len) = self.at;
        let block = bytes::read(device, at, len);
        let checksum = data_checksum(self.seed, self.sequence, &block).to_be_bytes();
        let mut descriptor = bytes::read(device, self.descriptor, len);
        // `journal_block_tag3_t` ends with all bits, `journal_block_tag_t` has the low half after
        // the block number.
        let (field, checksum) = if self.format.csum_v3 { (12, &checksum[..]) } else { (4, &checksum[2..]) };
        let field = self.offset + field;
        descriptor[field..field + checksum.len()].copy_from_slice(checksum);
        seal(Seal::JournalTail(self.seed), superblock, &mut descriptor);
        bytes::write(device, self.descriptor, &descriptor);
    }
}
