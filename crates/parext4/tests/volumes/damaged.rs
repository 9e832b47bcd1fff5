//! Volumes with damage that does not prevent their use: they open where the kernel mounts them.

use std::sync::Arc;

use parext4::{Error, MemDevice, OpenOptions, Volume, VolumeOptions, XattrMode};
use parext4_format::extent::{self, Extent};
use parext4_format::group_desc::{GroupDesc, GroupFlags};
use parext4_format::superblock::Superblock;
use parext4_format::{FileBlock, FsBlock, GroupNo, InodeNo, inode};

use testkit::Image;
use testkit::volume::{DirectFiles as _, findings, untimed};

/// Offset of the descriptors of a volume with 1 KiB blocks.
const DESCRIPTORS: usize = 2048;

fn superblock(bytes: &[u8]) -> Superblock {
    Superblock::parse(&bytes[1024..2048]).unwrap()
}

/// The kernel mounts such a volume read-only (`ext4_check_descriptors`).
#[test]
fn a_bad_group_descriptor_does_not_keep_from_reading() {
    let Some(image) = Image::mke2fs(24, &["-b", "1024"]) else { return };
    let volume = image.open();
    volume.create_direct("/file").unwrap().write_all_at(&[5; 1024], 0).unwrap();
    volume.close().unwrap();
    let mut bytes = std::fs::read(image.path()).unwrap();
    let size = usize::from(superblock(&bytes).desc_size());
    // `bg_free_blocks_count_lo` of the last group.
    let group = superblock(&bytes).group_count() as usize - 1;
    bytes[DESCRIPTORS + group * size + 0x0c..][..2].fill(0xff);
    let device = Arc::new(MemDevice::from_bytes(bytes));
    assert!(matches!(Volume::open_device(Arc::clone(&device) as _, &untimed()), Err(Error::Corrupt(_))));
    let volume = Volume::open_device(device, &VolumeOptions::new().read_only(true)).unwrap();
    let mut seen = [0; 1024];
    volume.direct_file("/file").unwrap().read_at(&mut seen, 0).unwrap();
    assert_eq!(seen, [5; 1024]);
}

/// Without a checksum, the kernel neither reads nor writes `bg_itable_unused`.
#[test]
fn without_group_checksums_unused_counts_stay_unchanged() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", "^metadata_csum,^uninit_bg"]) else { return };
    let mut bytes = std::fs::read(image.path()).unwrap();
    let desc = |bytes: &[u8]| {
        let superblock = superblock(bytes);
        GroupDesc::parse(&bytes[DESCRIPTORS..], &superblock, GroupNo(0)).unwrap()
    };
    // `bg_itable_unused_lo` of the first group.
    bytes[DESCRIPTORS + 0x1c..][..2].copy_from_slice(&u16::MAX.to_le_bytes());
    let before = desc(&bytes);
    let device = Arc::new(MemDevice::from_bytes(bytes));
    let volume = Volume::open_device(Arc::clone(&device) as _, &untimed()).unwrap();
    for n in 0..20 {
        volume.create_direct(format!("/{n}")).unwrap();
    }
    volume.close().unwrap();
    let after = desc(&device.snapshot());
    assert!(after.free_inodes < before.free_inodes);
    assert_eq!((before.itable_unused, after.itable_unused), (u16::MAX.into(), u16::MAX.into()));
}

/// As in the kernel and e2fsck, a group that was never used has no inodes, whatever
/// `bg_itable_unused` says. Otherwise e2fsck would find inodes in old bytes of its table.
#[test]
fn the_unused_count_of_an_unused_group_has_no_meaning() {
    const GROUP: GroupNo = GroupNo(1);
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", "^flex_bg"]) else { return };
    let mut bytes = std::fs::read(image.path()).unwrap();
    let superblock = superblock(&bytes);
    let size = usize::from(superblock.desc_size());
    let place = DESCRIPTORS + GROUP.get() as usize * size..DESCRIPTORS + (GROUP.get() as usize + 1) * size;
    let mut desc = GroupDesc::parse(&bytes[place.clone()], &superblock, GROUP).unwrap();
    assert!(desc.flags.contains(GroupFlags::INODE_UNINIT));
    desc.flags.remove(GroupFlags::ITABLE_ZEROED);
    desc.itable_unused = 5;
    desc.encode(&mut bytes[place.clone()], &superblock, GROUP);
    // Old bytes, in all of the table.
    let table = usize::try_from(desc.inode_table.get()).unwrap() * 1024;
    let len = superblock.inodes_per_group() as usize * usize::from(superblock.inode_size());
    bytes[table..table + len].fill(0xb1);
    std::fs::write(image.path(), &bytes).unwrap();
    image.fsck();
    let volume = image.open();
    // In the group with the fewest directories.
    drop(volume.create_dir("/dir", 0o755).unwrap());
    volume.close().unwrap();
    let bytes = std::fs::read(image.path()).unwrap();
    let desc = GroupDesc::parse(&bytes[place], &superblock, GROUP).unwrap();
    assert!(desc.used_dirs == 1 && desc.itable_unused == superblock.inodes_per_group() - 1, "{desc:?}");
    image.fsck();
}

