//! The fields of an inode that have more than one encoding.

use parext4_format::InodeNo;
use parext4_format::features::{Incompat, RoCompat};
use parext4_format::inode::{FileType, Inode, InodeFlags, Timestamp};
use parext4_format::superblock::Superblock;
use parext4_format::xattr::{Xattr, encode_ibody, parse_ibody};

use crate::hostile::valid_superblock;

fn superblock(inode_size: u16) -> Superblock {
    let mut raw = valid_superblock();
    raw.s_inode_size.set(inode_size);
    if inode_size == 128 {
        raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !RoCompat::EXTRA_ISIZE.bits());
    }
    Superblock::from_raw(raw).unwrap()
}

fn through_bytes(inode: &Inode, sb: &Superblock) -> (Inode, Vec<u8>) {
    let mut bytes = vec![0; sb.inode_size().into()];
    inode.encode(&mut bytes, sb, InodeNo(12));
    (Inode::parse(&bytes, sb, InodeNo(12)).unwrap(), bytes)
}

#[test]
fn a_new_inode_has_room_for_the_known_fields() {
    let inode = Inode::new(FileType::Regular.mode_bits() | 0o644, &superblock(256));
    assert_eq!((inode.extra_isize, inode.xattr_area().len()), (32, 96));
    let inode = Inode::new(FileType::Regular.mode_bits(), &superblock(128));
    assert_eq!((inode.extra_isize, inode.xattr_area().len()), (0, 0));
}

#[test]
fn small_inodes_lose_nanoseconds_and_late_years() {
    let late = Timestamp { seconds: 1 << 33, nanoseconds: 5 };
    let mut inode = Inode::new(FileType::Regular.mode_bits(), &superblock(256));
    (inode.mtime, inode.crtime) = (late, late);
    let (again, _) = through_bytes(&inode, &superblock(256));
    assert_eq!((again.mtime, again.crtime), (late, late));

    let mut inode = Inode::new(FileType::Regular.mode_bits(), &superblock(128));
    (inode.mtime, inode.crtime) = (late, late);
    let (again, _) = through_bytes(&inode, &superblock(128));
    let latest = Timestamp { seconds: i32::MAX.into(), nanoseconds: 0 };
    assert_eq!((again.mtime, again.crtime), (latest, Timestamp::default()));
}

#[test]
fn blocks_change_their_unit_when_they_must() {
    let sb = superblock(256);
    let mut inode = Inode::new(FileType::Regular.mode_bits(), &sb);
    for (blocks, in_fs_blocks) in
        [(7, false), ((1 << 32) + 1, false), ((1 << 48) - 1, false), (1 << 48, true), ((1 << 49) - 2, true)]
    {
        inode.blocks = blocks;
        let (again, bytes) = through_bytes(&inode, &sb);
        assert_eq!(again.blocks, blocks);
        assert_eq!(bytes[0x22] & 4 != 0, in_fs_blocks, "{blocks}");
        assert_eq!(again.flags.contains(InodeFlags::HUGE_FILE), in_fs_blocks, "{blocks}");
    }
}

#[test]
fn device_numbers() {
    let mut inode = Inode::new(FileType::BlockDevice.mode_bits(), &superblock(256));
    for (major, minor, first, second) in
        [(8, 1, 0x0801, 0), (259, 3, 0, 0x1_0303), (1, 256, 0, 0x10_0100), (0xfff, 0xf_ffff, 0, 0xffff_ffff)]
    {
        inode.set_rdev(major, minor);
        let word = |at: usize| u32::from_le_bytes(*inode.block[at..].first_chunk().unwrap());
        assert_eq!((word(0), word(4)), (first, second));
        assert_eq!(inode.rdev(), (major, minor));
    }
}

#[test]
fn short_links_lie_in_the_inode() {
    let mut inode = Inode::new(FileType::Symlink.mode_bits() | 0o777, &superblock(256));
    for (size, flags, fast) in [
        (59, InodeFlags::empty(), true),
        (60, InodeFlags::empty(), false),
        (59, InodeFlags::EXTENTS, false),
        (0, InodeFlags::empty(), false),
    ] {
        (inode.size, inode.flags) = (size, flags);
        assert_eq!(inode.is_fast_symlink(), fast, "{size} {flags:?}");
    }
}

#[test]
fn directories_have_long_sizes_with_large_dir() {
    let mut large = superblock(256);
    large.set_incompat(large.incompat() | Incompat::LARGEDIR);
    for (file_type, sb, size) in [
        (FileType::Directory, &large, 5 << 30),
        (FileType::Directory, &superblock(256), 1 << 30),
        (FileType::Regular, &superblock(256), 5 << 30),
    ] {
        let mut inode = Inode::new(file_type.mode_bits(), sb);
        inode.size = size;
        let (again, _) = through_bytes(&inode, sb);
        assert_eq!(again.size, size, "{file_type:?}");
    }
    // Without the feature the field has other uses.
    let mut inode = Inode::new(FileType::Directory.mode_bits(), &large);
    inode.size = 5 << 30;
    let mut bytes = vec![0; 256];
    inode.encode(&mut bytes, &large, InodeNo(12));
    assert_eq!(Inode::parse(&bytes, &superblock(256), InodeNo(12)).unwrap().size, 1 << 30);
}

/// e2fsck finds such attributes.
#[test]
fn attributes_in_place_of_the_extra_fields_move_after_them() {
    let sb = superblock(256);
    let inode = Inode::new(FileType::Regular.mode_bits(), &sb);
    let (_, mut bytes) = through_bytes(&inode, &sb);
    let list = [Xattr { name_index: 1, name: b"a".to_vec(), value: vec![7; 5].into() }];
    bytes[128..].copy_from_slice(&encode_ibody(&list, 128).unwrap());
    let mut inode = Inode::parse(&bytes, &sb, InodeNo(12)).unwrap();
    assert_eq!((inode.extra_isize, parse_ibody(inode.xattr_area()).unwrap().as_slice()), (0, &list[..]));
    assert!(inode.expand_extra(32));
    let (again, _) = through_bytes(&inode, &sb);
    assert_eq!((again.extra_isize, parse_ibody(again.xattr_area()).unwrap().as_slice()), (32, &list[..]));
    bytes[130] = 0;
    assert!(Inode::parse(&bytes, &sb, InodeNo(12)).unwrap().xattr_area().is_empty());
}
