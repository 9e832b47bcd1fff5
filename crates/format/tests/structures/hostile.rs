//! Damaged and arbitrary bytes: parsers return an error or a value and never panic.

use parext4_format::extent::{self, ExtentNode};
use parext4_format::features::{Compat, Incompat, RoCompat};
use parext4_format::group_desc::GroupDesc;
use parext4_format::inode::Inode;
use parext4_format::superblock::{Access, RawSuperblock, Superblock};
use parext4_format::{ChecksumSeed, GroupNo, InodeNo, bitmap};
use proptest::prelude::*;
use zerocopy::FromZeros;

use crate::image::Image;

/// Offset of the feature bit for checksums, which no checksum protects.
const METADATA_CSUM_BYTE: usize = 0x65;

type Change<T> = fn(&mut T);

/// Calls `parse` with each byte of `bytes` changed in two ways.
fn flip_each_byte(bytes: &[u8], mut parse: impl FnMut(usize, &[u8])) {
    for at in 0..bytes.len() {
        for mask in [0x01, 0xff] {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= mask;
            parse(at, &bytes);
        }
    }
}

#[test]
fn checksums_notice_each_changed_byte() {
    let Some(image) = Image::make(&["-b", "1024"], None) else { return };
    let sb = &image.sb;
    flip_each_byte(&image.bytes[1024..2048], |at, bytes| {
        let parsed = Superblock::parse(bytes);
        assert!(parsed.is_err() || (at == METADATA_CSUM_BYTE && bytes[at] & 4 == 0), "byte {at}");
    });
    flip_each_byte(image.desc_bytes(1), |at, bytes| {
        assert!(GroupDesc::parse(bytes, sb, GroupNo(1)).is_err(), "byte {at}");
    });
    flip_each_byte(image.inode_bytes(2), |at, bytes| {
        assert!(Inode::parse(bytes, sb, InodeNo::ROOT).is_err(), "byte {at}");
    });
    assert!(GroupDesc::parse(image.desc_bytes(1), sb, GroupNo(2)).is_err());
    assert!(Inode::parse(image.inode_bytes(2), sb, InodeNo(3)).is_err());
}

#[test]
fn crc16_notices_each_changed_byte_of_a_descriptor() {
    let Some(image) = Image::make(&["-b", "1024", "-O", "^metadata_csum,uninit_bg"], None) else { return };
    flip_each_byte(image.desc_bytes(1), |at, bytes| {
        assert!(GroupDesc::parse(bytes, &image.sb, GroupNo(1)).is_err(), "byte {at}");
    });
}

#[test]
fn without_checksums_nothing_panics() {
    let Some(image) = Image::make(&["-b", "1024", "-O", "^metadata_csum,^uninit_bg"], None) else { return };
    flip_each_byte(&image.bytes[1024..2048], |_, bytes| {
        if let Ok(sb) = Superblock::parse(bytes) {
            use_superblock(&sb);
        }
    });
    flip_each_byte(image.desc_bytes(1), |_, bytes| use_desc(bytes, &image.sb));
    flip_each_byte(image.inode_bytes(2), |_, bytes| use_inode(bytes, &image.sb));
}

#[test]
fn geometry_errors_name_the_field() {
    let cases: [(&str, Change<RawSuperblock>); 11] = [
        ("s_rev_level", |raw| raw.s_rev_level.set(2)),
        ("s_creator_os", |raw| raw.s_creator_os.set(1)),
        ("s_first_meta_bg", |raw| {
            raw.s_feature_incompat.set(0x2d2);
            raw.s_first_meta_bg.set(2);
        }),
        ("s_log_block_size", |raw| raw.s_log_block_size.set(7)),
        ("s_first_data_block", |raw| raw.s_first_data_block.set(0)),
        ("s_blocks_per_group", |raw| raw.s_blocks_per_group.set(8200)),
        ("s_inodes_per_group", |raw| raw.s_inodes_per_group.set(0)),
        ("s_inodes_count", |raw| raw.s_inodes_count.set(u32::MAX)),
        ("s_blocks_count", |raw| raw.s_blocks_count_hi.set(u32::MAX)),
        ("s_desc_size", |raw| raw.s_desc_size.set(0)),
        ("s_inode_size", |raw| raw.s_inode_size.set(2048)),
    ];
    for (field, damage) in cases {
        let mut raw = valid_superblock();
        damage(&mut raw);
        assert_eq!(Superblock::from_raw(raw).unwrap_err().field, field);
    }
}

