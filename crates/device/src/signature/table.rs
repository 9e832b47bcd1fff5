//! The magic numbers of file systems, volume managers and partition tables, at the offsets that
//! libblkid probes, and of image formats, compressed data and archives.

use SignatureOffset::{FromEnd, Start};

/// The place of a signature, in bytes.
#[derive(Clone, Copy, Debug)]
pub enum SignatureOffset {
    /// Offset from the start of the device.
    Start(u64),
    /// Distance before the end of the device, whose size is first rounded down to a multiple of the
    /// second number.
    FromEnd(u64, u64),
}

impl SignatureOffset {
    /// Returns the offset on a device of `size` bytes, `None` if the device is too small.
    pub fn offset(self, size: u64) -> Option<u64> {
        match self {
            Start(offset) => Some(offset),
            FromEnd(before, multiple) => (size - size % multiple).checked_sub(before),
        }
    }
}

/// The name, the place and the bytes of each signature.
#[rustfmt::skip]
pub const SIGNATURES: &[(&str, SignatureOffset, &[u8])] = &[
    (EXT, Start(0x438), &[0x53, 0xef]),
    ("an XFS file system", Start(0), b"XFSB"),
    ("a Btrfs file system", Start(0x1_0040), b"_BHRfS_M"),
    ("a bcachefs file system", Start(0x1018), BCACHEFS),
    ("an F2FS file system", Start(0x400), &[0x10, 0x20, 0xf5, 0xf2]),
    ("a NILFS2 file system", Start(0x406), &[0x34, 0x34]),
    ("a JFS file system", Start(0x8000), b"JFS1"),
    ("a ReiserFS file system", Start(0x1_0034), b"ReIsEr"),
    ("a GFS2 file system", Start(0x1_0000), &[0x01, 0x16, 0x19, 0x70]),
    ("an OCFS2 file system", Start(0x2000), b"OCFSV2"),
    ("a SquashFS file system", Start(0), b"hsqs"),
    ("an EROFS file system", Start(0x400), &[0xe2, 0xe1, 0xf5, 0xe0]),
    ("a cramfs file system", Start(0), &[0x45, 0x3d, 0xcd, 0x28]),
    ("a romfs file system", Start(0), b"-rom1fs-"),
    ("a Minix file system", Start(0x410), &[0x7f, 0x13]),
    ("a Minix file system", Start(0x410), &[0x8f, 0x13]),
    ("an ISO 9660 file system", Start(0x8001), b"CD001"),
    ("a UDF file system", Start(0x8001), b"BEA01"),
    ("an NTFS file system", Start(3), b"NTFS    "),
    ("an exFAT file system", Start(3), b"EXFAT   "),
    ("a ReFS file system", Start(3), b"ReFS\0\0\0\0"),
    ("a FAT file system", Start(0x36), b"FAT12   "),
    ("a FAT file system", Start(0x36), b"FAT16   "),
    ("a FAT file system", Start(0x52), b"FAT32   "),
    ("an HFS+ file system", Start(0x400), b"H+\0\x04"),
    ("an HFS+ file system", Start(0x400), b"HX\0\x05"),
    ("an HFS file system", Start(0x400), b"BD"),
    ("an APFS container", Start(0x20), b"NXSB"),
    ("a JFFS2 file system", Start(0), &[0x85, 0x19, 0x03, 0x20]),
    ("a JFFS2 file system", Start(0), &[0x85, 0x19, 0x01, 0xe0]),
    ("a JFFS2 file system", Start(0), &[0x85, 0x19, 0x02, 0xe0]),
    ("a JFFS2 file system", Start(0), &[0x19, 0x85, 0x20, 0x03]),
    ("a JFFS2 file system", Start(0), &[0x19, 0x85, 0xe0, 0x01]),
    ("a JFFS2 file system", Start(0), &[0x19, 0x85, 0xe0, 0x02]),
    ("a UBIFS file system", Start(0), &[0x31, 0x18, 0x10, 0x06]),
    ("a UBI image", Start(0), b"UBI#"),
    ("a UFS file system", Start(0x1_055c), &[0x19, 0x01, 0x54, 0x19]),
    (QCOW2, Start(0), b"QFI\xfb"),
    ("a VMDK image", Start(0), b"KDMV"),
    ("a VMDK image", Start(0), b"COWD"),
    ("a VMDK image", Start(0), b"# Disk DescriptorFile"),
    ("a VHD image", Start(0), b"conectix"),
    ("a VHD image", FromEnd(0x200, 0x200), b"conectix"),
    ("a VHDX image", Start(0), b"vhdxfile"),
    ("a VDI image", Start(0x40), &[0x7f, 0x10, 0xda, 0xbe]),
    ("a Parallels image", Start(0), b"WithoutFreeSpace"),
    ("a Parallels image", Start(0), b"WithouFreSpacExt"),
    ("an Apple disk image", FromEnd(0x200, 0x1), b"koly"),
    ("an Android sparse image", Start(0), &[0x3a, 0xff, 0x26, 0xed]),
    ("an Android super image", Start(0x1000), b"gDla"),
    ("an Android super image", Start(0x2000), b"gDla"),
    ("an Android boot image", Start(0), b"ANDROID!"),
    ("an Android boot image", Start(0), b"VNDRBOOT"),
    (E2IMAGE, Start(0), &[0x10, 0xb7, 0x2b, 0x7f]),
    ("data compressed by gzip", Start(0), &[0x1f, 0x8b, 0x08]),
    ("data compressed by bzip2", Start(0), b"BZh"),
    ("data compressed by xz", Start(0), &[0xfd, b'7', b'z', b'X', b'Z', 0]),
    ("data compressed by zstd", Start(0), &[0x28, 0xb5, 0x2f, 0xfd]),
    ("data compressed by lz4", Start(0), &[0x04, 0x22, 0x4d, 0x18]),
    ("a zip archive", Start(0), b"PK\x03\x04"),
    ("a 7z archive", Start(0), &[b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c]),
    ("a tar archive", Start(0x101), b"ustar"),
    ("a LUKS volume", Start(0), b"LUKS\xba\xbe"),
    ("a LUKS volume", Start(0x4000), b"SKUL\xba\xbe"),
    ("a BitLocker volume", Start(3), b"-FVE-FS-"),
    ("an LVM physical volume", Start(0x000), b"LABELONE"),
    ("an LVM physical volume", Start(0x200), b"LABELONE"),
    ("an LVM physical volume", Start(0x400), b"LABELONE"),
    ("an LVM physical volume", Start(0x600), b"LABELONE"),
    ("a RAID member", Start(0), LINUX_RAID),
    ("a RAID member", Start(0x1000), LINUX_RAID),
    ("a RAID member", FromEnd(0x2000, 0x1000), LINUX_RAID),
    ("a RAID member", FromEnd(0x1_0000, 0x1_0000), LINUX_RAID),
    ("a RAID member", FromEnd(0x400, 0x200), b"Intel Raid ISM Cfg Sig. "),
    ("a RAID member", FromEnd(0x200, 0x200), &[0xde, 0x11, 0xde, 0x11]),
    ("a bcache device", Start(0x1018), BCACHE),
    ("a VDO volume", Start(0), b"dmvdo001"),
    ("a Ceph BlueStore device", Start(0), b"bluestore block device"),
    ("swap space", Start(0x0ff6), b"SWAPSPACE2"),
    ("swap space", Start(0x1ff6), b"SWAPSPACE2"),
    ("swap space", Start(0x3ff6), b"SWAPSPACE2"),
    ("swap space", Start(0xfff6), b"SWAPSPACE2"),
    ("a hibernated system", Start(0x0ff6), b"S1SUSPEND"),
    ("a hibernated system", Start(0x0ff6), b"S2SUSPEND"),
    ("a hibernated system", Start(0x0ff6), b"LINHIB0001"),
    (GPT, Start(0x200), b"EFI PART"),
    (GPT, Start(0x1000), b"EFI PART"),
    (GPT, FromEnd(0x200, 0x200), b"EFI PART"),
    (GPT, FromEnd(0x1000, 0x1000), b"EFI PART"),
    ("a BSD disk label", Start(0x200), &[0x57, 0x45, 0x56, 0x82]),
    ("a Sun disk label", Start(0x1fc), &[0xda, 0xbe]),
    ("an Apple partition map", Start(0x200), b"PM\0\0"),
];

/// A file of e2image in its own format, which has a copy of the superblock where a volume has its
/// superblock.
pub const E2IMAGE: &str = "an e2image file";
/// A QCOW2 image of any program.
pub const QCOW2: &str = "a QCOW2 image";
/// File systems that share one signature.
pub const EXT: &str = "an ext2, ext3 or ext4 file system";
const GPT: &str = "a GUID partition table";

const LINUX_RAID: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
const BCACHE: &[u8] =
    &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];
const BCACHEFS: &[u8] =
    &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef];
