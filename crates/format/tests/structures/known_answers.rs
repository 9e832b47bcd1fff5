//! Structures that mke2fs wrote are parsed, are consistent, and are encoded to the same bytes.

use std::io::{Seek, SeekFrom, Write};

use parext4_format::extent::{self, ExtentNode};
use parext4_format::features::RoCompat;
use parext4_format::group_desc::GroupFlags;
use parext4_format::inode::{FileType, InodeFlags};
use parext4_format::superblock::Superblock;
use parext4_format::{ChecksumSeed, FsBlock, GroupNo, InodeNo, bitmap};

use crate::image::Image;

#[test]
fn block_sizes() {
    for size in ["1024", "2048", "4096"] {
        check(&["-b", size, "-g", "8192"]);
    }
}

#[test]
fn narrow_descriptors() {
    check(&["-b", "1024", "-O", "^64bit"]);
    check(&["-b", "1024", "-O", "^64bit,^metadata_csum,uninit_bg"]);
}

#[test]
fn checksum_kinds() {
    check(&["-b", "1024", "-O", "^metadata_csum,uninit_bg"]);
    check(&["-b", "1024", "-O", "^metadata_csum,^uninit_bg"]);
    check(&["-b", "1024", "-O", "metadata_csum_seed"]);
}

#[test]
fn other_features() {
    check(&["-b", "1024", "-O", "orphan_file"]);
    check(&["-b", "1024", "-O", "sparse_super2"]);
    check(&["-b", "1024", "-O", "^sparse_super,^resize_inode"]);
    check(&["-b", "1024", "-O", "^flex_bg,^has_journal"]);
    check(&["-b", "1024", "-O", "bigalloc,quota,project"]);
}

#[test]
fn inode_sizes() {
    check(&["-b", "4096", "-I", "128"]);
    check(&["-b", "4096", "-I", "1024"]);
}

fn check(options: &[&str]) {
    let Some(image) = Image::make(options, None) else { return };
    println!("{options:?}");
    superblock(&image);
    backups(&image);
    descriptors(&image);
    for ino in [InodeNo::ROOT, InodeNo(11)] {
        assert_eq!(image.inode(ino.get()).file_type(), FileType::Directory);
        inode(&image, ino);
    }
    if image.sb.journal_inode() != 0 {
        assert_eq!(image.inode(8).file_type(), FileType::Regular);
        inode(&image, InodeNo::JOURNAL);
    }
}

fn superblock(image: &Image) {
    let sb = &image.sb;
    let mut out = [0; Superblock::SIZE];
    sb.encode(&mut out);
    assert_eq!(out, image.bytes[1024..2048]);
    assert_eq!(sb.blocks_count() * u64::from(sb.block_size()), image.bytes.len() as u64);

    let Some(output) = image.ask("dumpe2fs", &["-h"]) else { return };
    let features = output.lines().find_map(|line| line.strip_prefix("Filesystem features:")).unwrap();
    assert_eq!(features.split_whitespace().collect::<Vec<_>>(), sb.feature_names());
}

fn backups(image: &Image) {
    let sb = &image.sb;
    for group in 1..sb.group_count() {
        let first = u64::from(sb.first_data_block()) + u64::from(group) * u64::from(sb.blocks_per_group());
        let found = Superblock::parse(&image.block(first)[..1024]).is_ok();
        assert_eq!(sb.has_backup(GroupNo(group)), found, "group {group}");
    }
}

fn descriptors(image: &Image) {
    let sb = &image.sb;
    let (mut free_blocks, mut free_inodes) = (0, 0);
    for group in 0..sb.group_count() {
        let desc = image.desc(group);
        free_blocks += u64::from(desc.free_blocks);
        free_inodes += desc.free_inodes;
        let mut out = vec![0; sb.desc_size().into()];
        desc.encode(&mut out, sb, GroupNo(group));
        assert_eq!(out, image.desc_bytes(group), "group {group}");

        let bits = image.block(desc.block_bitmap.get());
        bitmap::verify_block_bitmap(&desc, bits, sb).unwrap();
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            assert_eq!(bitmap::count_zeros(bits, sb.clusters_per_group()), desc.free_blocks);
        }
        let bits = image.block(desc.inode_bitmap.get());
        bitmap::verify_inode_bitmap(&desc, bits, sb).unwrap();
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let runs = bitmap::free_runs(bits, 0, sb.inodes_per_group());
            assert_eq!(runs.map(|(_, len)| len).sum::<u32>(), desc.free_inodes);
        }
    }
    let ratio = u64::from(sb.blocks_per_group() / sb.clusters_per_group());
    assert_eq!((free_blocks * ratio, free_inodes), (sb.free_blocks(), sb.free_inodes()));
}

fn inode(image: &Image, ino: InodeNo) {
    let sb = &image.sb;
    let inode = image.inode(ino.get());
    let mut out = vec![0xa5; sb.inode_size().into()];
    inode.encode(&mut out, sb, ino);
    assert_eq!(out, image.inode_bytes(ino.get()), "inode {ino}");

    assert!(inode.flags.contains(InodeFlags::EXTENTS));
    let ExtentNode::Leaf(extents) = extent::parse_node(&inode.block, None).unwrap() else { panic!() };
    let blocks: u32 = extents.iter().map(|extent| extent.len).sum();
    assert_eq!(u64::from(blocks * sb.block_size()), inode.size);
    let mut out = [0; extent::ROOT_SIZE];
    extent::encode_leaf(&mut out, &extents);
    assert_eq!(out, inode.block, "inode {ino}");
}

