//! Extended attributes: entries, the places of their values, and their hashes.
//!
//! Reads the raw entries, because the parser of the format returns no places and no hashes.

use parext4_format::FormatError;

use crate::problem::{
    PR_1_ATTR_HASH, PR_1_ATTR_VALUE_OFFSET, PR_1_EA_ALLOC_COLLISION, PR_1_EA_BAD_NAME, PR_1_EA_BAD_VALUE,
    Problem,
};

/// `EXT4_XATTR_MAGIC`
const MAGIC: [u8; 4] = [0, 0, 2, 0xea];
/// Bytes of an entry before its name.
const ENTRY: usize = 16;
/// Bytes of the header of an attribute block.
const BLOCK_HEADER: usize = 32;
/// Bytes of the header in an inode.
const INODE_HEADER: usize = 4;
/// `EXT4_XATTR_INDEX_SYSTEM`, for the contents of small files.
const SYSTEM: u8 = 7;

/// References of the attributes of one place.
#[derive(Default, Debug)]
pub(crate) struct Attributes<'a> {
    /// Inodes that hold values.
    pub value_inodes: Vec<u32>,
    /// The number of values in inodes that another inode with the same attribute block refers to as well.
    pub values_elsewhere: usize,
    /// The rest of the contents of a small file or directory.
    pub inline_data: Option<&'a [u8]>,
}

type Checked<'a> = Result<Attributes<'a>, (FormatError, Problem)>;

/// Checks the space after an inode's fields.
pub(crate) fn in_inode(area: &[u8]) -> Checked<'_> {
    if area.get(..INODE_HEADER) != Some(&MAGIC) {
        return Ok(Attributes::default());
    }
    check(&Place {
        structure: "xattr in inode",
        bytes: area,
        start: INODE_HEADER,
        base: INODE_HEADER,
        needs_hash: false,
    })
}

/// Checks the entries of an attribute block.
pub(crate) fn in_block(bytes: &[u8]) -> Checked<'_> {
    check(&Place { structure: "xattr block", bytes, start: BLOCK_HEADER, base: 0, needs_hash: true })
}

struct Place<'a> {
    structure: &'static str,
    bytes: &'a [u8],
    /// The offset of the first entry.
    start: usize,
    /// The offset from which places of values count.
    base: usize,
    /// The hash 0 is wrong, too.
    needs_hash: bool,
}

fn check<'a>(place: &Place<'a>) -> Checked<'a> {
    let fail = |field, problem: String, kind| Err((FormatError::new(place.structure, field, problem), kind));
    let (mut found, mut values) = (Attributes::default(), Vec::new());
    let mut at = place.start;
    loop {
        match place.bytes.get(at..at + 4) {
            Some([0, 0, 0, 0]) => break,
            Some(_) => {}
            None => return fail("e_name_len", "the list has no end".to_owned(), PR_1_EA_BAD_NAME),
        }
        let Some(entry) = Entry::read(place.bytes, at) else {
            return fail("e_name_len", format!("the entry at byte {at} passes the end"), PR_1_EA_BAD_NAME);
        };
        at += (ENTRY + entry.name.len()).next_multiple_of(4);
        if entry.value_inode != 0 {
            found.value_inodes.push(entry.value_inode);
            continue;
        }
        let is_inline_data = entry.index == SYSTEM && entry.name == b"data";
        if entry.size == 0 {
            if is_inline_data {
                found.inline_data = Some(&[]);
            }
            if place.needs_hash && !entry.has_hash_of(&[]) {
                return fail("e_hash", format!("{:#x}", entry.hash), PR_1_ATTR_HASH);
            }
            continue;
        }
        let start = place.base + entry.offset;
        let Some(value) = start.checked_add(entry.size).and_then(|end| place.bytes.get(start..end)) else {
            let problem = format!("{} bytes at {start} pass the end", entry.size);
            return fail("e_value_size", problem, PR_1_EA_BAD_VALUE);
        };
        if (place.needs_hash || entry.hash != 0) && !entry.has_hash_of(value) {
            return fail("e_hash", format!("{:#x}", entry.hash), PR_1_ATTR_HASH);
        }
        if is_inline_data {
            found.inline_data = Some(value);
        }
        values.push((start, start + entry.size));
    }
    values.sort_unstable();
    if values.first().is_some_and(|value| value.0 < at + 4) {
        return fail("e_value_offs", "a value begins inside the list".to_owned(), PR_1_ATTR_VALUE_OFFSET);
    }
    if values.windows(2).any(|pair| pair[1].0 < pair[0].1) {
        return fail("e_value_offs", "two values overlap".to_owned(), PR_1_EA_ALLOC_COLLISION);
    }
    Ok(found)
}

struct Entry<'a> {
    index: u8,
    name: &'a [u8],
    offset: usize,
    value_inode: u32,
    size: usize,
    hash: u32,
}

impl<'a> Entry<'a> {
    fn read(bytes: &'a [u8], at: usize) -> Option<Self> {
        let head: &[u8; ENTRY] = bytes.get(at..)?.first_chunk()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let name = bytes.get(at + ENTRY..at + ENTRY + usize::from(head[0]))?;
        Some(Self {
            index: head[1],
            name,
            offset: u16::from_le_bytes([head[2], head[3]]).into(),
            value_inode: word(4),
            size: word(8) as usize,
            hash: word(12),
        })
    }

    /// Returns true if the hash is of the name and `value`. Kernels before 6.2 hashed names as signed characters.
    fn has_hash_of(&self, value: &[u8]) -> bool {
        let unsigned = |hash: u32, byte: &u8| hash.rotate_left(5) ^ u32::from(*byte);
        let signed =
            |hash: u32, byte: &u8| hash.rotate_left(5) ^ i32::from(byte.cast_signed()).cast_unsigned();
        let with_value = |name: u32| {
            value.chunks(4).fold(name, |hash, chunk| {
                let mut word = [0; 4];
                word[..chunk.len()].copy_from_slice(chunk);
                hash.rotate_left(16) ^ u32::from_le_bytes(word)
            })
        };
        with_value(self.name.iter().fold(0, unsigned)) == self.hash
            || with_value(self.name.iter().fold(0, signed)) == self.hash
    }
}
