//! Master boot records, with logical partitions in an extended one.

use std::io;

use parext4_device::Device;

use super::{Partition, PartitionTable, read};

/// Bytes of a table, at the start of its sector.
const TABLE: usize = 512;
/// Offset of the four entries.
const ENTRIES: usize = 446;
/// Bytes of an entry.
const ENTRY: usize = 16;
/// The largest number of logical partitions, as in Linux.
const MOST_LOGICAL: usize = 255;
/// The type of an entry that covers a disk with a GPT.
const PROTECTIVE: u8 = 0xee;
/// Types of extended partitions.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

/// One used entry.
struct Entry {
    /// Index of the entry in its table, from 0.
    index: u32,
    kind: u8,
    /// First sector of the partition. It counts from a place that depends on the table.
    start: u64,
    sectors: u64,
}

/// Returns true if an entry of sector 0 protects a GPT. The other entries of such an MBR do not
/// count.
pub fn is_protective(disk: &dyn Device) -> io::Result<bool> {
    let Some(bytes) = read(disk, 0, TABLE)? else { return Ok(false) };
    let mut entries = bytes[ENTRIES..510].chunks_exact(ENTRY);
    Ok(bytes[510..] == [0x55, 0xaa] && entries.any(|entry| entry[4] == PROTECTIVE))
}

/// Reads the table, which counts in sectors of `sector` bytes. `None` if the disk has no table. The
/// boot sector of a file system has the signature of a table, but no valid entries.
pub fn read_table(disk: &dyn Device, sector: u64) -> io::Result<Option<PartitionTable>> {
    let Some(primary) = table(disk, 0)? else { return Ok(None) };
    if primary.is_empty() || primary.iter().any(|entry| entry.start == 0) {
        return Ok(None);
    }
    let mut found = PartitionTable::default();
    for entry in &primary {
        if EXTENDED.contains(&entry.kind) {
            logical(disk, sector, entry.start, &mut found);
        } else {
            found.partitions.push(partition(entry.index + 1, entry, 0, sector));
        }
    }
    found.partitions.sort_by_key(|partition| partition.number);
    Ok(Some(found))
}

/// Adds the logical partitions: a chain of tables, each with one partition and the place of the
/// next table, in sectors from `base`. As in Linux, the chain ends at a table that cannot be read
/// or that is not after the previous one.
fn logical(disk: &dyn Device, sector: u64, base: u64, found: &mut PartitionTable) {
    let (mut at, mut number) = (base, 5);
    for _ in 0..MOST_LOGICAL {
        let entries = match table(disk, at * sector) {
            Ok(Some(entries)) => entries,
            Ok(None) => return found.damage = Some(format!("no extended table in sector {at}")),
            Err(error) => return found.damage = Some(format!("the extended table in sector {at}: {error}")),
        };
        for entry in entries.iter().filter(|entry| !EXTENDED.contains(&entry.kind)).take(1) {
            found.partitions.push(partition(number, entry, at, sector));
            number += 1;
        }
        // Each table must be after the previous one, so that a chain has an end.
        match entries.iter().find(|entry| EXTENDED.contains(&entry.kind)) {
            Some(next) if base + next.start > at => at = base + next.start,
            Some(_) => {
                return found.damage =
                    Some(format!("the extended table in sector {at} leads back to an earlier one"));
            }
            None => return,
        }
    }
}

/// Reads the used entries of the table at an offset. `None` if the sector has no signature, or no
/// table.
fn table(disk: &dyn Device, offset: u64) -> io::Result<Option<Vec<Entry>>> {
    let Some(bytes) = read(disk, offset, TABLE)? else { return Ok(None) };
    if bytes[510..] != [0x55, 0xaa] {
        return Ok(None);
    }
    let entries = bytes[ENTRIES..510].chunks_exact(ENTRY);
    // The first byte of an entry is 0, or 0x80 if the partition is active.
    if entries.clone().any(|entry| entry[0] & 0x7f != 0) {
        return Ok(None);
    }
    let number = |bytes: &[u8]| u64::from(bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word)));
    let entry = |(index, entry): (u32, &[u8])| {
        let sectors = number(&entry[12..]);
        (entry[4] != 0 && sectors != 0).then(|| Entry {
            index,
            kind: entry[4],
            start: number(&entry[8..]),
            sectors,
        })
    };
    Ok(Some((0..).zip(entries).filter_map(entry).collect()))
}

fn partition(number: u32, entry: &Entry, base: u64, sector: u64) -> Partition {
    // All operands have 32 bits, so nothing overflows.
    let (start, len) = ((base + entry.start) * sector, entry.sectors * sector);
    Partition { number, start, len, kind: name_of(entry.kind), label: String::new() }
}

fn name_of(kind: u8) -> String {
    let name = match kind {
        0x01 | 0x04 | 0x06 | 0x0b | 0x0c | 0x0e => "FAT",
        0x07 => "NTFS or exFAT",
        0x82 => "Linux swap",
        0x83 => "Linux",
        0x8e => "Linux LVM",
        0xef => "EFI system",
        0xfd => "Linux RAID",
        _ => return format!("{kind:#04x}"),
    };
    name.to_owned()
}