/// A file with many holes has a tree with blocks of its own.
#[test]
fn extent_blocks() {
    let files = tempfile::tempdir().unwrap();
    let mut file = std::fs::File::create(files.path().join("holes")).unwrap();
    for i in 0..400 {
        file.seek(SeekFrom::Start(i * 16384)).unwrap();
        file.write_all(&[1; 4096]).unwrap();
    }
    let Some(image) = Image::make(&["-b", "1024"], Some(files.path())) else { return };
    let inode = image.inode(12);
    let seed = image.sb.checksum_seed().unwrap().inode(InodeNo(12), inode.generation);
    let mut extents = Vec::new();
    walk(&image, seed, &inode.block, None, &mut extents);
    // e2fsprogs may cut an extent in two, so compare block by block.
    let mapped: Vec<u32> = extents.iter().flat_map(|&(start, len)| start..start + len).collect();
    let written: Vec<u32> = (0..400).flat_map(|i| i * 16..i * 16 + 4).collect();
    assert!(mapped == written, "{extents:?}");
}

fn walk(image: &Image, seed: ChecksumSeed, bytes: &[u8], depth: Option<u16>, found: &mut Vec<(u32, u32)>) {
    let mut out = vec![0; bytes.len()];
    let used = match extent::parse_node(bytes, depth).unwrap() {
        ExtentNode::Leaf(extents) => {
            assert_ne!(depth, None, "the test wants a tree that is deeper");
            found.extend(extents.iter().map(|extent| (extent.logical.get(), extent.len)));
            extent::encode_leaf(&mut out, &extents);
            extents.len()
        }
        ExtentNode::Index { depth, entries } => {
            extent::encode_index(&mut out, depth, &entries);
            for entry in &entries {
                let block = child(image, seed, entry.child);
                walk(image, seed, block, Some(depth - 1), found);
            }
            entries.len()
        }
    };
    // After the last entry e2fsprogs leaves stale bytes.
    assert_eq!(out[..12 + 12 * used], bytes[..12 + 12 * used]);
}

fn child(image: &Image, seed: ChecksumSeed, block: FsBlock) -> &[u8] {
    let bytes = image.block(block.get());
    extent::verify_block(seed, bytes).unwrap();
    let mut sealed = bytes.to_vec();
    extent::seal_block(seed, &mut sealed);
    assert_eq!(sealed, bytes);
    sealed[20] ^= 1;
    assert_eq!(extent::verify_block(seed, &sealed).unwrap_err().field, "checksum");
    bytes
}

/// Revision 0 has no fields for the size of inodes, and gets them with its first feature.
#[test]
fn volumes_of_revision_0_are_read() {
    let Some(image) = Image::make(&["-r", "0", "-O", "none", "-b", "1024"], None) else { return };
    let mut sb = image.sb.clone();
    assert!(sb.is_old_revision() && sb.feature_names().is_empty());
    sb.raw_mut().s_inode_size.set(0);
    sb.raw_mut().s_first_ino.set(0);
    assert_eq!((sb.inode_size(), sb.first_inode()), (128, 11));
    assert_eq!(image.inode(2).file_type(), FileType::Directory);
    for group in 0..sb.group_count() {
        assert!(sb.has_backup(GroupNo(group)));
    }
    sb.set_incompat(sb.incompat());
    assert!(sb.is_old_revision());
    sb.set_ro_compat(RoCompat::LARGE_FILE);
    assert!(!sb.is_old_revision());
    assert_eq!((sb.raw().s_inode_size.get(), sb.raw().s_first_ino.get()), (128, 11));
}

/// The places of descriptors and of their copies, which dumpe2fs prints.
#[test]
fn descriptors_of_meta_groups_are_found() {
    for features in
        ["meta_bg,^resize_inode", "meta_bg,^resize_inode,^sparse_super,^64bit", "sparse_super2,^resize_inode"]
    {
        let Some(image) = Image::make(&["-b", "1024", "-g", "512", "-O", features], None) else { return };
        let Some(text) = image.ask("dumpe2fs", &[]) else { return };
        let sb = &image.sb;
        let mut places = Vec::new();
        for group in 0..sb.group_count() {
            let start = u64::from(sb.first_data_block()) + u64::from(group) * 512;
            let has_super = u64::from(sb.has_backup(GroupNo(group)));
            let copies = u64::from(sb.base_blocks(GroupNo(group))) - has_super;
            places.push((group, (copies > 0).then(|| (start + has_super, start + has_super + copies - 1))));
        }
        let mut found = Vec::new();
        for part in text.split("\nGroup ") {
            let Ok(group) = part.split(':').next().unwrap().parse::<u32>() else { continue };
            let words = part.split_whitespace().skip_while(|word| !word.starts_with("descriptor")).nth(2);
            let blocks = words.filter(|_| part.contains("descriptor")).map(|word| {
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                (first.parse().unwrap(), last.parse().unwrap())
            });
            found.push((group, blocks));
        }
        assert_eq!(places, found, "{features}");
        for nr in 0..sb.gdt_blocks() {
            let group = if features.starts_with("meta") { nr * sb.descs_per_block() } else { 0 };
            let (first, _) = found[group as usize].1.unwrap();
            let offset = if features.starts_with("meta") { 0 } else { u64::from(nr) };
            assert_eq!(sb.gdt_block(nr).get(), first + offset, "{features}: {nr}");
        }
    }
}
