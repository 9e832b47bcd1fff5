//! Block and inode bitmaps: bit operations a word at a time, and their checksums.
//!
//! A set bit is in use. Bit 0 is the lowest bit of the first byte. Ranges are `(start, len)` in
//! bits. Source: kernel documentation, "Block and Inode Bitmaps" and "Checksums".

use crate::checksum::ChecksumSeed;
use crate::convert::index;
use crate::error::{FormatError, Result};
use crate::group_desc::{GroupDesc, GroupFlags};
use crate::superblock::Superblock;

/// Returns the checksum of a block bitmap: over one bit for each block (cluster) of a group.
#[must_use]
pub fn block_bitmap_checksum(seed: ChecksumSeed, bytes: &[u8], sb: &Superblock) -> u32 {
    checksum(seed, bytes, sb.clusters_per_group())
}

/// Returns the checksum of an inode bitmap: over one bit for each inode of a group.
#[must_use]
pub fn inode_bitmap_checksum(seed: ChecksumSeed, bytes: &[u8], sb: &Superblock) -> u32 {
    checksum(seed, bytes, sb.inodes_per_group())
}

fn checksum(seed: ChecksumSeed, bytes: &[u8], bits: u32) -> u32 {
    seed.of(bytes.get(..index(bits / 8)).unwrap_or(bytes))
}

/// Checks a block bitmap against the checksum in its descriptor. Without `metadata_csum` there is
/// none, and a bitmap that is flagged uninitialised has no contents to check.
///
/// # Errors
/// If the checksum does not match.
pub fn verify_block_bitmap(desc: &GroupDesc, bytes: &[u8], sb: &Superblock) -> Result<()> {
    match sb.checksum_seed() {
        Some(seed) if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) => {
            compare("block bitmap", desc.block_bitmap_csum, block_bitmap_checksum(seed, bytes, sb), sb)
        }
        _ => Ok(()),
    }
}

/// Checks an inode bitmap against the checksum in its descriptor, as [`verify_block_bitmap`] does.
///
/// # Errors
/// If the checksum does not match.
pub fn verify_inode_bitmap(desc: &GroupDesc, bytes: &[u8], sb: &Superblock) -> Result<()> {
    match sb.checksum_seed() {
        Some(seed) if !desc.flags.contains(GroupFlags::INODE_UNINIT) => {
            compare("inode bitmap", desc.inode_bitmap_csum, inode_bitmap_checksum(seed, bytes, sb), sb)
        }
        _ => Ok(()),
    }
}

/// Compares the bits of the checksum that the descriptor holds.
fn compare(structure: &'static str, stored: u32, computed: u32, sb: &Superblock) -> Result<()> {
    let mask = if sb.desc_size() >= 64 { u32::MAX } else { 0xffff };
    if stored & mask == computed & mask {
        return Ok(());
    }
    Err(FormatError::checksum(structure, stored & mask, computed & mask))
}

/// Returns true if `bit` is set.
///
/// # Panics
/// If `bit` is past the end of the bitmap.
#[must_use]
pub fn test(bytes: &[u8], bit: u32) -> bool {
    bytes[index(bit / 8)] & (1 << (bit % 8)) != 0
}

/// Sets `len` bits from `start`.
///
/// # Panics
/// If the range is not inside the bitmap.
pub fn set_range(bytes: &mut [u8], start: u32, len: u32) {
    for_bytes_of(bytes, start, len, |byte, mask| *byte |= mask);
}

/// Clears `len` bits from `start`.
///
/// # Panics
/// If the range is not inside the bitmap.
pub fn clear_range(bytes: &mut [u8], start: u32, len: u32) {
    for_bytes_of(bytes, start, len, |byte, mask| *byte &= !mask);
}

/// Calls `change` with each byte that the range touches and the mask of its bits in the range.
fn for_bytes_of(bytes: &mut [u8], start: u32, len: u32, change: impl Fn(&mut u8, u8)) {
    if len == 0 {
        return;
    }
    let last = start.checked_add(len - 1).expect("a bit range past the end of the bitmap");
    let (head, tail) = (0xff << (start % 8), 0xff >> (7 - last % 8));
    match &mut bytes[index(start / 8)..=index(last / 8)] {
        [] => {}
        [only] => change(only, head & tail),
        [first, middle @ .., end] => {
            change(first, head);
            middle.iter_mut().for_each(|byte| change(byte, 0xff));
            change(end, tail);
        }
    }
}

/// Returns true if the range lies inside the bitmap and all its bits are clear.
#[must_use]
pub fn is_clear(bytes: &[u8], start: u32, len: u32) -> bool {
    range_end(bytes, start, len).is_some_and(|end| next_set(bytes, start, end).is_none())
}

