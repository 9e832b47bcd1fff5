//! Linear directory blocks: a chain of `struct ext4_dir_entry_2` that tiles the block, and with
//! `metadata_csum` a 12-byte tail that looks like an unused entry and holds the checksum.
//!
//! Entries never move. An insertion uses an unused entry or the slack at the end of one; a removal
//! extends the previous entry. Source: kernel documentation, "ext4: Directory Entries".

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ChecksumSeed, FormatError, InodeNo, Result};
pub use chain::{EntryPosition, find_room};
use chain::{Header, header_at, is_at, locate, locate_where, name_of};

mod chain;
pub mod inline;

/// Bytes of an entry before its name.
pub const HEADER: usize = 8;
/// The longest name, in bytes (`EXT4_NAME_LEN`).
pub const MAX_NAME: usize = 255;
/// Bytes of the checksum tail (`struct ext4_dir_entry_tail`).
pub const TAIL_SIZE: usize = 12;
/// `file_type` of a directory (`EXT4_FT_DIR`).
pub const TYPE_DIR: u8 = 2;

/// `det_reserved_ft` of the tail (`EXT4_FT_DIR_CSUM`).
const TAIL_TYPE: u8 = 0xde;
/// Size of the shortest entry: the header and a name of one to four bytes.
const MIN_ENTRY: usize = 12;
const STRUCTURE: &str = "directory entry";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawHeader {
    pub(crate) inode: U32,
    pub(crate) rec_len: U16,
    pub(crate) name_len: u8,
    pub(crate) file_type: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTail {
    det_reserved_zero1: U32,
    det_rec_len: U16,
    det_reserved_zero2: u8,
    det_reserved_ft: u8,
    det_checksum: U32,
}

/// One checked entry of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Bytes from the start of the block.
    pub offset: usize,
    /// Bytes from this entry to the next.
    pub rec_len: usize,
    /// The inode; 0 means that the entry is unused.
    pub ino: InodeNo,
    /// The file type: `EXT4_FT_*`.
    pub file_type: u8,
    /// The name; not meaningful if the entry is unused.
    pub name: &'a [u8],
}

/// Returns the number of bytes that an entry with a name of `name_len` bytes needs
/// (`EXT4_DIR_REC_LEN`).
#[must_use]
pub fn entry_size(name_len: usize) -> usize {
    (HEADER + name_len).next_multiple_of(4)
}

/// Returns the number of bytes of a block that hold entries: all but the checksum tail.
#[must_use]
pub fn usable_len(block_len: usize, has_tail: bool) -> usize {
    if has_tail { block_len.saturating_sub(TAIL_SIZE) } else { block_len }
}

/// Iterates over the entries of a block; ends after the first error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    block: &'a [u8],
    offset: usize,
    end: usize,
    /// Whether names are checked.
    legal: bool,
}

/// Returns the entries of a linear block, unused ones included, each with the checks of
/// `ext4_check_dir_entry`.
///
/// Blocks of a hash tree ([`crate::htree::is_dx_block`]) are not linear.
#[must_use]
pub fn entries(block: &[u8], has_tail: bool) -> Entries<'_> {
    Entries { block, offset: 0, end: usable_len(block.len(), has_tail), legal: true }
}

/// Like [`entries`], for a directory whose names are encrypted: they may have any bytes.
#[must_use]
pub fn encrypted_entries(block: &[u8], has_tail: bool) -> Entries<'_> {
    Entries { legal: false, ..entries(block, has_tail) }
}

/// Returns the major and minor hash that an entry keeps after its name, in a directory that is
/// encrypted and ignores case. There only the key could compute them from the name. `None` if the
/// entry has no room for them.
#[must_use]
pub fn hash_in_entry(block: &[u8], entry: &DirEntry<'_>) -> Option<(u32, u32)> {
    let at = entry_size(entry.name.len());
    let bytes = block.get(entry.offset..entry.offset + entry.rec_len)?.get(at..at + 8)?;
    let (major, minor) = bytes.split_at(4);
    Some((u32::from_le_bytes(major.try_into().ok()?), u32::from_le_bytes(minor.try_into().ok()?)))
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<DirEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.end {
            return None;
        }
        let entry = parse_at(self.block, self.offset, self.end, self.legal);
        // `rec_len` is at least 12, so the loop is bounded by the block.
        self.offset = entry.as_ref().map_or(self.end, |entry| self.offset + entry.rec_len);
        Some(entry)
    }
}

