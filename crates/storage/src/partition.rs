//! Partition tables (GPT and MBR): lists the partitions of a disk, and finds the partition that a
//! name asks for.
//!
//! This module reads tables and never writes them. A table may contain any bytes: numbers are
//! checked against the disk, and lists have limits.
//!
//! No crate is used for these tables, because the crates that exist trust a table. A hostile table
//! stops the process: `gpt` 4.1 asserts that entries have 128 bytes, `gptman` 3.1 allocates memory
//! for as many entries as the header counts, up to 2^32, before it checks a checksum, and `mbrman`
//! 0.6 unwraps a damaged extended table, adds numbers of sectors without checks, and follows chains
//! of any length.

mod gpt;
mod mbr;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use parext4_device::{AlignedBuf, Device, DeviceOptions};

/// A partition of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partition {
    /// Number, as in the name of the partition's block device: `2` of `/dev/sda2`.
    pub number: u32,
    /// Offset of the first byte on the disk.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Type in words, or as a GUID or a number in hexadecimal digits.
    pub kind: String,
    /// Label; empty if the partition has none.
    pub label: String,
}

/// A partition table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionTable {
    /// The partitions, in the order of their numbers.
    pub partitions: Vec<Partition>,
    /// Why partitions may be missing: a table of logical partitions cannot be followed to its end.
    /// The other partitions are valid.
    pub damage: Option<String>,
}

/// Splits `?partition=N` off the name of an image, or `&partition=N` off a URL with a query.
/// Returns the name of the disk, and the number if there is one.
///
/// ```
/// use parext4_storage::split_partition;
/// let (disk, number) = split_partition("disk.img?partition=2".as_ref());
/// assert_eq!((disk.to_str(), number.map(|number| number.get())), (Some("disk.img"), Some(2)));
/// assert_eq!(split_partition("what?.img".as_ref()), ("what?.img".as_ref(), None));
/// ```
#[must_use]
pub fn split_partition(typed: &OsStr) -> (&OsStr, Option<NonZeroU32>) {
    const NAME: &[u8] = b"partition=";
    let bytes = typed.as_bytes();
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, digits) = bytes.split_at(bytes.len() - digits);
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    let Some((mark, disk)) = before.strip_suffix(NAME).and_then(<[u8]>::split_last) else {
        return (typed, None);
    };
    let is_url = disk.windows(3).any(|part| part == b"://");
    let is_mark = *mark == b'?' || (*mark == b'&' && is_url);
    if is_mark && number.is_some() && !disk.is_empty() {
        (OsStr::from_bytes(disk), number)
    } else {
        (typed, None)
    }
}

/// Reads the partition table of a disk. `None` if the disk has no partition table. As Linux does,
/// reads the GPT if an MBR protects it, and otherwise the MBR.
///
/// `typed` is the name of the disk. An MBR has its offsets in logical sectors of a block device,
/// and in sectors of 512 bytes in an image. A GPT has its offsets in sectors of 512 or 4096 bytes,
/// which the place of its header tells.
///
/// # Errors
/// Errors of the device, and [`io::ErrorKind::InvalidData`] for a table that is damaged.
pub fn partitions(typed: impl AsRef<OsStr>, disk: &dyn Device) -> io::Result<Option<PartitionTable>> {
    if mbr::is_protective(disk)? {
        let partitions = gpt::read_table(disk)?;
        return Ok(partitions.map(|partitions| PartitionTable { partitions, damage: None }));
    }
    mbr::read_table(disk, logical_sector(Path::new(typed.as_ref()))?)
}

/// Returns the bytes of a logical sector of a block device, and 512 for anything else.
fn logical_sector(disk: &Path) -> io::Result<u64> {
    let is_block_device = disk.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
    if !is_block_device {
        return Ok(512);
    }
    Ok(rustix::fs::ioctl_blksszget(File::open(disk)?)?.into())
}

/// Narrows `options` to partition `number` of `disk`.
///
/// # Errors
/// If the disk has no such partition, or the partition does not lie on the disk.
pub(crate) fn narrow(
    typed: &OsStr,
    disk: &dyn Device,
    number: NonZeroU32,
    options: &DeviceOptions,
) -> io::Result<DeviceOptions> {
    let fail = |kind, text: String| Err(io::Error::new(kind, text));
    let Some(PartitionTable { partitions: list, damage }) = partitions(typed, disk)? else {
        return fail(io::ErrorKind::NotFound, "no partition table".to_owned());
    };
    let Some(partition) = list.iter().find(|partition| partition.number == number.get()) else {
        let numbers: Vec<_> = list.iter().map(|partition| partition.number.to_string()).collect();
        let damage = damage.map_or(String::new(), |damage| format!("; {damage}"));
        let text = format!("no partition {number}, only {}{damage}", numbers.join(", "));
        return fail(io::ErrorKind::NotFound, text);
    };
    let end = partition.start.checked_add(partition.len);
    if partition.len == 0 || end.is_none_or(|end| end > disk.size()) {
        let (start, len, size) = (partition.start, partition.len, disk.size());
        let text = format!("partition {number} has {len} bytes from {start}, but the disk only {size}");
        return fail(io::ErrorKind::InvalidData, text);
    }
    let within = partition.len.checked_sub(options.offset);
    match within.filter(|left| options.len.is_none_or(|len| len <= *left)) {
        Some(left) => {
            let len = options.len.unwrap_or(left);
            Ok(options.clone().offset(partition.start + options.offset).len(len))
        }
        None => {
            fail(io::ErrorKind::InvalidInput, format!("partition {number} has only {} bytes", partition.len))
        }
    }
}

