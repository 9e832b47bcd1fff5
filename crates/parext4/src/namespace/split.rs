//! The entries of a leaf, sorted by hash and packed into one block or two.

use parext4_format::{InodeNo, dir_entry};

use super::dir::Dir;
use super::names::NameHash;
use crate::error::Result;

/// An entry of a leaf, with the hash of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub hash: u32,
    /// 0 for the entry that is being inserted.
    pub ino: InodeNo,
    pub file_type: u8,
    pub name: Vec<u8>,
}

impl Named {
    /// Returns the bytes that the entry needs.
    fn size(&self) -> usize {
        dir_entry::entry_size(self.name.len())
    }
}

/// The entries of two leaves that one leaf is split into.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Halves {
    pub low: Vec<Named>,
    pub high: Vec<Named>,
    /// The hash at which the second leaf starts, with bit 0 set if names of that hash are also in
    /// the first leaf.
    pub hash: u32,
}

/// Returns the entries in use of a linear block, without `.` and `..`.
pub(super) fn collect(dir: &Dir<'_>, bytes: &[u8], hash: &NameHash) -> Result<Vec<Named>> {
    let mut list = Vec::new();
    for entry in dir_entry::entries(bytes, dir.has_tail()) {
        let entry = dir.checked(entry)?;
        if entry.ino.get() != 0 && entry.name != b"." && entry.name != b".." {
            let (ino, file_type, name) = (entry.ino, entry.file_type, entry.name.to_vec());
            list.push(Named { hash: hash.hash(entry.name).0, ino, file_type, name });
        }
    }
    Ok(list)
}

/// Returns the bytes that the entries need in total.
pub(super) fn total_size(list: &[Named]) -> usize {
    list.iter().map(Named::size).sum()
}

/// Halves a list of at least two entries by bytes, at a median hash (`do_split`).
///
/// Each half has at most half of the bytes plus half of one entry. So if one entry more than a
/// block holds is halved, both halves fit a block, because the longest entry is about a quarter of
/// a block.
pub(super) fn halve(mut list: Vec<Named>) -> Halves {
    debug_assert!(list.len() >= 2, "one entry cannot be split");
    list.sort_by_key(|entry| entry.hash);
    let half = total_size(&list) / 2;
    let mut low = 0;
    let within = |entry: &Named| {
        let fits = low + entry.size() / 2 <= half;
        low += entry.size();
        fits
    };
    let at = list.iter().map(within).take_while(|&fits| fits).count().clamp(1, list.len() - 1);
    let high = list.split_off(at);
    let hash = high.first().map_or(0, |entry| entry.hash);
    let continued = list.last().is_some_and(|entry| entry.hash == hash);
    Halves { low: list, high, hash: hash | u32::from(continued) }
}

/// Writes a leaf with exactly these entries. The entry without an inode gets `ino`.
pub(super) fn pack(
    bytes: &mut [u8],
    has_tail: bool,
    list: &[Named],
    ino: InodeNo,
    file_type: u8,
) -> parext4_format::Result<()> {
    let entry = |named: &Named| match named.ino.get() {
        0 => (ino, file_type),
        _ => (named.ino, named.file_type),
    };
    let list: Vec<_> = list.iter().map(|named| (entry(named).0, entry(named).1, &named.name[..])).collect();
    dir_entry::pack(bytes, has_tail, &list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(hash: u32, len: usize) -> Named {
        Named { hash, ino: InodeNo(12), file_type: 1, name: vec![b'x'; len] }
    }

    #[test]
    fn halves_by_bytes_in_order_of_hash() {
        let list = (0..16).rev().map(|hash| named(hash * 2, 4)).collect();
        let halves = halve(list);
        assert_eq!((halves.low.len(), halves.high.len(), halves.hash), (8, 8, 16));
        assert!(halves.low.iter().all(|entry| entry.hash < 16));
    }

    #[test]
    fn equal_hashes_continue() {
        let halves = halve((0..10).map(|_| named(8, 100)).collect());
        assert_eq!((halves.low.len(), halves.high.len(), halves.hash), (5, 5, 9));
    }

    #[test]
    fn both_halves_fit_the_smallest_block() {
        let usable = dir_entry::usable_len(1024, true);
        for long in [1, 37, 120, 200, 255] {
            for short in [1, 20, 90, 255] {
                let mut list = Vec::new();
                while total_size(&list) <= usable {
                    let len = if list.len() % 2 == 0 { long } else { short };
                    list.push(named(u32::try_from(list.len()).unwrap() * 2, len));
                }
                let halves = halve(list);
                assert!(total_size(&halves.low) <= usable && total_size(&halves.high) <= usable);
                assert!(!halves.low.is_empty() && !halves.high.is_empty());
            }
        }
    }
}
