//! Extended attributes: in the attribute block (`i_file_acl`) and in the space after the inode's
//! fields.
//!
//! Source: kernel documentation, "ext4: Extended Attributes".

pub mod acl;
mod encode;
mod inline;
mod name;
mod value;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use encode::{encode_block, encode_ibody};
pub use inline::{inline_data, inline_room, inline_value, is_inline_data};
use name::SYSTEM;
pub use name::{ACL_ACCESS, ACL_DEFAULT, TRUSTED, USER, full_name, split_name};
pub use value::{Value, ValueInode};

use crate::{ChecksumSeed, FormatError, FsBlock, InodeNo, Result};

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// The number of the first part of the name: `user.`, `security.`, ...
    pub name_index: u8,
    /// The rest of the name.
    pub name: Vec<u8>,
    /// The value, or the inode that has it.
    pub value: Value,
}

impl Xattr {
    /// Returns the space of the entry and its value, in bytes.
    #[must_use]
    pub fn stored_len(&self) -> usize {
        entry_len(self.name.len()) + self.value.padded_len()
    }
}

/// `EXT4_XATTR_MAGIC`
const MAGIC: u32 = 0xea02_0000;
/// Offset of `h_refcount` in the block header.
const REFCOUNT: usize = 4;
/// Offset of `h_checksum` in the block header.
const CHECKSUM: usize = 16;
/// Bytes of `struct ext4_xattr_ibody_header`.
const IBODY_HEADER: usize = 4;
/// Bytes of the zeros that end the list of entries.
const LIST_END: usize = 4;
/// The space of a value is a multiple of this, in bytes.
const PAD: usize = 4;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    h_magic: U32,
    h_refcount: U32,
    h_blocks: U32,
    h_hash: U32,
    h_checksum: U32,
    h_reserved: [U32; 3],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    e_name_len: u8,
    e_name_index: u8,
    e_value_offs: U16,
    e_value_inum: U32,
    e_value_size: U32,
    e_hash: U32,
}

/// Parses the attribute block with number `block`. With a seed (the volume's), verifies its
/// checksum.
///
/// # Errors
/// Names the field that is wrong, and the block.
pub fn parse_block(bytes: &[u8], block: FsBlock, seed: Option<ChecksumSeed>) -> Result<Vec<Xattr>> {
    parse_entries_of_block(bytes, block, seed).map_err(|error| error.in_block(block))
}

fn parse_entries_of_block(bytes: &[u8], block: FsBlock, seed: Option<ChecksumSeed>) -> Result<Vec<Xattr>> {
    const STRUCTURE: &str = "xattr block";
    let Ok((header, _)) = RawHeader::ref_from_prefix(bytes) else {
        return Err(FormatError::new(STRUCTURE, "h_magic", "the block is too short"));
    };
    if header.h_magic.get() != MAGIC {
        return Err(FormatError::new(STRUCTURE, "h_magic", format_args!("is {:#x}", header.h_magic.get())));
    }
    if header.h_blocks.get() != 1 {
        return Err(FormatError::new(STRUCTURE, "h_blocks", format_args!("is {}", header.h_blocks.get())));
    }
    if header.h_refcount.get() == 0 {
        return Err(FormatError::new(STRUCTURE, "h_refcount", "is 0"));
    }
    if let Some(seed) = seed {
        let (stored, computed) = (header.h_checksum.get(), checksum(seed, block, bytes));
        if stored != computed {
            return Err(FormatError::checksum(STRUCTURE, stored, computed));
        }
    }
    parse_entries(STRUCTURE, bytes, size_of::<RawHeader>(), 0)
}

/// Returns true if `area`, the space after an inode's fields, begins with the magic of attributes.
#[must_use]
pub(crate) fn is_ibody(area: &[u8]) -> bool {
    area.get(..IBODY_HEADER) == Some(&MAGIC.to_le_bytes()[..])
}

/// Parses the attributes after an inode's fields. `area` is the rest of the inode after
/// `i_extra_isize`. An area without the magic has no attributes.
///
/// # Errors
/// [`FormatError`] for an entry that is not valid.
pub fn parse_ibody(area: &[u8]) -> Result<Vec<Xattr>> {
    if !is_ibody(area) {
        return Ok(Vec::new());
    }
    parse_entries("xattr in inode", area, IBODY_HEADER, IBODY_HEADER)
}

