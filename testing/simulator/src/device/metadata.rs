//! Sectors of metadata, told apart from data by their contents.

use std::ops::Range;

use parext4::{Device, MemDevice};
use testkit::sector::is_stamped;
use testkit::volume::journal_offset;

/// Bytes of the journal of the volumes.
const JOURNAL: u64 = 1 << 20;
/// The bytes of the files of a tree have at most this number of values in one sector. Most sectors
/// of metadata have more.
const VALUES: usize = 8;

/// Returns the range of the journal on a device, in bytes.
pub fn journal(device: &MemDevice) -> Range<u64> {
    let start = journal_offset(device);
    start..(start + JOURNAL).min(device.size())
}

/// Returns true if a sector holds metadata, or false if it holds file data, is unused, or has too
/// few values to tell.
pub fn is_likely(sector: &[u8]) -> bool {
    let mut seen = [false; 256];
    sector.iter().for_each(|&byte| seen[usize::from(byte)] = true);
    seen.iter().filter(|&&seen| seen).count() > VALUES && !is_stamped(sector)
}

/// Changes a bit of a sector.
pub fn flip(sector: &mut [u8], bit: u64) {
    let bits = sector.len() as u64 * 8;
    let bit = usize::try_from(bit % bits).expect("a bit of a sector");
    sector[bit / 8] ^= 1 << (bit % 8);
}
