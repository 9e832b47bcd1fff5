//! Walks the chain of entries in a block. It reads a name only to compare it, because each
//! operation on a name walks a block of hundreds of entries.

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
    /// Returns the number of bytes at the start of the entry that are in use. The rest is slack.
    pub fn used(&self) -> usize {
        if self.ino.get() == 0 { 0 } else { entry_size(self.name_len) }
    }

    /// Returns the number of bytes that a new entry could use.
    pub fn slack(&self) -> usize {
        // This does not overflow, because `rec_len` was checked against the name.
        self.rec_len - self.used()
    }
}

/// The position of an entry in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPosition {
    /// Offset of the entry in the block, in bytes.
    pub offset: usize,
    /// Offset of the previous entry; `None` if the entry is the first.
    pub previous: Option<usize>,
}

/// Returns the header of the entry at `offset`, in a block with entries up to `end`. Checks it as
/// `ext4_check_dir_entry` does.
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

/// Returns the error of an entry that does not fit.
#[cold]
fn misfit(block: &[u8], offset: usize, end: usize) -> FormatError {
    let fail = |field, what: &str| {
        FormatError::new(STRUCTURE, field, format_args!("{what}, at byte {offset} of the block"))
    };
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

/// Returns the name of an entry whose header was checked.
pub(super) fn name_of<'a>(block: &'a [u8], offset: usize, header: &Header) -> &'a [u8] {
    block.get(offset + HEADER..offset + HEADER + header.name_len).unwrap_or_default()
}

/// Returns the position and header of the entry `name`, or `None` if the block has none.
pub(super) fn locate(block: &[u8], has_tail: bool, name: &[u8]) -> Result<Option<(EntryPosition, Header)>> {
    locate_where(block, has_tail, |offset, header| is_named(block, offset, header, name))
}

/// Returns the position and header of the first entry that `matches`, which gets the entry's offset
/// and header.
#[inline]
pub(super) fn locate_where(
    block: &[u8],
    has_tail: bool,
    matches: impl Fn(usize, &Header) -> bool,
) -> Result<Option<(EntryPosition, Header)>> {
    let end = usable_len(block.len(), has_tail);
    let (mut offset, mut previous) = (0, None);
    while offset < end {
        let header = header_at(block, offset, end)?;
        if matches(offset, &header) {
            return Ok(Some((EntryPosition { offset, previous }, header)));
        }
        previous = Some(offset);
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
    // Names in one directory often differ only at the end.
    own.last() == name.last() && own == name
}

/// Returns true if the entry `name` is at `position`.
pub(super) fn is_at(block: &[u8], has_tail: bool, position: EntryPosition, name: &[u8]) -> bool {
    let end = usable_len(block.len(), has_tail);
    let follows = match position.previous {
        None => position.offset == 0,
        Some(previous) => {
            fitting(block, previous, end).is_some_and(|header| previous + header.rec_len == position.offset)
        }
    };
    follows
        && fitting(block, position.offset, end)
            .is_some_and(|header| is_named(block, position.offset, &header, name))
}

/// Returns the offset of the first entry whose slack fits an entry with a name of `name_len` bytes.
/// The slack of `.` stays, because `..` comes next.
///
/// # Errors
/// [`FormatError`] for an entry that is not valid.
pub fn find_room(block: &[u8], has_tail: bool, name_len: usize) -> Result<Option<usize>> {
    let (end, need) = (usable_len(block.len(), has_tail), entry_size(name_len));
    let mut offset = 0;
    while offset < end {
        let header = header_at(block, offset, end)?;
        if header.slack() >= need && !is_named(block, offset, &header, b".") {
            return Ok(Some(offset));
        }
        offset += header.rec_len;
    }
    Ok(None)
}
