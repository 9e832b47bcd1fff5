//! Extended attributes: entries, the places of their values, and their hashes.
//!
//! Reads the raw entries, because the parser of the format returns no places and no hashes.

use parext4_format::FormatError;
use parext4_format::inode::{Inode, InodeFlags};

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

/// `EXT4_XATTR_INDEX_ENCRYPTION`, for encryption policies.
const ENCRYPTION: u8 = 9;

/// The contents of one place that concern other structures.
#[derive(Default, Debug)]
pub(crate) struct Attributes<'a> {
    /// The entries whose values are in inodes.
    pub in_inodes: Vec<Entry<'a>>,
    /// The rest of the contents of a small file or directory.
    pub inline_data: Option<&'a [u8]>,
    pub policy: Policy,
}

/// The state of an inode's encryption policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    #[default]
    None,
    /// A policy of a form that no kernel has written.
    Corrupt,
    /// A policy, or attributes that cannot be read.
    Some,
}

impl Policy {
    /// Combines the policies of two places.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == Self::None { other } else { self }
    }

    /// Returns the policy with this value. Versions other than 1 and 2 are accepted, because a
    /// later Linux may have them.
    fn of(value: &[u8]) -> Self {
        let is_possible = match value {
            [] | [0, ..] => false,
            [1, ..] => value.len() == 28,
            [2, ..] => value.len() == 40,
            _ => true,
        };
        if is_possible { Self::Some } else { Self::Corrupt }
    }
}

type Checked<'a> = Result<Attributes<'a>, (FormatError, Problem)>;

/// Checks the space after an inode's fields.
pub(crate) fn in_inode<'a>(area: &'a [u8], inode: &Inode) -> Checked<'a> {
    if area.get(..INODE_HEADER) != Some(&MAGIC) {
        return Ok(Attributes::default());
    }
    check(&XattrArea {
        structure: "xattr in inode",
        bytes: area,
        start: INODE_HEADER,
        base: INODE_HEADER,
        is_block: false,
        places_empty: inode.flags.intersects(InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT),
        is_deleted: inode.links == 0,
    })
}

/// Checks the entries of an attribute block.
pub(crate) fn in_block<'a>(bytes: &'a [u8], inode: &Inode) -> Checked<'a> {
    check(&XattrArea {
        structure: "xattr block",
        bytes,
        start: BLOCK_HEADER,
        base: 0,
        is_block: true,
        places_empty: true,
        is_deleted: inode.links == 0,
    })
}

struct XattrArea<'a> {
    structure: &'static str,
    bytes: &'a [u8],
    /// The offset of the first entry.
    start: usize,
    /// The offset that offsets of values are relative to.
    base: usize,
    /// True for an attribute block, whose entries have a hash other than 0, and a name with a
    /// prefix.
    is_block: bool,
    /// True if an empty value must have an offset within the bytes, too. In other inodes, the
    /// kernel does not move such offsets with the list.
    places_empty: bool,
    /// True for a deleted orphan, whose entries keep the hashes of values that its deletion
    /// removed.
    is_deleted: bool,
}

fn check<'a>(place: &XattrArea<'a>) -> Checked<'a> {
    let (entries, end) = place.entries()?;
    // Checks this before it hashes a value: values that overlap may be as long as the block each.
    place.check_values(&entries, end)?;
    let mut found = Attributes::default();
    for entry in entries {
        if entry.index == ENCRYPTION && entry.name == b"c" {
            found.policy = if entry.value_inode == 0 { Policy::of(entry.value) } else { Policy::Some };
        }
        if entry.value_inode != 0 {
            found.in_inodes.push(entry);
            continue;
        }
        let has_value = !entry.value.is_empty();
        let needs_hash =
            if has_value { place.is_block || entry.hash != 0 } else { place.is_block && !place.is_deleted };
        if needs_hash && !entry.has_hash_of(entry.value) {
            return place.fail("e_hash", format!("{:#x}", entry.hash), PR_1_ATTR_HASH);
        }
        if entry.index == SYSTEM && entry.name == b"data" {
            found.inline_data = Some(entry.value);
        }
    }
    Ok(found)
}

impl<'a> XattrArea<'a> {
    fn fail<T>(
        &self,
        field: &'static str,
        problem: String,
        e2fsck: Problem,
    ) -> Result<T, (FormatError, Problem)> {
        Err((FormatError::new(self.structure, field, problem), e2fsck))
    }