/// `ext4_try_to_expand_extra_isize`.
#[test]
fn a_changed_inode_gets_all_extra_fields() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-I", "256"]) else { return };
    let volume = image.open();
    for path in ["/changed", "/kept"] {
        volume.create_direct(path).unwrap();
    }
    volume.close().unwrap();
    for path in ["/changed", "/kept"] {
        image.debugfs_write(&format!("sif {path} extra_isize 4"));
    }
    let extra = |path| {
        let stat = image.debugfs(&format!("stat {path}"));
        let line = stat.lines().find_map(|line| line.strip_prefix("Size of extra inode fields: "));
        line.and_then(|size| size.trim().parse::<u32>().ok())
    };
    if extra("/kept") != Some(4) {
        return;
    }
    let volume = image.open();
    volume.direct_file("/kept").unwrap();
    volume.direct_file("/changed").unwrap().write_all_at(&[1; 100], 0).unwrap_or_default();
    volume.direct_file("/changed").unwrap().set_len(5).unwrap();
    volume.close().unwrap();
    assert_eq!((extra("/changed"), extra("/kept")), (Some(32), Some(4)));
    image.fsck();
}

/// `ext4_expand_extra_isize_ea`: attributes move from the inode to the block until the fields fit;
/// if a large value fills the block, there is room only for the fields that all inodes of the
/// volume shall have.
#[test]
fn attributes_move_to_the_block_for_extra_fields() {
    for (name, value, expected) in [("fits", 2, 720), ("too-large", 956, 656)] {
        let Some(image) = Image::mke2fs(16, &["-b", "1024", "-I", "1024"]) else { return };
        let set = |field: &str, value: u32| image.debugfs_write(&format!("ssv {field} {value}"));
        set("want_extra_isize", 640);
        set("min_extra_isize", 640);
        let path = format!("/{name}");
        let volume = image.open();
        let node = volume.create_direct(&path).unwrap().inode_ref().clone();
        let xattrs = (0..8).map(|nth| format!("user.{nth}")).collect::<Vec<_>>();
        for xattr in &xattrs {
            node.set_xattr(xattr.as_bytes(), b"aa", XattrMode::Any).unwrap();
        }
        // A large value fills the block.
        node.set_xattr(b"user.block", &vec![7; value], XattrMode::Any).unwrap();
        drop(node);
        volume.close().unwrap();
        set("want_extra_isize", 720);
        set("min_extra_isize", 656);
        let extra = || {
            let stat = image.debugfs(&format!("stat {path}"));
            let line = stat.lines().find_map(|line| line.strip_prefix("Size of extra inode fields: "));
            line.and_then(|size| size.trim().parse::<u32>().ok())
        };
        if extra() != Some(640) {
            return;
        }
        let volume = image.open();
        volume.resolve(&path).unwrap().get_xattr(b"user.0").unwrap();
        volume.sync().unwrap();
        assert_eq!(extra(), Some(640), "reading changes nothing");
        volume.open_file(&path, &OpenOptions::read_write()).unwrap().write_all_at(b"aaaa", 0).unwrap();
        volume.close().unwrap();
        assert_eq!(extra(), Some(expected), "{name}");
        image.fsck();
        let node = image.open().resolve(&path).unwrap();
        for xattr in &xattrs {
            assert_eq!(node.get_xattr(xattr.as_bytes()).unwrap().as_deref(), Some(&b"aa"[..]), "{xattr}");
        }
    }
}