fn parse_at(block: &[u8], offset: usize, end: usize, legal: bool) -> Result<DirEntry<'_>> {
    let header = header_at(block, offset, end)?;
    let entry = entry(block, offset, &header);
    if legal && entry.ino.get() != 0 && !is_legal_name(entry.name) {
        let problem = format_args!("empty, or contains '/' or NUL, at byte {offset} of the block");
        return Err(FormatError::new(STRUCTURE, "name", problem));
    }
    Ok(entry)
}

fn entry<'a>(block: &'a [u8], offset: usize, header: &Header) -> DirEntry<'a> {
    let &Header { rec_len, ino, file_type, .. } = header;
    DirEntry { offset, rec_len, ino, file_type, name: name_of(block, offset, header) }
}

/// Returns true if a path can contain `name`. Any other name comes from corruption or malice.
fn is_legal_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

/// Decodes `rec_len`: a block of 64 KiB stores 65536 as 0 or 65535 (`ext4_rec_len_from_disk`).
fn rec_len_from_disk(raw: u16, block_len: usize) -> usize {
    match raw {
        0 | u16::MAX if block_len == 1 << 16 => block_len,
        _ => raw.into(),
    }
}

fn rec_len_to_disk(rec_len: usize) -> U16 {
    U16::new(u16::try_from(rec_len).unwrap_or(u16::MAX))
}

/// Writes an entry over `entry`, whose length is its `rec_len`. Clears the slack.
fn write_entry(entry: &mut [u8], ino: InodeNo, file_type: u8, name: &[u8]) {
    let header = RawHeader {
        inode: U32::new(ino.get()),
        rec_len: rec_len_to_disk(entry.len()),
        name_len: u8::try_from(name.len()).expect("callers check the name"),
        file_type,
    };
    entry.fill(0);
    entry[..HEADER].copy_from_slice(header.as_bytes());
    entry[HEADER..HEADER + name.len()].copy_from_slice(name);
}

fn set_rec_len(block: &mut [u8], offset: usize, rec_len: usize) {
    block[offset + 4..offset + 6].copy_from_slice(rec_len_to_disk(rec_len).as_bytes());
}

/// Initialises an empty block: one unused entry over all of it, and the tail (unsealed) if there is
/// one.
pub fn init_block(block: &mut [u8], has_tail: bool) {
    block.fill(0);
    let end = usable_len(block.len(), has_tail);
    write_entry(&mut block[..end], InodeNo(0), 0, b"");
    if has_tail {
        write_tail(block);
    }
}

/// Initialises the first block of a directory: `.` and `..`.
pub fn init_dot_block(block: &mut [u8], has_tail: bool, dir: InodeNo, parent: InodeNo) {
    init_block(block, has_tail);
    let end = usable_len(block.len(), has_tail);
    write_entry(&mut block[..MIN_ENTRY], dir, TYPE_DIR, b".");
    write_entry(&mut block[MIN_ENTRY..end], parent, TYPE_DIR, b"..");
}

/// Clears the file types of `.` and `..` at the start of a directory, as a volume without the
/// feature `filetype` has them.
///
/// # Panics
/// If the block is shorter than both entries.
pub fn clear_dot_types(block: &mut [u8]) {
    for start in [0, MIN_ENTRY] {
        block[start + std::mem::offset_of!(RawHeader, file_type)] = 0;
    }
}

/// Returns the entry of `name` and its position, or `None` if the block has none.
///
/// # Errors
/// [`FormatError`] for an entry that is not valid.
pub fn find<'a>(
    block: &'a [u8],
    has_tail: bool,
    name: &[u8],
) -> Result<Option<(DirEntry<'a>, EntryPosition)>> {
    let found = locate(block, has_tail, name)?;
    Ok(found.map(|(position, header)| (entry(block, position.offset, &header), position)))
}

