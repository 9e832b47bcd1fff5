//! GUID partition tables. Source: UEFI specification, "GUID Partition Table (GPT) Disk Layout".

use std::io;

use parext4_device::Device;

use super::{Partition, invalid, read};

/// The possible sector sizes in bytes, in which the table counts.
const SECTORS: [u64; 2] = [512, 4096];
/// Bytes of the header.
const HEADER: usize = 92;
/// The largest number of bytes of all entries. A table usually has 16 KiB.
const MOST: u64 = 1 << 20;
/// Bytes of the fields of an entry.
const ENTRY: usize = 128;

/// Reads the table, or its backup at the end of the disk if the first one is damaged. `None` if the
/// disk has none.
pub fn read_table(disk: &dyn Device) -> io::Result<Option<Vec<Partition>>> {
    let mut damage = None;
    for sector in SECTORS {
        let last = (disk.size() / sector).saturating_sub(1);
        for block in [1, last] {
            match at(disk, sector, block) {
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => damage = Some(error),
                found => return found,
            }
        }
    }
    damage.map_or(Ok(None), Err)
}

/// Reads the table whose header is block `block`.
fn at(disk: &dyn Device, sector: u64, block: u64) -> io::Result<Option<Vec<Partition>>> {
    let Some(header) = read(disk, block * sector, HEADER)? else { return Ok(None) };
    if !header.starts_with(b"EFI PART") {
        return Ok(None);
    }
    let half = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let word = |at: usize| u64::from(half(at + 4)) << 32 | u64::from(half(at));
    if half(12) as usize != HEADER {
        return Err(invalid(format!("GUID partition table: a header of {} bytes", half(12))));
    }
    let mut without_checksum = header.clone();
    without_checksum[16..20].fill(0);
    if crc32(&without_checksum) != half(16) || word(24) != block {
        return Err(invalid("GUID partition table: the header is damaged"));
    }
    let (first, count, size) = (word(72), u64::from(half(80)), u64::from(half(84)));
    let len = count * size;
    if !(ENTRY as u64..=4096).contains(&size) || len > MOST {
        return Err(invalid(format!("GUID partition table: {count} entries of {size} bytes")));
    }
    let offset = first.checked_mul(sector).ok_or_else(|| invalid("GUID partition table: out of range"))?;
    let entries = read(disk, offset, len as usize)?;
    let entries = entries.ok_or_else(|| invalid("GUID partition table: passes the end of the disk"))?;
    if crc32(&entries) != half(88) {
        return Err(invalid("GUID partition table: the entries are damaged"));
    }
    let partitions = (1..).zip(entries.chunks_exact(size as usize));
    Ok(Some(partitions.filter_map(|(number, entry)| partition(number, entry, sector)).collect()))
}

/// Returns the partition of an entry; `None` if the entry is not used.
fn partition(number: u32, entry: &[u8], sector: u64) -> Option<Partition> {
    let guid: [u8; 16] = *entry.first_chunk()?;
    if guid == [0; 16] {
        return None;
    }
    let word = |at: usize| entry[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (first, last) = (word(32), word(40));
    let blocks = last.checked_sub(first).map_or(0, |blocks| blocks.saturating_add(1));
    let units: Vec<u16> =
        entry[56..ENTRY].chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
    let label = units.split(|&unit| unit == 0).next().unwrap_or_default();
    Some(Partition {
        number,
        start: first.saturating_mul(sector),
        len: blocks.saturating_mul(sector),
        kind: name_of(&guid),
        label: String::from_utf16_lossy(label),
    })
}

/// Types by their GUID.
const TYPES: &[(&str, &str)] = &[
    ("0fc63daf-8483-4772-8e79-3d69d8477de4", "Linux"),
    ("4f68bce3-e8cd-4db1-96e7-fbcaf984b709", "Linux root (x86-64)"),
    ("b921b045-1df0-41c3-af44-4c6f280d3fae", "Linux root (ARM-64)"),
    ("933ac7e1-2eb4-4f13-b844-0e14e2aef915", "Linux home"),
    ("bc13c2ff-59e6-4262-a352-b275fd6f7172", "Linux extended boot"),
    ("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", "Linux swap"),
    ("e6d6d379-f507-44c2-a23c-238f2a3df928", "Linux LVM"),
    ("a19d880f-05fc-4d3b-a006-743f0f84911e", "Linux RAID"),
    ("c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "EFI system"),
    ("21686148-6449-6e6f-744e-656564454649", "BIOS boot"),
    ("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", "Microsoft basic data"),
    ("e3c9e316-0b5c-4db8-817d-f92df00215ae", "Microsoft reserved"),
];

fn name_of(guid: &[u8; 16]) -> String {
    // The first three fields are little-endian.
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let mut text = String::new();
    for (at, index) in order.into_iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        text.push_str(&format!("{:02x}", guid[index]));
    }
    TYPES.iter().find(|(known, _)| *known == text).map_or(text, |(_, name)| (*name).to_owned())
}

/// Returns the CRC-32 of Ethernet, computed bit by bit: a table is small, and read once.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use super::crc32;

    #[test]
    fn the_checksum_has_its_known_answer() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