/// Makes an inode with fewer extra fields than new ones have, followed by attributes.
#[test]
fn attributes_make_room_for_extra_fields() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-I", "256"]) else { return };
    let superblock = superblock(&std::fs::read(image.path()).unwrap());
    for (len, fits) in [(10, true), (72, false)] {
        let mut inode = inode::Inode::new(0o100_644, &superblock);
        inode.extra_isize = 4;
        let list = vec![parext4_format::xattr::Xattr {
            name_index: 1,
            name: b"a".to_vec(),
            value: vec![7; len].into(),
        }];
        let area = inode.xattr_area().len();
        let body = parext4_format::xattr::encode_ibody(&list, area).unwrap();
        inode.xattr_area_mut().copy_from_slice(&body);
        assert_eq!(inode.expand_extra(32), fits);
        assert_eq!(inode.extra_isize, if fits { 32 } else { 4 });
        let mut bytes = vec![0; 256];
        inode.encode(&mut bytes, &superblock, InodeNo(12));
        let again = inode::Inode::parse(&bytes, &superblock, InodeNo(12)).unwrap();
        assert_eq!(parext4_format::xattr::parse_ibody(again.xattr_area()).unwrap(), list);
    }
}

/// Makes a volume with all files that the superblock names. Returns their inodes besides the
/// reserved ones.
fn with_own_files() -> Option<(Image, Vec<u32>)> {
    let features = "quota,project,orphan_file,^metadata_csum,^uninit_bg";
    let options = ["-b", "1024", "-O", features, "-E"];
    let image = Image::mke2fs(16, &[&options[..], &["quotatype=usrquota:grpquota:prjquota"]].concat())?;
    let superblock = superblock(&std::fs::read(image.path()).unwrap());
    let own: Vec<u32> = superblock.own_files().map(InodeNo::get).collect();
    assert_eq!(own.len(), 2);
    Some((image, own))
}

/// A bitmap with a right count marks an inode free that the superblock names, or a reserved one: no
/// new file gets it, and no new file clears its block of the table.
#[test]
fn a_bitmap_that_marks_an_own_inode_free_allocates_nothing() {
    let Some((sound, own)) = with_own_files() else { return };
    let bytes = std::fs::read(sound.path()).unwrap();
    let superblock = superblock(&bytes);
    let of_group = GroupDesc::parse(&bytes[DESCRIPTORS..], &superblock, GroupNo(0)).unwrap().free_inodes + 1;
    let free = superblock.free_inodes() + 1;
    for ino in own.into_iter().chain([2, 3, 4, 7, 8]) {
        let image = Image::of(&sound.load());
        let before = image.debugfs(&format!("stat <{ino}>"));
        for request in [
            format!("freei <{ino}>"),
            format!("set_bg 0 free_inodes_count {of_group}"),
            format!("ssv free_inodes_count {free}"),
        ] {
            image.debugfs_write(&request);
        }
        let volume = image.open();
        for n in 0..3 {
            match volume.write(format!("/{n}"), b"data") {
                Err(Error::Corrupt(problem)) => {
                    let problem = problem.to_string();
                    assert!(problem.contains(&format!("inode {ino} of the file system itself")), "{problem}");
                }
                other => panic!("inode {ino}: {other:?}"),
            }
        }
        volume.close().unwrap();
        assert_eq!(image.debugfs(&format!("stat <{ino}>")), before, "inode {ino}");
    }
}

/// Entries that name inodes of the file system itself: nothing opens, renames or removes them.
#[test]
fn no_entry_leads_to_an_own_inode() {
    let Some((image, own)) = with_own_files() else { return };
    let inodes: Vec<u32> = own.into_iter().chain([3, 4, 7, 8]).collect();
    let stat = |ino: &u32| image.debugfs(&format!("stat <{ino}>"));
    for ino in &inodes {
        image.debugfs_write(&format!("ln <{ino}> /n{ino}"));
    }
    let before: Vec<String> = inodes.iter().map(stat).collect();
    let volume = image.open();
    volume.write("/file", b"data").unwrap();
    for ino in &inodes {
        let path = format!("/n{ino}");
        for result in [
            volume.remove_file(&path),
            volume.write(&path, b"data"),
            volume.rename(&path, "/other"),
            volume.rename("/file", &path),
            volume.hard_link(&path, "/again"),
            volume.direct_file(&path).map(drop),
        ] {
            assert!(matches!(result, Err(Error::Corrupt(_))), "{path}: {result:?}");
        }
    }
    volume.close().unwrap();
    assert_eq!(inodes.iter().map(stat).collect::<Vec<_>>(), before);
}