/// Returns true if the range lies inside the bitmap and all its bits are set.
#[must_use]
pub fn is_set(bytes: &[u8], start: u32, len: u32) -> bool {
    range_end(bytes, start, len).is_some_and(|end| next_zero(bytes, start, end).is_none())
}

fn range_end(bytes: &[u8], start: u32, len: u32) -> Option<u32> {
    start.checked_add(len).filter(|&end| end <= bit_len(bytes))
}

/// Returns the first clear bit in `from..limit`.
#[must_use]
pub fn next_zero(bytes: &[u8], from: u32, limit: u32) -> Option<u32> {
    next(bytes, from, limit, u64::MAX)
}

/// Returns the first set bit in `from..limit`.
#[must_use]
pub fn next_set(bytes: &[u8], from: u32, limit: u32) -> Option<u32> {
    next(bytes, from, limit, 0)
}

/// Returns the first bit in `from..limit` that is set after `invert` is applied to its word.
fn next(bytes: &[u8], from: u32, limit: u32, invert: u64) -> Option<u32> {
    let limit = limit.min(bit_len(bytes));
    if from >= limit {
        return None;
    }
    let mut index = from / 64;
    let mut mask = u64::MAX << (from % 64);
    loop {
        let found = (word(bytes, index) ^ invert) & mask;
        if found != 0 {
            return Some(index * 64 + found.trailing_zeros()).filter(|&bit| bit < limit);
        }
        index += 1;
        mask = u64::MAX;
        if index >= limit.div_ceil(64) {
            return None;
        }
    }
}

/// Returns the number of clear bits in `0..limit`.
#[must_use]
pub fn count_zeros(bytes: &[u8], limit: u32) -> u32 {
    let limit = limit.min(bit_len(bytes));
    let whole: u32 = (0..limit / 64).map(|index| word(bytes, index).count_zeros()).sum();
    let rest = u64::MAX.unbounded_shl(limit % 64);
    match limit % 64 {
        0 => whole,
        _ => whole + (word(bytes, limit / 64) | rest).count_zeros(),
    }
}

/// Returns the runs of clear bits in `from..limit`, in order, as `(start, len)`.
pub fn free_runs(bytes: &[u8], mut from: u32, limit: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
    let limit = limit.min(bit_len(bytes));
    std::iter::from_fn(move || {
        let start = next_zero(bytes, from, limit)?;
        let end = next_set(bytes, start, limit).unwrap_or(limit);
        from = end;
        Some((start, end - start))
    })
}

/// Returns word `nth` of the bitmap; bytes past its end read as zero.
fn word(bytes: &[u8], nth: u32) -> u64 {
    let rest = bytes.get(index(nth) * 8..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

/// Returns the number of bits in the bitmap, at most `u32::MAX - 63`, so that arithmetic on bit
/// numbers cannot overflow. A real bitmap is one block.
fn bit_len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).saturating_mul(8).min(u32::MAX - 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_touch_their_bits_only() {
        for start in 0..20 {
            for len in 0..=40 - start {
                let mut bytes = [0; 5];
                set_range(&mut bytes, start, len);
                assert!((0..40).all(|bit| test(&bytes, bit) == (start..start + len).contains(&bit)));
                assert!(is_set(&bytes, start, len));
                assert_eq!(is_clear(&bytes, 0, 40), len == 0);
                assert_eq!(count_zeros(&bytes, 40), 40 - len);
                clear_range(&mut bytes, start, len);
                assert_eq!(bytes, [0; 5]);
            }
        }
    }

    #[test]
    fn free_runs_are_maximal() {
        let mut bytes = [0xff; 25];
        clear_range(&mut bytes, 0, 1);
        clear_range(&mut bytes, 60, 80);
        clear_range(&mut bytes, 199, 1);
        assert_eq!(free_runs(&bytes, 0, 200).collect::<Vec<_>>(), [(0, 1), (60, 80), (199, 1)]);
        assert_eq!(free_runs(&bytes, 0, 100).collect::<Vec<_>>(), [(0, 1), (60, 40)]);
        assert_eq!(free_runs(&bytes, 70, 200).collect::<Vec<_>>(), [(70, 70), (199, 1)]);
        assert_eq!(free_runs(&bytes, 200, 100).count(), 0);
        assert_eq!(next_zero(&bytes, 1, 60), None);
        assert_eq!(next_set(&bytes, 60, 200), Some(140));
    }

    #[test]
    fn outside_is_neither_set_nor_clear() {
        assert!(!is_clear(&[0; 4], 30, 3));
        assert!(!is_set(&[0xff; 4], 30, 3));
        assert!(!is_clear(&[0; 4], u32::MAX, 2));
        assert_eq!(next_zero(&[0; 4], 32, u32::MAX), None);
        assert_eq!(count_zeros(&[0; 3], u32::MAX), 24);
    }
}