/// Like [`find`], for the first entry in use whose name `matches`.
///
/// # Errors
/// [`FormatError`] for an entry that is not valid.
pub fn find_where(
    block: &[u8],
    has_tail: bool,
    matches: impl Fn(&[u8]) -> bool,
) -> Result<Option<(DirEntry<'_>, EntryPosition)>> {
    let found = locate_where(block, has_tail, |offset, header| {
        header.ino.get() != 0 && matches(name_of(block, offset, header))
    })?;
    Ok(found.map(|(position, header)| (entry(block, position.offset, &header), position)))
}

/// Adds an entry where there is room. Returns false if there is none. The caller has checked that
/// `name` is new.
///
/// # Errors
/// [`FormatError`] for an entry that is not valid, or a name or inode that no entry may have.
pub fn insert(block: &mut [u8], has_tail: bool, ino: InodeNo, file_type: u8, name: &[u8]) -> Result<bool> {
    check_new(ino, name)?;
    match find_room(block, has_tail, name.len())? {
        Some(offset) => insert_at(block, has_tail, offset, ino, file_type, name),
        None => Ok(false),
    }
}

/// Adds an entry in the slack of the entry at `offset`, which [`find_room`] returned. Returns false
/// if the slack is too small by now.
///
/// # Errors
/// The errors of [`insert`].
pub fn insert_at(
    block: &mut [u8],
    has_tail: bool,
    offset: usize,
    ino: InodeNo,
    file_type: u8,
    name: &[u8],
) -> Result<bool> {
    check_new(ino, name)?;
    let header = header_at(block, offset, usable_len(block.len(), has_tail))?;
    if header.slack() < entry_size(name.len()) {
        return Ok(false);
    }
    let used = header.used();
    if used > 0 {
        set_rec_len(block, offset, used);
    }
    write_entry(&mut block[offset + used..offset + header.rec_len], ino, file_type, name);
    Ok(true)
}

fn check_new(ino: InodeNo, name: &[u8]) -> Result<()> {
    if name.len() > MAX_NAME {
        return Err(FormatError::new(
            STRUCTURE,
            "name_len",
            format_args!("{}, the limit is 255", name.len()),
        ));
    }
    if !is_legal_name(name) {
        return Err(FormatError::new(STRUCTURE, "name", "empty, or contains '/' or NUL"));
    }
    if ino.get() == 0 {
        return Err(FormatError::new(STRUCTURE, "inode", "0 is reserved for unused entries"));
    }
    Ok(())
}

/// Removes `name` and returns its inode. The previous entry is extended over its space; the first
/// entry of a block becomes unused instead.
///
/// # Errors
/// [`FormatError`] for an entry that is not valid.
pub fn remove(block: &mut [u8], has_tail: bool, name: &[u8]) -> Result<Option<InodeNo>> {
    match locate(block, has_tail, name)? {
        Some((position, _)) => remove_at(block, has_tail, position, name),
        None => Ok(None),
    }
}

/// Like [`remove`], for an entry that [`find`] found at `position`. Searches the block if the entry
/// or the previous one has changed since.
///
/// # Errors
/// [`FormatError`] for an entry that is not valid.
pub fn remove_at(
    block: &mut [u8],
    has_tail: bool,
    position: EntryPosition,
    name: &[u8],
) -> Result<Option<InodeNo>> {
    if !is_at(block, has_tail, position, name) {
        return remove(block, has_tail, name);
    }
    let (end, offset) = (usable_len(block.len(), has_tail), position.offset);
    let Header { rec_len, ino, .. } = header_at(block, offset, end)?;
    write_entry(&mut block[offset..offset + rec_len], InodeNo(0), 0, b"");
    if let Some(previous) = position.previous {
        let previous_len = offset - previous;
        block[offset..offset + HEADER].fill(0);
        set_rec_len(block, previous, previous_len + rec_len);
    }
    Ok(Some(ino))
}

