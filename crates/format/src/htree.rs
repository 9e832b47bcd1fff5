//! Hash tree directories: the index blocks `dx_root` (block 0) and `dx_node`, and their checksum
//! tail.
//!
//! An implementation without htree reads an index block as a linear block without names: the root
//! is `.` and a `..` that extends to the end, and a node is one unused entry. Slot 0 of the array
//! of entries stores the count and the limit instead of its hash, which is 0. Source: kernel
//! documentation, "ext4: Hash Tree Directories"; checksum: `ext4_dx_csum`.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::convert::widen;
use crate::dir_entry::{RawHeader, TYPE_DIR};
use crate::{ChecksumSeed, FileBlock, FormatError, InodeNo, Result};

/// An index entry: the names whose hash is at least `hash`, and below that of the next entry, are
/// in or below `block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DxEntry {
    /// The lowest hash. If bit 0 is set, the previous block may have names with this hash, too.
    pub hash: u32,
    /// A block of the directory.
    pub block: FileBlock,
}

/// The checked contents of block 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DxRoot {
    /// The hash function; see [`crate::hash::DirHash::from_disk`].
    pub hash_version: u8,
    /// The number of levels of nodes between the root and the leaves: 0 to [`max_indirect_levels`].
    pub indirect_levels: u8,
    /// The entries; the first one's hash is 0.
    pub entries: Vec<DxEntry>,
    /// The number of entries that fit.
    pub limit: usize,
}

/// Maximum number of levels of nodes of any volume.
const MAX_INDIRECT_LEVELS: u8 = 2;
/// Number of blocks that a directory may have: the entries of an index address no further blocks.
pub const MAX_DIR_BLOCKS: u64 = widen(BLOCK_MASK) + 1;