    /// Returns the entries, and the offset of the zeros that end their list.
    fn entries(&self) -> Result<(Vec<Entry<'a>>, usize), (FormatError, Problem)> {
        let (mut entries, mut at) = (Vec::new(), self.start);
        loop {
            match self.bytes.get(at..at + 4) {
                Some([0, 0, 0, 0]) => return Ok((entries, at)),
                Some(_) => {}
                None => return self.fail("e_name_len", "the list has no end".to_owned(), PR_1_EA_BAD_NAME),
            }
            let Some(mut entry) = Entry::read(self, at) else {
                let problem = format!("the entry at byte {at} passes the end");
                return self.fail("e_name_len", problem, PR_1_EA_BAD_NAME);
            };
            if self.is_block && entry.index == 0 {
                let problem = format!("0 in the entry at byte {at}");
                return self.fail("e_name_index", problem, PR_1_EA_BAD_NAME);
            }
            at += (ENTRY + entry.name.len()).next_multiple_of(4);
            if entry.size > 0 || (self.places_empty && entry.value_inode == 0) {
                let end = entry.start.checked_add(entry.size);
                let Some(value) = end.and_then(|end| self.bytes.get(entry.start..end)) else {
                    let problem = format!("{} bytes at {} pass the end", entry.size, entry.start);
                    return self.fail("e_value_size", problem, PR_1_EA_BAD_VALUE);
                };
                entry.value = value;
            }
            entries.push(entry);
        }
    }

    /// Checks that the values are after the list, which ends at `end`, and that no two of them
    /// overlap. The space of a value is a multiple of four bytes.
    fn check_values(&self, entries: &[Entry<'_>], end: usize) -> Result<(), (FormatError, Problem)> {
        let values = entries.iter().filter(|entry| entry.size > 0);
        let mut values: Vec<_> =
            values.map(|entry| (entry.start, entry.start + entry.size.next_multiple_of(4))).collect();
        values.sort_unstable();
        if values.first().is_some_and(|value| value.0 < end + 4) {
            let problem = "a value begins inside the list".to_owned();
            return self.fail("e_value_offs", problem, PR_1_ATTR_VALUE_OFFSET);
        }
        let passes_end = values.last().is_some_and(|value| value.1 > self.bytes.len());
        if passes_end || values.windows(2).any(|pair| pair[1].0 < pair[0].1) {
            return self.fail("e_value_offs", "two values overlap".to_owned(), PR_1_EA_ALLOC_COLLISION);
        }
        Ok(())
    }
}

/// An entry of a list of attributes.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    index: u8,
    name: &'a [u8],
    /// The inode that holds the value, or 0.
    pub value_inode: u32,
    pub value_size: u32,
    pub hash: u32,
    /// Offset and length of the value; 0 if an inode holds it.
    start: usize,
    size: usize,
    /// The value, once its place was checked.
    value: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Reads the entry at `at`, without its value.
    fn read(place: &XattrArea<'a>, at: usize) -> Option<Self> {
        let head: &[u8; ENTRY] = place.bytes.get(at..)?.first_chunk()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (value_inode, value_size) = (word(4), word(8));
        Some(Self {
            index: head[1],
            name: place.bytes.get(at + ENTRY..at + ENTRY + usize::from(head[0]))?,
            value_inode,
            value_size,
            hash: word(12),
            start: place.base + usize::from(u16::from_le_bytes([head[2], head[3]])),
            size: if value_inode == 0 { value_size as usize } else { 0 },
            value: &[],
        })
    }

    /// Returns true if the stored hash is that of the name and `value`. Kernels before 6.2 hashed
    /// names as signed characters.
    pub(crate) fn has_hash_of(&self, value: &[u8]) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(values: &[(u16, u32)]) -> Option<Problem> {
        let mut block = vec![0; 1024];
        block[..4].copy_from_slice(&MAGIC);
        for (entry, (offset, size)) in block[BLOCK_HEADER..].chunks_mut(ENTRY + 4).zip(values) {
            entry[..2].copy_from_slice(&[1, 1]);
            entry[2..4].copy_from_slice(&offset.to_le_bytes());
            entry[8..12].copy_from_slice(&size.to_le_bytes());
            entry[ENTRY] = b'a';
        }
        check(&XattrArea {
            structure: "xattr block",
            bytes: &block,
            start: BLOCK_HEADER,
            base: 0,
            is_block: true,
            places_empty: true,
            is_deleted: false,
        })
        .err()
        .map(|(_, problem)| problem)
    }

    /// Many values that overlap are many times the bytes of the block.
    #[test]
    fn values_that_overlap_are_found_before_any_value_is_hashed() {
        assert_eq!(problem(&[(1000, 8), (992, 8)]), Some(PR_1_ATTR_HASH));
        for values in
            [[(1000, 8), (1004, 8)], [(1000, 8), (1000, 8)], [(1000, 8), (994, 5)], [(800, 8), (1021, 3)]]
        {
            assert_eq!(problem(&values), Some(PR_1_EA_ALLOC_COLLISION), "{values:?}");
        }
    }
}