#[test]
fn features_decide_the_access() {
    let with = |change: Change<Superblock>| {
        let mut sb = Superblock::from_raw(valid_superblock()).unwrap();
        change(&mut sb);
        sb.access()
    };
    assert_eq!(with(|_| ()), Ok(Access::ReadWrite));
    assert_eq!(
        with(|sb| sb
            .set_ro_compat(sb.ro_compat() | RoCompat::SHARED_BLOCKS | RoCompat::from_bits_retain(1 << 31))),
        Ok(Access::ReadOnly {
            because: vec!["shared_blocks".to_owned(), "ro_compat bit 0x80000000".to_owned()]
        })
    );
    assert_eq!(with(|sb| sb.set_compat(sb.compat() | Compat::FAST_COMMIT)), Ok(Access::ReadWrite));
    assert_eq!(with(|sb| sb.set_incompat(sb.incompat() - Incompat::EXTENTS)), Ok(Access::ReadWrite));
    assert_eq!(
        with(|sb| sb.set_incompat((sb.incompat() - Incompat::EXTENTS) | Incompat::INLINE_DATA)),
        Ok(Access::ReadWrite)
    );
    let refused: [(&str, Change<Superblock>); 2] = [
        ("dirdata", |sb| sb.set_incompat(sb.incompat() | Incompat::DIRDATA)),
        ("incompat bit 0x40000000", |sb| {
            sb.set_incompat(sb.incompat() | Incompat::from_bits_retain(1 << 30));
        }),
    ];
    for (name, change) in refused {
        assert!(with(change).unwrap_err().to_string().contains(name), "{name}");
    }
}

/// Three groups of 1 KiB blocks, with the features that mke2fs sets.
pub fn valid_superblock() -> RawSuperblock {
    let mut raw = RawSuperblock::new_zeroed();
    raw.s_magic.set(0xef53);
    raw.s_rev_level.set(1);
    raw.s_first_data_block.set(1);
    raw.s_blocks_per_group.set(8192);
    raw.s_clusters_per_group.set(8192);
    raw.s_inodes_per_group.set(2048);
    raw.s_blocks_count_lo.set(20000);
    raw.s_inodes_count.set(3 * 2048);
    raw.s_first_ino.set(11);
    raw.s_inode_size.set(256);
    raw.s_desc_size.set(64);
    raw.s_checksum_type = 1;
    raw.s_min_extra_isize.set(32);
    raw.s_want_extra_isize.set(32);
    raw.s_feature_incompat.set(0x2c2);
    raw.s_feature_ro_compat.set(0x6b);
    raw
}

/// Calls all accessors of an accepted superblock that compute.
fn use_superblock(sb: &Superblock) {
    let mut out = [0; Superblock::SIZE];
    sb.encode(&mut out);
    let table = u64::from(sb.table_gdt_blocks()) + u64::from(sb.reserved_gdt_blocks());
    assert!(
        sb.group_count() > 0
            && sb.gdt_blocks() > 0
            && table < u64::from(u32::MAX)
            && sb.inode_table_blocks() > 0
            && sb.groups_per_flex() > 0
    );
    for group in [0, 1, sb.group_count() - 1, u32::MAX] {
        let _ = (sb.has_backup(GroupNo(group)), sb.base_blocks(GroupNo(group)));
    }
    for nr in [0, 1, sb.gdt_blocks() - 1] {
        assert!(sb.gdt_block(nr).get() > 0);
    }
    let _ = (sb.label(), sb.checksum_seed(), sb.access(), sb.feature_names());
    let _ = Inode::new(0o100_644, sb);
}

fn use_desc(bytes: &[u8], sb: &Superblock) {
    if let Ok(desc) = GroupDesc::parse(bytes, sb, GroupNo(1)) {
        let mut out = bytes.to_vec();
        desc.encode(&mut out, sb, GroupNo(1));
        assert_eq!(out, bytes);
        let _ = bitmap::verify_block_bitmap(&desc, bytes, sb);
        let _ = bitmap::verify_inode_bitmap(&desc, bytes, sb);
    }
}

