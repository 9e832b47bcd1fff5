//! Recognises what a device holds by magic numbers, so that commands can refuse to overwrite it.
//!
//! Magic numbers suffice, and checksums are not verified: a false match only makes the user repeat the command with
//! `--force`.

mod table;

use std::fmt;
use std::io::{self, IoSliceMut};

use crate::aligned::AlignedBuf;
use crate::device::Device;
use table::SIGNATURES;

/// A signature on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    /// The kind of its owner, such as `an XFS file system`.
    what: &'static str,
    /// The offset of its bytes on the device.
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

/// Bytes at each end of a device that hold all signatures; a multiple of any sector size.
const ZONE: usize = 512 << 10;

/// Returns what a device holds, `None` if nothing is recognised.
pub fn find(device: &dyn Device) -> io::Result<Option<Contents>> {
    let ends = Ends::read(device)?;
    let mut found = Vec::new();
    for &(what, place, bytes) in SIGNATURES {
        let Some(offset) = place.offset(device.size()) else { continue };
        if ends.get(offset, bytes.len()) == Some(bytes) {
            found.push(Found { what, offset });
        }
    }
    found.extend(ends.zfs());
    // A GUID partition table has a protective MBR, and boot sectors of FAT and NTFS have its two bytes.
    if found.is_empty() {
        found.extend(ends.boot_sector());
    }
    let mut names = std::collections::HashSet::new();
    found.retain(|found| names.insert(found.what));
    Ok((!found.is_empty()).then_some(Contents(found)))
}

/// The first and last bytes of a device.
struct Ends {
    first: AlignedBuf,
    last: AlignedBuf,
    /// Where `last` begins on the device.
    last_offset: u64,
    size: u64,
}

impl Ends {
    fn read(device: &dyn Device) -> io::Result<Self> {
        let len = usize::try_from(device.size()).map_or(ZONE, |size| size.min(ZONE));
        let last_offset = device.size() - len as u64;
        let (mut first, mut last) = (AlignedBuf::zeroed(len), AlignedBuf::zeroed(len));
        if len > 0 {
            device.read_at(0, &mut [IoSliceMut::new(&mut first)])?;
            device.read_at(last_offset, &mut [IoSliceMut::new(&mut last)])?;
        }
        Ok(Self { first, last, last_offset, size: device.size() })
    }

    /// Returns `len` bytes from `offset`, if they lie in either end.
    fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let part = |bytes: &'_ AlignedBuf, from: u64| {
            let start = usize::try_from(offset.checked_sub(from)?).ok()?;
            (start.checked_add(len)? <= bytes.len()).then_some(start)
        };
        match part(&self.first, 0) {
            Some(start) => Some(&self.first[start..start + len]),
            None => part(&self.last, self.last_offset).map(|start| &self.last[start..start + len]),
        }
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
        // Of the 16 bytes of an entry the first is 0 or 0x80, and the fifth is the type, 0 if the entry is unused.
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
    use std::io::IoSlice;

    const SIZE: usize = 2 << 20;

    /// Returns the signatures of a device of [`SIZE`] bytes that has `bytes` at `offset` and is zero elsewhere.
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