/// Four extents of the same 10,000 blocks on a volume of 32,768 blocks. With half a million,
/// `fiemap` took 400 MiB.
#[test]
fn a_file_that_maps_more_blocks_than_the_volume_has_is_damaged_on_a_read_only_volume_too() {
    let options = ["-b", "1024", "-O", "^metadata_csum,^uninit_bg,^has_journal"];
    let Some(image) = Image::mke2fs(32, &options) else { return };
    let volume = image.open();
    assert_eq!(volume.create_direct("/file").unwrap().inode_ref().ino(), InodeNo(12));
    volume.close().unwrap();
    let mut bytes = std::fs::read(image.path()).unwrap();
    let superblock = superblock(&bytes);
    let table = GroupDesc::parse(&bytes[DESCRIPTORS..], &superblock, GroupNo(0)).unwrap().inode_table;
    let inode = usize::try_from(table.get()).unwrap() * 1024 + 11 * usize::from(superblock.inode_size());
    let extent = |n: u32| Extent {
        logical: FileBlock(n * 10_000),
        physical: FsBlock(9000),
        len: 10_000,
        unwritten: false,
    };
    bytes[inode + 4..][..4].copy_from_slice(&(40_000_u32 << 10).to_le_bytes());
    extent::encode_leaf(&mut bytes[inode + 40..][..60], &[0, 1, 2, 3].map(extent));
    let found = findings(&MemDevice::from_bytes(bytes.clone()));
    let expected = "maps more blocks than the volume has";
    assert!(found.iter().any(|line| line.contains(expected)), "{found:?}");
    let device = Arc::new(MemDevice::from_bytes(bytes));
    let volume = Volume::open_device(device, &VolumeOptions::new().read_only(true)).unwrap();
    let error = volume.direct_file("/file").and_then(|file| file.data_range(0)).unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
}

/// Otherwise the next new inode of the group would get the number, and zero the inodes beside it.
#[test]
fn an_inode_whose_bitmap_says_that_it_is_free_is_not_used_for_writing() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", "^has_journal"]) else { return };
    let volume = image.open();
    for name in ["/one", "/two"] {
        volume.create_direct(name).unwrap().write_all_at(&[5; 1024], 0).unwrap();
    }
    volume.close().unwrap();
    for name in ["/one", "/two"] {
        image.debugfs_write(&format!("freei {name}"));
    }
    // The count agrees with the bitmap.
    let bytes = std::fs::read(image.path()).unwrap();
    let free = GroupDesc::parse(&bytes[DESCRIPTORS..], &superblock(&bytes), GroupNo(0)).unwrap().free_inodes;
    image.debugfs_write(&format!("set_bg 0 free_inodes_count {}", free + 2));
    image.debugfs_write("set_bg 0 checksum calc");
    let device = MemDevice::from_bytes(std::fs::read(image.path()).unwrap());
    let open = || Volume::open_device(Arc::new(device.fork()), &untimed()).unwrap();
    // The first new inode gets the number of `/one`, and the second one does not get the other
    // number while it is in use.
    let volume = open();
    let two = volume.resolve("/two").unwrap();
    volume.write("/new", "").unwrap();
    let error = volume.write("/newer", "").unwrap_err();
    assert!(error.to_string().contains("was free, but is in use"), "{error}");
    drop((two, volume));
    // Nor is it used once it is offered to new inodes.
    let volume = open();
    volume.write("/new", "").unwrap();
    let Err(error) = volume.resolve("/two") else { panic!("it is used") };
    assert!(matches!(&error, Error::Corrupt(_)) && error.to_string().contains("free"), "{error}");
    drop(volume);
    let volume = Volume::open_device(Arc::new(device), &VolumeOptions::new().read_only(true)).unwrap();
    let mut seen = [0; 1024];
    volume.direct_file("/two").unwrap().read_at(&mut seen, 0).unwrap();
    assert_eq!(seen, [5; 1024]);
}