/// Parses the entries from offset `start`; `e_value_offs` counts from `base`. Values that need more
/// bytes together than the list leaves overlap, which is an error. So the result is no larger than
/// `bytes`, and can be encoded again.
fn parse_entries(structure: &'static str, bytes: &[u8], start: usize, base: usize) -> Result<Vec<Xattr>> {
    let end = find_end(structure, bytes, start)?;
    let mut list = Vec::new();
    let mut offset = start;
    let mut room = bytes.len() - end - LIST_END;
    while offset < end {
        let (entry, name) = raw_entry(structure, bytes, offset)?;
        offset += entry_len(name.len());
        if name.contains(&0) {
            return Err(FormatError::new(structure, "e_name", "contains NUL"));
        }
        let value = match entry.e_value_inum.get() {
            0 => {
                let value = value_of(structure, bytes, entry, base, end)?;
                room = room
                    .checked_sub(value.len().next_multiple_of(PAD))
                    .ok_or_else(|| FormatError::new(structure, "e_value_size", "the values overlap"))?;
                Value::Bytes(value.to_vec())
            }
            ino => Value::Inode(ValueInode {
                ino: InodeNo(ino),
                size: entry.e_value_size.get(),
                entry_hash: entry.e_hash.get(),
            }),
        };
        list.push(Xattr { name_index: entry.e_name_index, name: name.to_vec(), value });
    }
    Ok(list)
}

/// Returns the offset of the zeros that end the list of entries. All values are after them.
fn find_end(structure: &'static str, bytes: &[u8], start: usize) -> Result<usize> {
    let mut offset = start;
    loop {
        match bytes.get(offset..offset + LIST_END) {
            Some([0, 0, 0, 0]) => return Ok(offset),
            Some(_) => offset += entry_len(raw_entry(structure, bytes, offset)?.1.len()),
            None => return Err(FormatError::new(structure, "e_name_len", "the list has no end")),
        }
    }
}

/// Returns the number of bytes of an entry with a name of `name_len` bytes.
fn entry_len(name_len: usize) -> usize {
    (size_of::<RawEntry>() + name_len).next_multiple_of(4)
}

fn raw_entry<'a>(
    structure: &'static str,
    bytes: &'a [u8],
    offset: usize,
) -> Result<(&'a RawEntry, &'a [u8])> {
    bytes
        .get(offset..)
        .and_then(|rest| RawEntry::ref_from_prefix(rest).ok())
        .and_then(|(entry, names)| Some((entry, names.get(..entry.e_name_len.into())?)))
        .ok_or_else(|| {
            FormatError::new(
                structure,
                "e_name_len",
                format_args!("the entry at byte {offset} passes the end"),
            )
        })
}

fn value_of<'a>(
    structure: &'static str,
    bytes: &'a [u8],
    entry: &RawEntry,
    base: usize,
    end: usize,
) -> Result<&'a [u8]> {
    let too_big = |_| FormatError::new(structure, "e_value_size", "passes the end");
    let size = usize::try_from(entry.e_value_size.get()).map_err(too_big)?;
    if size == 0 {
        return Ok(&[]);
    }
    let at = base + usize::from(entry.e_value_offs.get());
    // All values are after the list.
    if at < end + LIST_END {
        return Err(FormatError::new(structure, "e_value_offs", format_args!("{at} is inside the list")));
    }
    at.checked_add(size).and_then(|after| bytes.get(at..after)).ok_or_else(|| {
        FormatError::new(structure, "e_value_size", format_args!("{size} bytes at {at} pass the end"))
    })
}

/// Returns the number of inodes that share the attribute block (`h_refcount`); 0 if `bytes` is too
/// short.
#[must_use]
pub fn refcount(bytes: &[u8]) -> u32 {
    RawHeader::ref_from_prefix(bytes).map_or(0, |(header, _)| header.h_refcount.get())
}

/// Sets `h_refcount` of an attribute block. The caller then calls [`seal_block`].
pub fn set_refcount(bytes: &mut [u8], count: u32) {
    bytes[REFCOUNT..REFCOUNT + 4].copy_from_slice(&count.to_le_bytes());
}

/// Computes the checksum of the block's number and its bytes, with zeros for the checksum itself.
fn checksum(seed: ChecksumSeed, block: FsBlock, bytes: &[u8]) -> u32 {
    let seed = seed.then(&block.get().to_le_bytes());
    seed.then(&bytes[..CHECKSUM]).then(&[0; 4]).of(&bytes[CHECKSUM + 4..])
}

/// Writes the checksum of an attribute block; `seed` is the volume's.
pub fn seal_block(seed: ChecksumSeed, block: FsBlock, bytes: &mut [u8]) {
    let computed = checksum(seed, block, bytes);
    bytes[CHECKSUM..CHECKSUM + 4].copy_from_slice(&computed.to_le_bytes());
}

#[cfg(test)]
mod tests;