const DX_ENTRY: usize = 8;
/// Bytes of `struct dx_tail`: `dt_reserved`, `dt_checksum`.
const DX_TAIL: usize = 8;
/// Offset of the entries of a root: after `.`, `..` and `struct dx_root_info`.
const ROOT_ENTRIES: usize = 32;
/// Offset of the entries of a node: after the unused directory entry.
const NODE_ENTRIES: usize = 8;
/// Bytes of `struct dx_root_info`.
const INFO_LENGTH: u8 = 8;
/// Bytes of the entry `.`.
const DOT_LEN: u16 = 12;
/// The four high bits of `dx_entry.block` are reserved.
const BLOCK_MASK: u32 = 0x0fff_ffff;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRoot {
    dot: RawHeader,
    dot_name: [u8; 4],
    dotdot: RawHeader,
    dotdot_name: [u8; 4],
    reserved_zero: U32,
    hash_version: u8,
    info_length: u8,
    indirect_levels: u8,
    unused_flags: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCountLimit {
    limit: U16,
    count: U16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    hash: U32,
    block: U32,
}

/// Returns the maximum number of levels of nodes between the root and the leaves
/// (`ext4_dir_htree_level`, which counts the root too).
#[must_use]
pub fn max_indirect_levels(large_dir: bool) -> u8 {
    if large_dir { MAX_INDIRECT_LEVELS } else { 1 }
}

/// Returns the number of entries that fit a root of `block_len` bytes. `has_tail` is true with
/// `metadata_csum`.
#[must_use]
pub fn root_limit(block_len: usize, has_tail: bool) -> usize {
    limit(block_len, has_tail, ROOT_ENTRIES)
}

/// Returns the number of entries that fit a node of `block_len` bytes.
#[must_use]
pub fn node_limit(block_len: usize, has_tail: bool) -> usize {
    limit(block_len, has_tail, NODE_ENTRIES)
}

fn limit(block_len: usize, has_tail: bool, start: usize) -> usize {
    block_len.saturating_sub(start + if has_tail { DX_TAIL } else { 0 }) / DX_ENTRY
}

/// Returns a `rec_len` that covers `len` bytes; in a block of 64 KiB it is stored as 65535.
fn rec_len(len: usize) -> U16 {
    U16::new(u16::try_from(len).unwrap_or(u16::MAX))
}

fn raw_root(block: &[u8]) -> Result<&RawRoot> {
    RawRoot::ref_from_prefix(block)
        .map(|(root, _)| root)
        .map_err(|_| FormatError::new("dx_root", "info", "the block is too short"))
}

/// Parses block 0 of a hash tree directory. The caller checks the levels of nodes against
/// [`max_indirect_levels`].
///
/// # Errors
/// [`FormatError`] that names the field that is not valid.
pub fn parse_root(block: &[u8], has_tail: bool) -> Result<DxRoot> {
    let fail = |field, problem: std::fmt::Arguments<'_>| Err(FormatError::new("dx_root", field, problem));
    let root = raw_root(block)?;
    if root.dot.rec_len.get() != DOT_LEN || root.dot.name_len != 1 || !root.dot_name.starts_with(b".") {
        return fail("dot", format_args!("not \".\" in 12 bytes"));
    }
    if root.dotdot.name_len != 2 || !root.dotdot_name.starts_with(b"..") {
        return fail("dotdot", format_args!("is not \"..\""));
    }
    if root.dotdot.rec_len != rec_len(block.len() - usize::from(DOT_LEN)) {
        return fail(
            "dotdot_rec_len",
            format_args!("{} does not extend to the end", root.dotdot.rec_len.get()),
        );
    }
    if root.reserved_zero.get() != 0 {
        return fail("reserved_zero", format_args!("is {:#x}", root.reserved_zero.get()));
    }
    if root.info_length != INFO_LENGTH {
        return fail("info_length", format_args!("is {}", root.info_length));
    }
    if root.indirect_levels > MAX_INDIRECT_LEVELS {
        return fail(
            "indirect_levels",
            format_args!("{} levels, the limit is {MAX_INDIRECT_LEVELS}", root.indirect_levels),
        );
    }
    // `EXT2_HASH_FLAG_INCOMPAT`: an implementation must not use a tree with unknown flags.
    if root.unused_flags & 1 != 0 {
        return fail("unused_flags", format_args!("is {:#x}", root.unused_flags));
    }
    let limit = root_limit(block.len(), has_tail);
    Ok(DxRoot {
        hash_version: root.hash_version,
        indirect_levels: root.indirect_levels,
        entries: parse_entries("dx_root", block, ROOT_ENTRIES, limit)?,
        limit,
    })
}

/// Parses an inner block of a hash tree directory.
///
/// # Errors
/// [`FormatError`] that names the field that is not valid.
pub fn parse_node(block: &[u8], has_tail: bool) -> Result<Vec<DxEntry>> {
    let fail = |field, problem: &str| Err(FormatError::new("dx_node", field, problem));
    let Ok((fake, _)) = RawHeader::ref_from_prefix(block) else {
        return fail("fake", "the block is too short");
    };
    if fake.inode.get() != 0 {
        return fail("fake_inode", "is in use");
    }
    if fake.rec_len != rec_len(block.len()) {
        return fail("fake_rec_len", "does not cover the block");
    }
    parse_entries("dx_node", block, NODE_ENTRIES, node_limit(block.len(), has_tail))
}

fn parse_entries(
    structure: &'static str,
    block: &[u8],
    start: usize,
    expected_limit: usize,
) -> Result<Vec<DxEntry>> {
    let bytes = block.get(start..).unwrap_or_default();
    let Ok((head, _)) = RawCountLimit::ref_from_prefix(bytes) else {
        return Err(FormatError::new(structure, "limit", "the block is too short"));
    };
    let (limit, count) = (usize::from(head.limit.get()), usize::from(head.count.get()));
    if limit != expected_limit {
        let problem = format_args!("{limit}, but {expected_limit} entries fit");
        return Err(FormatError::new(structure, "limit", problem));
    }
    if count == 0 || count > limit {
        return Err(FormatError::new(structure, "count", format_args!("{count} of {limit}")));
    }
    let Ok((raw, _)) = <[RawEntry]>::ref_from_prefix_with_elems(bytes, count) else {
        return Err(FormatError::new(structure, "count", format_args!("{count} entries leave the block")));
    };
    let mut entries = Vec::with_capacity(count);
    let mut last = 0;
    for (slot, entry) in raw.iter().enumerate() {
        let hash = if slot == 0 { 0 } else { entry.hash.get() };
        // Equal hashes are legal: names of one hash in three leaves have two entries with bit 0
        // set.
        if hash < last {
            let problem = format_args!("{hash:#x} in slot {slot} after {last:#x}");
            return Err(FormatError::new(structure, "hash", problem));
        }
        last = hash;
        entries.push(DxEntry { hash, block: FileBlock(entry.block.get() & BLOCK_MASK) });
    }
    Ok(entries)
}

/// Returns the index of the last entry whose hash is not above `hash`; 0 for an empty slice.
#[must_use]
pub fn search(entries: &[DxEntry], hash: u32) -> usize {
    entries.get(1..).unwrap_or_default().partition_point(|entry| entry.hash <= hash)
}

fn encode_entries(bytes: &mut [u8], limit: usize, entries: &[DxEntry]) {
    assert!((1..=limit).contains(&entries.len()), "{} index entries of {limit}", entries.len());
    for (slot, entry) in bytes.chunks_exact_mut(DX_ENTRY).zip(entries) {
        let raw = RawEntry { hash: U32::new(entry.hash), block: U32::new(entry.block.get() & BLOCK_MASK) };
        slot.copy_from_slice(raw.as_bytes());
    }
    // A limit is at most 65535 / 8.
    let short = |n: usize| U16::new(u16::try_from(n).unwrap_or(u16::MAX));
    let head = RawCountLimit { limit: short(limit), count: short(entries.len()) };
    bytes[..4].copy_from_slice(head.as_bytes());
}

/// Rewrites the entries of a root and keeps `.`, `..` and all other fields.
///
/// # Panics
/// If there is no entry, or more than [`root_limit`].
pub fn encode_root_entries(block: &mut [u8], has_tail: bool, entries: &[DxEntry]) {
    let limit = root_limit(block.len(), has_tail);
    encode_entries(&mut block[ROOT_ENTRIES..], limit, entries);
}

/// Initialises block 0 of a hash tree directory.
///
/// # Panics
/// If there is no entry, or more than [`root_limit`].
pub fn init_root(
    block: &mut [u8],
    has_tail: bool,
    dir: InodeNo,
    parent: InodeNo,
    hash_version: u8,
    levels: u8,
    entries: &[DxEntry],
) {
    block.fill(0);
    let dirent = |ino: InodeNo, rec_len, name_len| RawHeader {
        inode: U32::new(ino.get()),
        rec_len,
        name_len,
        file_type: TYPE_DIR,
    };
    let root = RawRoot {
        dot: dirent(dir, U16::new(DOT_LEN), 1),
        dot_name: *b".\0\0\0",
        dotdot: dirent(parent, rec_len(block.len() - usize::from(DOT_LEN)), 2),
        dotdot_name: *b"..\0\0",
        reserved_zero: U32::ZERO,
        hash_version,
        info_length: INFO_LENGTH,
        indirect_levels: levels,
        unused_flags: 0,
    };
    block[..ROOT_ENTRIES].copy_from_slice(root.as_bytes());
    encode_root_entries(block, has_tail, entries);
}

/// Sets `indirect_levels` of a root.
pub fn set_levels(block: &mut [u8], levels: u8) {
    block[30] = levels;
}

/// Initialises an inner block of a hash tree directory.
///
/// # Panics
/// If there is no entry, or more than [`node_limit`].
pub fn encode_node(block: &mut [u8], has_tail: bool, entries: &[DxEntry]) {
    block.fill(0);
    let fake = RawHeader { inode: U32::ZERO, rec_len: rec_len(block.len()), name_len: 0, file_type: 0 };
    block[..NODE_ENTRIES].copy_from_slice(fake.as_bytes());
    let limit = node_limit(block.len(), has_tail);
    encode_entries(&mut block[NODE_ENTRIES..], limit, entries);
}

/// Returns the inode of `..` in a root that [`parse_root`] accepted.
#[must_use]
pub fn parent_of_root(block: &[u8]) -> InodeNo {
    raw_root(block).map_or(InodeNo(0), |root| InodeNo(root.dotdot.inode.get()))
}

/// Sets the inode of `..` in a root.
pub fn set_parent(block: &mut [u8], parent: InodeNo) {
    block[12..16].copy_from_slice(&parent.get().to_le_bytes());
}

/// Returns the offset of the entries, or `None` if `block` is not an index block
/// (`get_dx_countlimit`).
fn entries_offset(block: &[u8]) -> Option<usize> {
    let (first, _) = RawHeader::ref_from_prefix(block).ok()?;
    if first.inode.get() == 0 && first.rec_len == rec_len(block.len()) {
        return Some(NODE_ENTRIES);
    }
    let root = raw_root(block).ok()?;
    let is_root = root.dot.rec_len.get() == DOT_LEN
        && root.dotdot.rec_len == rec_len(block.len() - usize::from(DOT_LEN))
        && root.reserved_zero.get() == 0
        && root.info_length == INFO_LENGTH;
    is_root.then_some(ROOT_ENTRIES)
}

/// Returns true if the block is an index block rather than a linear one.
///
/// Without `metadata_csum` the answer is a guess: a node and a linear block with one unused entry
/// differ only in the bytes after that entry. A walk from the root knows which blocks are index
/// blocks.
#[must_use]
pub fn is_dx_block(block: &[u8]) -> bool {
    let Some(start) = entries_offset(block) else { return false };
    let Ok((head, _)) = RawCountLimit::ref_from_prefix(&block[start..]) else { return false };
    let (found, count) = (usize::from(head.limit.get()), head.count.get());
    [true, false].iter().any(|&tail| found == limit(block.len(), tail, start))
        && (1..=head.limit.get()).contains(&count)
}

/// Returns the stored checksum of an index block, the computed one, and the offset of the stored
/// one.
fn checksums(seed: ChecksumSeed, block: &[u8]) -> Result<(u32, u32, usize)> {
    let fail = |field, problem| FormatError::new("dx_tail", field, problem);
    let start = entries_offset(block).ok_or_else(|| fail("limit", "not an index block"))?;
    let bytes = &block[start..];
    let (head, _) =
        RawCountLimit::ref_from_prefix(bytes).map_err(|_| fail("limit", "the block is too short"))?;
    let (limit, count) = (usize::from(head.limit.get()), usize::from(head.count.get()));
    if count > limit {
        return Err(fail("count", "is above the limit"));
    }
    let tail = start + limit * DX_ENTRY;
    let Some((reserved, stored)) = block.get(tail..tail + DX_TAIL).and_then(|bytes| bytes.split_last_chunk())
    else {
        return Err(fail("limit", "leaves no room for the checksum"));
    };
    // The checksum covers the entries in use, `dt_reserved`, and zero for `dt_checksum`.
    let computed = seed.then(&block[..start + count * DX_ENTRY]).then(reserved).of(&[0; 4]);
    Ok((u32::from_le_bytes(*stored), computed, tail + 4))
}

/// Verifies the checksum of a root or a node; `seed` is that of the directory's inode.
///
/// # Errors
/// [`FormatError`] if the block has no room for a checksum, or the checksum is wrong.
pub fn verify(seed: ChecksumSeed, block: &[u8]) -> Result<()> {
    let (stored, computed, _) = checksums(seed, block)?;
    if stored != computed {
        return Err(FormatError::checksum("directory index block", stored, computed));
    }
    Ok(())
}

/// Writes the checksum of a root or a node; `seed` is that of the directory's inode.
///
/// # Panics
/// If the block is not one that [`init_root`] or [`encode_node`] made for `metadata_csum`.
pub fn seal(seed: ChecksumSeed, block: &mut [u8]) {
    let (_, computed, at) = checksums(seed, block).expect("an index block with a tail");
    block[at..at + 4].copy_from_slice(&computed.to_le_bytes());
}

#[cfg(test)]
mod tests;
