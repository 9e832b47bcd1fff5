//! Recognises what a device holds by magic numbers, so that commands can refuse to overwrite it.
//!
//! Magic numbers suffice, and checksums are not verified: a false match only makes the user repeat
//! the command with `--force`.

mod table;
mod zone;

use std::fmt;
use std::io;
use std::ops::Range;

use crate::device::Device;
use table::SIGNATURES;

pub use zone::{Unreadable, read_around};

/// A signature on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    /// The kind of contents, such as `an XFS file system`.
    what: &'static str,
    /// The offset of the signature on the device.
    offset: u64,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (signature at byte {})", self.what, self.offset)
    }
}

/// The signatures of a device, at least one, each kind once.
#[derive(Debug, PartialEq, Eq)]
pub struct Contents(Vec<Found>);

impl Contents {
    /// Returns true if the device holds an ext2, ext3 or ext4 file system.
    pub fn has_ext(&self) -> bool {
        self.0.iter().any(|found| found.what == table::EXT)
    }

    /// Returns the names of what was found, such as `an XFS file system`.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|found| found.what)
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, found) in self.0.iter().enumerate() {
            write!(f, "{}{found}", if index > 0 { " and " } else { "" })?;
        }
        Ok(())
    }
}

/// Returns what a device holds, `None` if nothing is recognised.
///
/// # Errors
/// A part that may hold a signature cannot be read. The error names its offset.
pub fn find(device: &dyn Device) -> io::Result<Option<Contents>> {
    let Scan { contents, unreadable } = scan(device, 0..device.size());
    unreadable.into_iter().next().map_or(Ok(contents), |part| Err(part.into()))
}

/// The contents of a range of a device, as far as it can be read.
#[derive(Debug)]
pub struct Scan {
    /// The signatures in the range; `None` if there are none.
    pub contents: Option<Contents>,
    /// The parts that may hold a signature and cannot be read, in ascending order.
    pub unreadable: Vec<Unreadable>,
}

/// Recognises what a range of a device holds, such as a partition, as if the range were a device.
/// Reads around parts that cannot be read.
pub fn scan(device: &dyn Device, range: Range<u64>) -> Scan {
    let (ends, unreadable) = Ends::read(device, range);
    let mut found = Vec::new();
    for &(what, place, bytes) in SIGNATURES {
        let Some(offset) = place.offset(ends.size) else { continue };
        if ends.get(offset, bytes.len()) == Some(bytes) {
            found.push(Found { what, offset });
        }
    }
    found.extend(ends.zfs());
    if found.iter().any(|found| found.what == table::E2IMAGE) {
        found.retain(|found| found.what != table::EXT);
    }
    if ends.is_qcow2_of_e2image() {
        found.retain(|found| found.what != table::QCOW2);
        found.push(Found { what: "a QCOW2 image of e2image", offset: 0 });
    }
    // A protective MBR accompanies a GUID partition table, and boot sectors of FAT and NTFS end
    // with the two bytes of an MBR.
    if found.is_empty() {
        found.extend(ends.boot_sector());
    }
    let mut names = std::collections::HashSet::new();
    found.retain(|found| names.insert(found.what));
    Scan { contents: (!found.is_empty()).then_some(Contents(found)), unreadable }
}

/// Bytes at each end of a range that hold all signatures.
const ZONE: u64 = 512 << 10;

/// The first and last bytes of a range of a device.
struct Ends {
    first: Vec<u8>,
    last: Vec<u8>,
    /// Offset of `last` in the range.
    last_offset: u64,
    size: u64,
}

impl Ends {
    fn read(device: &dyn Device, range: Range<u64>) -> (Self, Vec<Unreadable>) {
        let size = range.end.min(device.size()).saturating_sub(range.start);
        let len = size.min(ZONE);
        // The first bytes are all bytes of a small range.
        let last_offset = if size > ZONE { size - ZONE } else { size };
        let mut unreadable = Vec::new();
        let first = read_around(device, range.start, len, &mut unreadable);
        let last = read_around(device, range.start + last_offset, size - last_offset, &mut unreadable);
        unreadable.dedup_by(|later, earlier| later.offset <= earlier.offset);
        (Self { first, last, last_offset, size }, unreadable)
    }

