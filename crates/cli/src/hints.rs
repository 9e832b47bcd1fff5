//! What a user can do with an image that holds no ext4 volume itself.

use std::path::Path;

use parext4::Backups;
use parext4::device::signature::Contents;
use parext4_storage::split_partition;

/// The end of the names of file systems.
const FILE_SYSTEM: &str = " file system";

/// Kinds of contents, and the hint for each. `IMAGE` stands for the image.
const HINTS: &[(&str, &str)] = &[
    ("a QCOW2 image", CONVERT_OR_SERVE),
    ("a VMDK image", CONVERT_OR_SERVE),
    ("a VHD image", CONVERT_OR_SERVE),
    ("a VHDX image", CONVERT_OR_SERVE),
    ("a VDI image", CONVERT_OR_SERVE),
    ("a Parallels image", CONVERT_OR_SERVE),
    (
        "a QCOW2 image of e2image",
        "it has metadata without contents; convert it with \"e2image -r IMAGE raw.img\"",
    ),
    ("an e2image file", "it has metadata without contents; read it with \"debugfs -i IMAGE\""),
    ("a UBI image", "attach it with \"ubiattach\" to the flash for which it was made"),
    ("an Android super image", "unpack its partitions with \"lpunpack IMAGE\""),
    ("an Android boot image", "unpack it with \"unpack_bootimg --boot_img IMAGE\""),
    ("an Apple disk image", "convert it with \"qemu-img convert -O raw IMAGE raw.img\""),
    ("an Android sparse image", "convert it with \"simg2img IMAGE raw.img\""),
    ("data compressed by gzip", "decompress it with \"gzip -dc IMAGE > raw.img\""),
    ("data compressed by bzip2", "decompress it with \"bzip2 -dc IMAGE > raw.img\""),
    ("data compressed by xz", "decompress it with \"xz -dc IMAGE > raw.img\""),
    ("data compressed by zstd", "decompress it with \"zstd -dc IMAGE > raw.img\""),
    ("data compressed by lz4", "decompress it with \"lz4 -dc IMAGE > raw.img\""),
    ("a zip archive", "unpack it with \"unzip IMAGE\""),
    ("a 7z archive", "unpack it with \"7z x IMAGE\""),
    ("a tar archive", "copy its files into a volume with \"parext4 put --tar IMAGE new.img\""),
    ("a LUKS volume", "open it with \"cryptsetup open IMAGE NAME\", and use /dev/mapper/NAME"),
    ("a GUID partition table", PARTITIONS),
    ("an MBR partition table", PARTITIONS),
];

const CONVERT_OR_SERVE: &str = "convert it with \"qemu-img convert -O raw IMAGE raw.img\", or serve it with \
    \"qemu-nbd -k /tmp/nbd.sock IMAGE\" and use nbd+unix:///?socket=/tmp/nbd.sock";
const PARTITIONS: &str = "\"parext4 info IMAGE\" lists the partitions, and IMAGE?partition=N is one of them";
const COPY_FILES: &str = "mount it with \"mount -o ro IMAGE /mnt\", and copy its files into a volume with \"parext4 put /mnt/. new.img\"";

/// Returns what makes the contents usable; `None` if nothing is known.
pub fn find(image: &Path, contents: &Contents) -> Option<String> {
    let of_kind = |kind: &str| {
        let found = HINTS.iter().find(|(known, _)| *known == kind).map(|(_, hint)| *hint);
        found.or(kind.ends_with(FILE_SYSTEM).then_some(COPY_FILES))
    };
    Some(contents.kinds().find_map(of_kind)?.replace("IMAGE", &image.display().to_string()))
}

/// Returns what the user can do about the missing end of a volume of `needed` bytes.
pub fn truncated(image: &Path, needed: u64) -> String {
    if split_partition(image.as_os_str()).1.is_some() || !image.is_file() {
        return "make the device or the partition as large again".to_owned();
    }
    format!(
        "find the rest, or put zeros in its place with \"truncate -s {needed} {}\": then the files that are left can be read, and \
         e2fsck can repair the volume",
        image.display()
    )
}

/// Returns what the user can do with backups of the superblock.
pub fn backups(image: &Path, backups: &Backups) -> String {
    let Backups { block_size, blocks, .. } = backups;
    let list: Vec<String> = blocks.iter().map(u64::to_string).collect();
    let first = blocks.first().copied().unwrap_or(0);
    format!(
        "valid backups of it begin at blocks {} of {block_size} bytes; after a copy of the image, \"e2fsck -b {first} -B {block_size} {}\" \
         repairs the volume by the first one",
        list.join(", "),
        image.display()
    )
}
