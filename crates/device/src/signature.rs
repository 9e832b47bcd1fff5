//! Recognises what a device holds by its signature, so that commands can refuse to overwrite it.

use std::io::{self, IoSliceMut};

use crate::{AlignedBuf, Device};

/// Name, byte offset and bytes of signatures; the offsets are those that libblkid documents.
const SIGNATURES: &[(&str, usize, &[u8])] = &[
    ("an ext2/3/4 file system", 1080, &[0x53, 0xef]),
    ("an XFS file system", 0, b"XFSB"),
    ("a Btrfs file system", 0x1_0040, b"_BHRfS_M"),
    ("an F2FS file system", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    ("a SquashFS file system", 0, b"hsqs"),
    ("an EROFS file system", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    ("an ISO 9660 file system", 0x8001, b"CD001"),
    ("a LUKS volume", 0, b"LUKS\xba\xbe"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("a RAID member", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("a GUID partition table", 512, b"EFI PART"),
    ("a partition table or a FAT or NTFS file system", 510, &[0x55, 0xaa]),
];

/// Bytes that hold all signatures; a multiple of any sector size.
const ZONE: usize = 68 << 10;

/// Returns what the device holds, if a known signature is on it.
///
/// # Errors
/// An error of the device.
pub fn find(device: &dyn Device) -> io::Result<Option<&'static str>> {
    let mut start = AlignedBuf::zeroed(ZONE);
    let len = usize::try_from(device.size()).map_or(ZONE, |size| size.min(ZONE));
    if len > 0 {
        device.read_at(0, &mut [IoSliceMut::new(&mut start[..len])])?;
    }
    let holds = |offset: usize, bytes: &[u8]| start.get(offset..offset + bytes.len()) == Some(bytes);
    Ok(SIGNATURES.iter().find(|(_, offset, bytes)| holds(*offset, bytes)).map(|(name, ..)| *name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;

    #[test]
    fn signatures_are_found_where_they_belong() {
        for &(name, offset, bytes) in SIGNATURES {
            let device = crate::MemDevice::new(1 << 20);
            let mut start = AlignedBuf::zeroed(ZONE);
            start[offset..offset + bytes.len()].copy_from_slice(bytes);
            device.write_at(0, &[IoSlice::new(&start)]).unwrap();
            assert_eq!(find(&device).unwrap(), Some(name));
        }
        assert_eq!(find(&crate::MemDevice::new(4096)).unwrap(), None);
    }
}
