//! The chain of entries in a block, walked without a look at names but where they are asked for: a directory block has
//! hundreds of entries, and each operation on a name goes over them.

use zerocopy::FromBytes;

use super::{HEADER, MIN_ENTRY, RawHeader, STRUCTURE, entry_size, rec_len_from_disk, usable_len};
use crate::{FormatError, InodeNo, Result};

/// The fixed part of an entry that fits its block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub rec_len: usize,
    pub ino: InodeNo,
    pub file_type: u8,
    pub name_len: usize,
}

impl Header {
    /// Bytes at the front of the entry that are in use; the rest is room for another one.
    pub fn used(&self) -> usize {
        if self.ino.get() == 0 { 0 } else { entry_size(self.name_len) }
    }

    /// Bytes that a new entry could take here.
    pub fn slack(&self) -> usize {
        // Not below zero: `rec_len` was checked against the name.
        self.rec_len - self.used()
    }
}

/// Where an entry is in its block, and which one is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Bytes from the start of the block.
    pub offset: usize,
    /// That of the entry before it, if it is not the first.
    pub before: Option<usize>,
}

/// The entry at `offset` of a block that entries tile up to `end`. The checks are those of `ext4_check_dir_entry`.
#[inline]
pub(super) fn header_at(block: &[u8], offset: usize, end: usize) -> Result<Header> {
    fitting(block, offset, end).ok_or_else(|| misfit(block, offset, end))
}

#[inline]
fn fitting(block: &[u8], offset: usize, end: usize) -> Option<Header> {
    let bytes = block.get(offset..end)?;
    let (raw, _) = RawHeader::ref_from_prefix(bytes).ok()?;
    let rec_len = rec_len_from_disk(raw.rec_len.get(), block.len());
    let name_len = usize::from(raw.name_len);
    let rest = bytes.len().checked_sub(rec_len)?;
    let fits = rec_len >= MIN_ENTRY
        && rec_len.is_multiple_of(4)
        && rec_len >= entry_size(name_len)
        && (rest == 0 || rest >= MIN_ENTRY);
    let ino = InodeNo(raw.inode.get());
    fits.then_some(Header { rec_len, ino, file_type: raw.file_type, name_len })
}

/// What is wrong with an entry that does not fit.
#[cold]
fn misfit(block: &[u8], offset: usize, end: usize) -> FormatError {
    let fail =
        |field, what: &str| FormatError::new(STRUCTURE, field, format_args!("{what} at byte {offset}"));
    let Some(bytes) = block.get(offset..end) else { return fail("rec_len", "out of the block") };
    let Ok((raw, _)) = RawHeader::ref_from_prefix(bytes) else {
        return fail("rec_len", "no room for an entry");
    };
    let rec_len = rec_len_from_disk(raw.rec_len.get(), block.len());
    if rec_len < MIN_ENTRY {
        return fail("rec_len", "smaller than the smallest entry");
    }
    if !rec_len.is_multiple_of(4) {
        return fail("rec_len", "not a multiple of 4");
    }
    if rec_len < entry_size(raw.name_len.into()) {
        return fail("name_len", "too long for rec_len");
    }
    if rec_len > bytes.len() {
        return fail("rec_len", "crosses the end of the block");
    }
    fail("rec_len", "too close to the end of the block")
}

/// The name of an entry that fits.
pub(super) fn name_of<'a>(block: &'a [u8], offset: usize, header: &Header) -> &'a [u8] {
    block.get(offset + HEADER..offset + HEADER + header.name_len).unwrap_or_default()
}

/// The entry `name`, if the block has it.
pub(super) fn locate(block: &[u8], has_tail: bool, name: &[u8]) -> Result<Option<(Place, Header)>> {
    let end = usable_len(block.len(), has_tail);
    let (mut offset, mut before) = (0, None);
    while offset < end {
        let header = header_at(block, offset, end)?;
        if is_named(block, offset, &header, name) {
            return Ok(Some((Place { offset, before }, header)));
        }
        before = Some(offset);
        offset += header.rec_len;
    }
    Ok(None)
}

#[inline]
fn is_named(block: &[u8], offset: usize, header: &Header, name: &[u8]) -> bool {
    if header.name_len != name.len() || header.ino.get() == 0 {
        return false;
    }
    let own = name_of(block, offset, header);
    // Names of a directory often begin alike.
    own.last() == name.last() && own == name
}

/// Whether the entry `name` is at `place`.
pub(super) fn is_at(block: &[u8], has_tail: bool, place: Place, name: &[u8]) -> bool {
    let end = usable_len(block.len(), has_tail);
    let follows = match place.before {
        None => place.offset == 0,
        Some(before) => {
            fitting(block, before, end).is_some_and(|header| before + header.rec_len == place.offset)
        }
    };
    follows
        && fitting(block, place.offset, end)
            .is_some_and(|header| is_named(block, place.offset, &header, name))
}

/// The first entry with room for another one whose name has `name_len` bytes: its offset.
pub fn find_room(block: &[u8], has_tail: bool, name_len: usize) -> Result<Option<usize>> {
    let (end, need) = (usable_len(block.len(), has_tail), entry_size(name_len));
    let mut offset = 0;
    while offset < end {
        let header = header_at(block, offset, end)?;
        if header.slack() >= need {
            return Ok(Some(offset));
        }
        offset += header.rec_len;
    }
    Ok(None)
}