/// Changes the inode of the entry `name`. Returns false if the block has no such entry.
///
/// # Errors
/// The errors of [`insert`].
pub fn set_inode(block: &mut [u8], has_tail: bool, name: &[u8], ino: InodeNo, file_type: u8) -> Result<bool> {
    check_new(ino, name)?;
    let Some(offset) = find(block, has_tail, name)?.map(|(entry, _)| entry.offset) else { return Ok(false) };
    block[offset..offset + 4].copy_from_slice(&ino.get().to_le_bytes());
    block[offset + 7] = file_type;
    Ok(true)
}

/// Returns true if the block has only `.`, `..` and unused entries. Any other name counts, also an
/// encrypted one.
///
/// # Errors
/// [`FormatError`] for an entry that is not valid.
pub fn is_empty_dir_block(block: &[u8], has_tail: bool) -> Result<bool> {
    for entry in encrypted_entries(block, has_tail) {
        let entry = entry?;
        if entry.ino.get() != 0 && entry.name != b"." && entry.name != b".." {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Rewrites the block with these entries, packed; the last one extends to the end. If they do not
/// fit, the block stays unchanged.
///
/// # Errors
/// [`FormatError`] if the entries do not fit.
pub fn pack(block: &mut [u8], has_tail: bool, list: &[(InodeNo, u8, &[u8])]) -> Result<()> {
    let end = usable_len(block.len(), has_tail);
    let mut total = 0;
    for &(ino, _, name) in list {
        check_new(ino, name)?;
        total += entry_size(name.len());
    }
    if total > end {
        let problem = format_args!("{total} bytes of entries for {end} bytes of block");
        return Err(FormatError::new(STRUCTURE, "rec_len", problem));
    }
    init_block(block, has_tail);
    let mut offset = 0;
    for (at, &(ino, file_type, name)) in list.iter().enumerate() {
        let next = if at + 1 == list.len() { end } else { offset + entry_size(name.len()) };
        write_entry(&mut block[offset..next], ino, file_type, name);
        offset = next;
    }
    Ok(())
}

/// Returns the block up to its tail, and the tail.
fn split_tail(block: &[u8]) -> Result<(&[u8], &RawTail)> {
    RawTail::ref_from_suffix(block)
        .map_err(|_| FormatError::new("directory tail", "det_rec_len", "the block is too short"))
}

fn write_tail(block: &mut [u8]) {
    let at = block.len() - TAIL_SIZE;
    let tail = RawTail {
        det_reserved_zero1: U32::ZERO,
        det_rec_len: rec_len_to_disk(TAIL_SIZE),
        det_reserved_zero2: 0,
        det_reserved_ft: TAIL_TYPE,
        det_checksum: U32::ZERO,
    };
    block[at..].copy_from_slice(tail.as_bytes());
}

/// Verifies the tail of a block with its checksum; `seed` is that of the directory's inode.
///
/// # Errors
/// [`FormatError`] if the block has no tail, or the checksum is wrong.
pub fn verify_tail(seed: ChecksumSeed, block: &[u8]) -> Result<()> {
    let (content, tail) = split_tail(block)?;
    let fail = |field, found: u32| FormatError::new("directory tail", field, format_args!("is {found:#x}"));
    if tail.det_reserved_zero1.get() != 0 {
        return Err(fail("det_reserved_zero1", tail.det_reserved_zero1.get()));
    }
    if usize::from(tail.det_rec_len.get()) != TAIL_SIZE {
        return Err(fail("det_rec_len", tail.det_rec_len.get().into()));
    }
    if tail.det_reserved_zero2 != 0 {
        return Err(fail("det_reserved_zero2", tail.det_reserved_zero2.into()));
    }
    if tail.det_reserved_ft != TAIL_TYPE {
        return Err(fail("det_reserved_ft", tail.det_reserved_ft.into()));
    }
    let (stored, computed) = (tail.det_checksum.get(), seed.of(content));
    if stored != computed {
        return Err(FormatError::checksum("directory block", stored, computed));
    }
    Ok(())
}

/// Writes the tail of a block with its checksum; `seed` is that of the directory's inode.
pub fn seal_tail(seed: ChecksumSeed, block: &mut [u8]) {
    write_tail(block);
    let at = block.len() - TAIL_SIZE;
    let checksum = seed.of(&block[..at]);
    block[at + 8..].copy_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests;