    /// Returns `len` bytes from `offset`, if the first or the last bytes contain them.
    fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let part = |bytes: &'_ [u8], from: u64| {
            let start = usize::try_from(offset.checked_sub(from)?).ok()?;
            (start.checked_add(len)? <= bytes.len()).then_some(start)
        };
        match part(&self.first, 0) {
            Some(start) => Some(&self.first[start..start + len]),
            None => part(&self.last, self.last_offset).map(|start| &self.last[start..start + len]),
        }
    }

    /// Returns true for the QCOW2 format of e2image, which holds only metadata. Its first table is
    /// in the second cluster, where other programs store reference counts.
    fn is_qcow2_of_e2image(&self) -> bool {
        let word = |at: u64| {
            let bytes = self.get(at, 4).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
        };
        let has_magic = self.get(0, 8) == Some(b"QFI\xfb\0\0\0\x02");
        let cluster = 1_u32.checked_shl(word(20)).unwrap_or(0);
        has_magic && cluster != 0 && (word(40), word(44)) == (0, cluster)
    }

    /// Finds an uberblock of ZFS, which may lie in any of 128 places of each of its labels.
    fn zfs(&self) -> Option<Found> {
        const MAGIC: u64 = 0x00ba_b10c;
        const LABEL: u64 = 256 << 10;
        let labels = [Some(0), (self.size - self.size % LABEL).checked_sub(LABEL)];
        let places =
            labels.into_iter().flatten().flat_map(|label| (label + LABEL / 2..label + LABEL).step_by(1024));
        let is_magic = |bytes: &[u8]| bytes == MAGIC.to_le_bytes() || bytes == MAGIC.to_be_bytes();
        let offset = places.into_iter().find(|&offset| self.get(offset, 8).is_some_and(is_magic))?;
        Some(Found { what: "a ZFS pool member", offset })
    }

    /// Finds a master boot record, or a boot sector of any kind.
    fn boot_sector(&self) -> Option<Found> {
        const OFFSET: u64 = 510;
        const ENTRIES: u64 = 446;
        if self.get(OFFSET, 2)? != [0x55, 0xaa] {
            return None;
        }
        // An entry has 16 bytes. The first is 0 or 0x80, and the fifth is the type, 0 if the entry
        // is unused.
        let entries: Vec<&[u8]> = self.get(ENTRIES, 64)?.chunks_exact(16).collect();
        let is_table =
            entries.iter().all(|entry| entry[0] & 0x7f == 0) && entries.iter().any(|entry| entry[4] != 0);
        let what =
            if is_table { "an MBR partition table" } else { "a boot sector or an empty partition table" };
        Some(Found { what, offset: OFFSET })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;
    use std::io::IoSlice;

    const SIZE: usize = 2 << 20;

    /// Returns the signatures of a device of [`SIZE`] bytes that has `bytes` at `offset` and is
    /// zero elsewhere.
    fn found(offset: u64, bytes: &[u8]) -> Vec<Found> {
        let device = crate::MemDevice::new(SIZE as u64);
        let mut all = AlignedBuf::zeroed(SIZE);
        all[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        device.write_at(0, &[IoSlice::new(&all)]).unwrap();
        find(&device).unwrap().unwrap().0
    }

    #[test]
    fn each_signature_is_found_at_its_place() {
        for &(what, place, bytes) in SIGNATURES {
            let offset = place.offset(SIZE as u64).unwrap();
            assert_eq!(found(offset, bytes), [Found { what, offset }]);
        }
    }

    #[test]
    fn the_qcow2_format_of_e2image_is_told_apart() {
        for (first_table, name) in [(0x400_u64, "a QCOW2 image of e2image"), (0xc00, "a QCOW2 image")] {
            let mut header = [0; 72];
            header[..8].copy_from_slice(b"QFI\xfb\0\0\0\x02");
            header[23] = 10;
            header[40..48].copy_from_slice(&first_table.to_be_bytes());
            assert_eq!(found(0, &header), [Found { what: name, offset: 0 }]);
        }
    }

    #[test]
    fn a_range_is_read_like_a_device_of_its_own() {
        let device = crate::MemDevice::new(SIZE as u64);
        let mut all = AlignedBuf::zeroed(SIZE);
        all[512 + 0x438..][..2].copy_from_slice(&[0x53, 0xef]);
        device.write_at(0, &[IoSlice::new(&all)]).unwrap();
        let has_ext = |range| scan(&device, range).contents.is_some_and(|contents| contents.has_ext());
        assert!(has_ext(512..4096) && has_ext(512..u64::MAX));
        assert!(!has_ext(0..4096) && !has_ext(512..1024) && !has_ext(u64::MAX - 1..u64::MAX));
    }

    #[test]
    fn uberblocks_are_found_in_the_first_and_the_last_label() {
        for offset in [(128 << 10) + 5 * 1024, SIZE as u64 - 1024] {
            assert_eq!(found(offset, &0x00ba_b10c_u64.to_le_bytes())[0].offset, offset);
        }
    }

    #[test]
    fn a_boot_sector_with_entries_is_a_partition_table() {
        let mut sector = [0; 512];
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        assert!(found(0, &sector)[0].what.contains("boot sector"));
        sector[446 + 4] = 0x83;
        assert_eq!(found(0, &sector)[0].what, "an MBR partition table");
    }

    #[test]
    fn devices_without_a_signature_hold_nothing() {
        for size in [0, 512, 4096, 64 << 10, 2 << 20] {
            assert_eq!(find(&crate::MemDevice::new(size)).unwrap(), None);
        }
    }
}