/// The kernel sums up the groups at mount, and ignores the sums in the superblock.
#[test]
fn impossible_sums_of_free_blocks_and_inodes_are_ignored() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024"]) else { return };
    for request in ["ssv free_blocks_count 4000000000", "ssv free_inodes_count 4000000000"] {
        image.debugfs_write(request);
    }
    let found = findings(&image.load());
    for field in ["s_free_blocks_count", "s_free_inodes_count"] {
        assert!(found.iter().any(|line| line.contains(field)), "{found:?}");
    }
    let volume = Volume::open_device(Arc::new(image.load()), &VolumeOptions::new().read_only(true)).unwrap();
    assert!(volume.space().free_blocks < 16384);
    drop(volume);
    let volume = image.open();
    volume.write("/file", b"data").unwrap();
    volume.close().unwrap();
    image.fsck();
}

#[test]
fn counts_that_no_group_can_have_are_taken_from_its_bitmaps() {
    for features in ["^metadata_csum,^uninit_bg", "metadata_csum"] {
        let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", features]) else { return };
        for count in ["free_inodes_count", "free_blocks_count", "used_dirs_count"] {
            image.debugfs_write(&format!("set_bg 0 {count} 60000"));
        }
        image.debugfs_write("set_bg 0 checksum calc");
        let volume = image.open();
        assert!(volume.space().free_blocks < 16384);
        volume.write("/file", vec![7; 10_000]).unwrap();
        volume.close().unwrap();
        let found = findings(&image.load());
        assert!(found.iter().all(|line| line.contains("bg_used_dirs_count")), "{found:?}");
    }
}

/// Groups that were never used: their bitmaps are made from the layout. The kernel takes the count
/// of blocks from there, too.
#[test]
fn counts_of_bitmaps_that_were_never_written_are_taken_from_the_layout() {
    for (mib, options, count) in [
        (64, &["-O", "metadata_csum"][..], 60_000),
        (64, &["-O", "^metadata_csum,uninit_bg"], 3),
        (256, &["-O", "bigalloc", "-C", "4096"], 9),
    ] {
        let options = [&["-b", "1024", "-N", "1024"][..], options].concat();
        let Some(image) = Image::mke2fs(mib, &options) else { return };
        let mut bytes = std::fs::read(image.path()).unwrap();
        let superblock = superblock(&bytes);
        let unwritten = GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT;
        let mut unused = 0;
        let descs = bytes[DESCRIPTORS..].chunks_mut(superblock.desc_size().into());
        for (group, raw) in (0..superblock.group_count()).map(GroupNo).zip(descs) {
            let mut desc = GroupDesc::parse(raw, &superblock, group).unwrap();
            if desc.flags.contains(unwritten) {
                (desc.free_blocks, desc.free_inodes, desc.used_dirs) = (count, count, count);
                desc.encode(raw, &superblock, group);
                unused += 1;
            }
        }
        assert!(unused > 3, "{options:?}: {unused} groups");
        std::fs::write(image.path(), bytes).unwrap();
        let volume = image.open();
        let room = volume.space().free_blocks;
        assert!(room > mib * 900 && room < mib * 1024, "{options:?}: {room} blocks");
        for dir in 0..superblock.group_count() {
            volume.create_dir(format!("/{dir}"), 0o755).unwrap();
        }
        // Most of the space, so in all groups.
        for file in 0..room * 7 / 8 / 4096 {
            volume.write(format!("/file{file}"), vec![7; 4 << 20]).unwrap();
        }
        volume.close().unwrap();
        image.fsck();
    }
}

/// A read-only mount of the kernel does not read the blocks of an empty log, either.
#[test]
fn a_hole_in_an_empty_journal_does_not_prevent_reading() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", "^extents,^64bit,^metadata_csum"]) else {
        return;
    };
    image.debugfs_write("sif <8> block[IND] 0");
    let open =
        |read_only| Volume::open_device(Arc::new(image.load()), &VolumeOptions::new().read_only(read_only));
    assert!(open(true).unwrap().exists("/lost+found").unwrap());
    assert!(matches!(open(false), Err(Error::Corrupt(_))));
    // A log that needs recovery is needed.
    image.debugfs_write("feature needs_recovery");
    assert!(matches!(open(true), Err(Error::Corrupt(_))));
}