/// Reads the whole 4 KiB blocks around the bytes, because the device may have sectors of this size.
/// `None` if the bytes pass the end of the disk.
fn read(disk: &dyn Device, offset: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
    const GRAIN: u64 = 4096;
    let Some(end) = offset.checked_add(len as u64).filter(|&end| end <= disk.size()) else { return Ok(None) };
    let first = offset - offset % GRAIN;
    let last = end.next_multiple_of(GRAIN).min(disk.size());
    let mut buf = AlignedBuf::zeroed((last - first) as usize);
    disk.read_at(first, &mut [IoSliceMut::new(&mut buf)])?;
    let at = (offset - first) as usize;
    Ok(Some(buf[at..at + len].to_vec()))
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use parext4_device::MemDevice;

    use super::*;

    #[test]
    fn only_the_end_of_a_name_asks_for_a_partition() {
        let split = |typed: &str| {
            let (disk, number) = split_partition(typed.as_ref());
            (disk.to_str().unwrap().to_owned(), number.map(NonZeroU32::get))
        };
        assert_eq!(split("a?partition=12"), ("a".to_owned(), Some(12)));
        assert_eq!(
            split("nbd+unix:///x?socket=s&partition=3"),
            ("nbd+unix:///x?socket=s".to_owned(), Some(3))
        );
        for whole in
            ["a", "a?", "a?partition=", "a?partition=0", "a?partition=1x", "?partition=1", "a&partition=1"]
        {
            assert_eq!(split(whole), (whole.to_owned(), None));
        }
    }

    /// Headers with valid checksums and any numbers.
    #[test]
    fn any_guid_table_is_read_or_refused() {
        const NUMBERS: [u64; 9] = [0, 1, 2, 127, 128, 256, 1 << 20, u32::MAX as u64, u64::MAX];
        for first in NUMBERS {
            for count in NUMBERS {
                for size in NUMBERS {
                    let disk = MemDevice::new(64 << 10);
                    let mut bytes = AlignedBuf::zeroed(64 << 10);
                    let header = &mut bytes[512..1024];
                    header[..8].copy_from_slice(b"EFI PART");
                    header[12] = 92;
                    header[24] = 1;
                    header[72..80].copy_from_slice(&first.to_le_bytes());
                    header[80..84].copy_from_slice(&(count as u32).to_le_bytes());
                    header[84..88].copy_from_slice(&(size as u32).to_le_bytes());
                    let checksum = gpt::crc32(&header[..92]);
                    header[16..20].copy_from_slice(&checksum.to_le_bytes());
                    bytes[446 + 4] = 0xee;
                    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
                    disk.write_at(0, &[IoSlice::new(&bytes)]).unwrap();
                    match partitions("any", &disk) {
                        Ok(table) => assert!(table.is_none_or(|table| table.partitions.len() <= 8192)),
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::InvalidData),
                    }
                }
            }
        }
    }

    /// Bytes of any value lead to errors, or to partitions that are refused if they do not lie on
    /// the disk.
    #[test]
    fn any_table_is_read_or_refused() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        for _ in 0..500 {
            let disk = MemDevice::new(64 << 10);
            let mut bytes = AlignedBuf::zeroed(64 << 10);
            for sector in bytes.chunks_exact_mut(512) {
                for entry in sector[446..510].chunks_exact_mut(16) {
                    entry[4] = [0, 5, 0x0f, 0x83][random() as usize % 4];
                    let limit = [4, 128, u32::MAX][random() as usize % 3];
                    entry[8..12].copy_from_slice(&(random() % limit).to_le_bytes());
                    entry[12..16].copy_from_slice(&(random() % limit).to_le_bytes());
                }
                sector[510..].copy_from_slice(&[0x55, 0xaa]);
            }
            disk.write_at(0, &[IoSlice::new(&bytes)]).unwrap();
            for number in (1..9).filter_map(NonZeroU32::new) {
                if let Ok(options) = narrow("any".as_ref(), &disk, number, &DeviceOptions::new()) {
                    assert!(options.offset + options.len.unwrap() <= disk.size());
                }
            }
        }
    }
}
