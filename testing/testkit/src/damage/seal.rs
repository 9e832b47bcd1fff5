//! Makes checksums right, whatever the fields are: of structures that the functions of the format
//! crate would refuse, too.

use parext4_format::checksum::{ChecksumSeed, crc16, crc32c};
use parext4_format::superblock::Superblock;
use parext4_format::{FsBlock, GroupNo, InodeNo, dir_entry, orphan_file, xattr};

use super::fields;

/// How a checksum is made.
#[derive(Clone, Copy, Debug)]
pub enum Seal {
    /// There is none, or it is in another structure.
    None,
    /// Of the superblock.
    Superblock,
    /// Of a group descriptor.
    Descriptor(GroupNo),
    /// Of an inode.
    Inode(InodeNo),
    /// Of a block of extents. The seed is of the inode, here and below.
    Extents(ChecksumSeed),
    /// Of a block of entries.
    Directory(ChecksumSeed),
    /// Of a block of a hash tree.
    Index(ChecksumSeed),
    /// Of a block of attributes.
    Attributes(FsBlock),
    /// Of a block of the file of orphans.
    Orphans(ChecksumSeed, FsBlock),
    /// Of the superblock of a journal.
    JournalSuperblock,
    /// Of a descriptor or a revocation. The seed is of the journal, here and below.
    JournalTail(u32),
    /// Of a commit.
    Commit(u32),
    /// Of fast commits.
    FastCommit,
}

/// Makes the checksum of a structure right, if the volume has such checksums.
pub fn seal(seal: Seal, superblock: &Superblock, bytes: &mut [u8]) {
    let seed = superblock.checksum_seed();
    match (seal, seed) {
        (Seal::Superblock, _) => Superblock::seal(bytes),
        (Seal::Descriptor(group), _) => descriptor(superblock, group, bytes),
        (Seal::JournalSuperblock, _) => put(bytes, 0xfc, |bytes| crc32c(!0, bytes).to_be_bytes()),
        (Seal::JournalTail(seed), _) => {
            put(bytes, bytes.len() - 4, |bytes| crc32c(seed, bytes).to_be_bytes());
        }
        (Seal::Commit(seed), _) => put(bytes, 0x10, |bytes| crc32c(seed, bytes).to_be_bytes()),
        (Seal::FastCommit, _) => fast_commits(bytes),
        (Seal::Inode(ino), Some(seed)) => inode(seed, ino, bytes),
        (Seal::Extents(seed), Some(_)) => after(bytes, 12 + 12 * half(bytes, 4), seed),
        (Seal::Directory(seed), Some(_)) => dir_entry::seal_tail(seed, bytes),
        (Seal::Index(seed), Some(_)) => index(seed, bytes),
        (Seal::Attributes(block), Some(seed)) => xattr::seal_block(seed, block, bytes),
        (Seal::Orphans(seed, block), Some(_)) => orphan_file::seal_block(seed, block, bytes),
        _ => {}
    }
}

fn half(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// Stores a checksum of four bytes that covers the whole structure with zeros in its place.
fn put(bytes: &mut [u8], at: usize, checksum: impl Fn(&[u8]) -> [u8; 4]) {
    bytes[at..at + 4].fill(0);
    let checksum = checksum(bytes);
    bytes[at..at + 4].copy_from_slice(&checksum);
}

/// Stores the checksum of the bytes before `at` there, if there is room.
fn after(bytes: &mut [u8], at: usize, seed: ChecksumSeed) {
    if at + 4 <= bytes.len() {
        let checksum = seed.of(&bytes[..at]);
        bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn descriptor(superblock: &Superblock, group: GroupNo, bytes: &mut [u8]) {
    bytes[0x1e..0x20].fill(0);
    let number = group.get().to_le_bytes();
    let checksum = match superblock.checksum_seed() {
        Some(seed) => seed.then(&number).of(bytes).to_le_bytes(),
        None if superblock.has_group_checksums() => {
            let before = crc16(crc16(!0, &superblock.uuid()), &number);
            u32::from(crc16(crc16(before, &bytes[..0x1e]), &bytes[0x20..])).to_le_bytes()
        }
        None => return,
    };
    bytes[0x1e..0x20].copy_from_slice(&checksum[..2]);
}

fn inode(seed: ChecksumSeed, ino: InodeNo, bytes: &mut [u8]) {
    let generation = u32::from_le_bytes([bytes[0x64], bytes[0x65], bytes[0x66], bytes[0x67]]);
    let is_wide = bytes.len() > 128 && half(bytes, 0x80) >= 4;
    bytes[0x7c..0x7e].fill(0);
    if is_wide {
        bytes[0x82..0x84].fill(0);
    }
    let checksum = seed.inode(ino, generation).of(bytes).to_le_bytes();
    bytes[0x7c..0x7e].copy_from_slice(&checksum[..2]);
    if is_wide {
        bytes[0x82..0x84].copy_from_slice(&checksum[2..]);
    }
}

fn index(seed: ChecksumSeed, bytes: &mut [u8]) {
    let start = fields::index_entries(bytes);
    let (limit, count) = (half(bytes, start), half(bytes, start + 2));
    let tail = start + 8 * limit;
    if count > limit || tail + 8 > bytes.len() {
        return;
    }
    let checksum = seed.then(&bytes[..start + 8 * count]).then(&bytes[tail..tail + 4]).of(&[0; 4]);
    bytes[tail + 4..tail + 8].copy_from_slice(&checksum.to_le_bytes());
}

/// Makes the checksums of all tails right.
fn fast_commits(bytes: &mut [u8]) {
    let mut start = 0;
    for (tag, kind, _) in fields::fast_commit_tags(bytes) {
        if kind == fields::TAIL && tag + 12 <= bytes.len() {
            // The tail's own checksum follows the number of its transaction.
            let checksum = crc32c(0, &bytes[start..tag + 8]);
            bytes[tag + 8..tag + 12].copy_from_slice(&checksum.to_le_bytes());
            start = fields::after_tail(tag, bytes);
        }
    }
}