fn use_inode(bytes: &[u8], sb: &Superblock) {
    if let Ok(inode) = Inode::parse(bytes, sb, InodeNo(12)) {
        let mut out = vec![0; sb.inode_size().into()];
        inode.encode(&mut out, sb, InodeNo(12));
        let mut again = Inode::parse(&out, sb, InodeNo(12)).unwrap();
        let essence =
            |inode: &Inode| (inode.size, inode.blocks, inode.mtime, inode.crtime, inode.uid, inode.block);
        assert_eq!(essence(&again), essence(&inode));
        let _ = (inode.is_fast_symlink(), inode.rdev(), inode.xattr_area(), again.xattr_area_mut());
    }
}

fn use_node(bytes: &[u8]) {
    let mut out = vec![0; bytes.len()];
    match extent::parse_node(bytes, None) {
        Ok(ExtentNode::Leaf(extents)) => extent::encode_leaf(&mut out, &extents),
        Ok(ExtentNode::Index { depth, entries }) => extent::encode_index(&mut out, depth, &entries),
        Err(_) => return,
    }
    assert_eq!(extent::parse_node(&out, None).unwrap(), extent::parse_node(bytes, None).unwrap());
    let _ = extent::verify_block(ChecksumSeed(0), bytes);
}

proptest! {
    #[test]
    fn superblocks(
        damage in prop::collection::vec((0..0x280_usize, any::<u8>()), 0..4),
        checksums in any::<bool>(),
        rest in prop::collection::vec(any::<u8>(), 2048),
    ) {
        let mut bytes = [0; Superblock::SIZE];
        Superblock::from_raw(valid_superblock()).unwrap().encode(&mut bytes);
        bytes[METADATA_CSUM_BYTE] |= if checksums { 4 } else { 0 };
        for (at, value) in damage {
            bytes[at] = value;
        }
        Superblock::seal(&mut bytes);
        if let Ok(sb) = Superblock::parse(&bytes) {
            use_superblock(&sb);
            use_desc(&rest, &sb);
            use_inode(&rest, &sb);
        }
    }

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
        let sb = Superblock::from_raw(valid_superblock()).unwrap();
        let _ = Superblock::parse(&bytes);
        use_inode(&bytes, &sb);
        let _ = GroupDesc::parse(&bytes, &sb, GroupNo(0));
        let _ = extent::parse_node(&bytes, Some(0));
        let _ = extent::verify_block(ChecksumSeed(0), &bytes);
    }

    #[test]
    fn inodes(mut bytes in prop::collection::vec(any::<u8>(), 256), extra in 0..=132_u8) {
        // Plausible values for the fields that would otherwise fail in nearly every case.
        let sb = Superblock::from_raw(valid_superblock()).unwrap();
        (bytes[1], bytes[128], bytes[129]) = (0x81, extra, 0);
        bytes[0x6c..0x70].fill(0);
        use_inode(&bytes, &sb);
    }

    #[test]
    fn extent_nodes(
        mut bytes in prop::collection::vec(any::<u8>(), 1024),
        root in any::<bool>(),
        (entries, max, depth) in (0..6_u8, 0..90_u8, 0..7_u8),
    ) {
        bytes.truncate(if root { extent::ROOT_SIZE } else { 1024 });
        bytes[..8].copy_from_slice(&[0x0a, 0xf3, entries, 0, max, 0, depth, 0]);
        for (i, entry) in bytes[12..].chunks_exact_mut(12).take(8).enumerate() {
            // Sorted, so that more than one entry passes. An index entry ends with two unused
            // bytes.
            entry[3] = u8::try_from(i).unwrap() * 31;
        }
        use_node(&bytes);
    }

    #[test]
    fn bitmaps(bytes in prop::collection::vec(any::<u8>(), 0..40), from in 0..400_u32, limit in 0..400_u32) {
        let end = limit.min(u32::try_from(bytes.len()).unwrap() * 8);
        let clear = |&bit: &u32| !bitmap::test(&bytes, bit);
        prop_assert_eq!(bitmap::next_zero(&bytes, from, limit), (from..end).find(clear));
        prop_assert_eq!(bitmap::next_set(&bytes, from, limit), (from..end).find(|bit| !clear(bit)));
        prop_assert_eq!(bitmap::count_zeros(&bytes, limit) as usize, (0..end).filter(clear).count());
        let runs: Vec<u32> = bitmap::free_runs(&bytes, 0, limit).flat_map(|(start, len)| start..start + len).collect();
        prop_assert_eq!(runs, (0..end).filter(clear).collect::<Vec<_>>());
    }
}
