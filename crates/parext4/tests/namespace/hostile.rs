//! Directories of arbitrary bytes: operations return errors and do not panic.

use std::sync::Arc;

use super::{Image, assert_fails, concurrent::Random, names, new};
use parext4::device::MemDevice;
use parext4::{Error, InodeFlags, InodeRef, RenameMode, Volume, VolumeOptions, XattrMode};
use testkit::volume::{DirectFiles as _, untimed};

/// Runs every operation on a directory, and ignores the results.
fn exercise(volume: &Volume, dir: &InodeRef) {
    let mut after = 0;
    let mut batches = 0;
    while let Ok(batch) = dir.read_dir_after(after) {
        let Some(last) = batch.last() else { break };
        assert!(last.cookie() > after, "the listing goes on");
        after = last.cookie();
        batches += 1;
        assert!(batches < 10_000, "the listing ends");
    }
    let root = volume.root().unwrap();
    for n in 0..40_u32 {
        let name = |what: &str| format!("{what}-É{n:0>198}").into_bytes();
        let _ = dir.lookup(&name("old"));
        let _ = dir.create(&name("new"), &new());
        let _ = dir.mkdir(&name("dir"), &new());
        let _ = dir.rename(&name("old"), &root, &name("moved"), RenameMode::Replace);
        let _ = dir.unlink(&name("old"));
        let listed = dir.read_dir_after(0).ok().and_then(|items| items.into_iter().nth(2));
        let _ = listed.map(|item| dir.unlink(item.name()));
        let _ = dir.lookup(b"..").and_then(|parent| parent.rmdir(b"dir"));
    }
    let _ = root.rename(b"dir", &root, b"moved", RenameMode::Replace);
    let _ =
        volume.create_dir("/to", 0o755).and_then(|to| root.rename(b"moved", &to, b"x", RenameMode::Replace));
}

/// Without checksums, so that only the checks of the structures apply.
#[test]
fn arbitrary_bytes_in_a_directory_cause_no_panic() {
    let kinds = [
        ("^metadata_csum", InodeFlags::empty(), 60),
        ("^metadata_csum,^dir_index", InodeFlags::empty(), 60),
        ("^metadata_csum,large_dir,casefold", InodeFlags::CASEFOLD, 30),
        ("^metadata_csum,encrypt", InodeFlags::ENCRYPT, 30),
    ];
    for (features, flags, seeds) in kinds {
        let Some(image) = Image::mke2fs(8, &["-b", "1024", "-N", "512", "-O", features]) else { return };
        let volume = image.open();
        let dir = volume.create_dir("/dir", 0o755).unwrap();
        if flags.contains(InodeFlags::CASEFOLD) {
            dir.set_flags(dir.flags() | flags).unwrap();
        }
        let file = dir.create(b"file", &new()).unwrap();
        for n in 0..400_u32 {
            dir.link(format!("olD-é{n:0>198}").as_bytes(), &file).unwrap();
        }
        assert_eq!(names(&dir).len(), 401);
        drop((dir, file));
        volume.close().unwrap();
        if flags.contains(InodeFlags::ENCRYPT) {
            image.debugfs_write("set_inode_field /dir flags 0x81800");
        }
        let blocks: Vec<usize> =
            image.debugfs("blocks /dir").split_whitespace().map(|block| block.parse().unwrap()).collect();
        if blocks.is_empty() {
            return;
        }
        let sound = MemDevice::from_bytes(std::fs::read(image.path()).unwrap());
        for seed in 1..=seeds {
            let mut random = Random::new(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
            let mut bytes = sound.snapshot();
            for _ in 0..=random.below(6) {
                // Mostly in the root and the first nodes and entries, which hold most fields.
                let block = match random.below(2) {
                    0 => blocks[0],
                    _ => blocks[usize::try_from(random.below(blocks.len() as u64)).unwrap()],
                };
                let within = if random.below(2) == 0 { 64 } else { 1024 };
                let at = block * 1024 + usize::try_from(random.below(within)).unwrap();
                let value = [0, 1, 0xff, 0x0c, random.below(256)][usize::try_from(random.below(5)).unwrap()];
                bytes[at] = u8::try_from(value).unwrap();
            }
            let options = VolumeOptions::new().commit_interval(None);
            let volume = Volume::open_device(Arc::new(MemDevice::from_bytes(bytes)), &options).unwrap();
            if let Ok(dir) = volume.resolve("/dir") {
                exercise(&volume, &dir);
            }
            let _ = volume.close();
        }
    }
}

/// Each hash of the index says that the leaf continues names of the leaf before it. A batch was
/// then the whole directory.
#[test]
fn a_batch_of_names_is_one_leaf_whatever_the_index_says() {
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-N", "512", "-O", "^metadata_csum"]) else { return };
    let volume = image.open();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    // Elsewhere: a short name could be the fifth of a leaf.
    let file = volume.root().unwrap().create(b"file", &new()).unwrap();
    for n in 0..200 {
        dir.link(format!("{n:0>200}").as_bytes(), &file).unwrap();
    }
    let expected = names(&dir);
    drop((dir, file));
    volume.close().unwrap();
    let blocks = image.debugfs("blocks /dir");
    let Some(root) = blocks.split_whitespace().next() else { return };
    let mut bytes = std::fs::read(image.path()).unwrap();
    let root = &mut bytes[root.parse::<usize>().unwrap() * 1024..][..1024];
    // `count` of the root, and the hashes from the second entry on.
    let count = usize::from(u16::from_le_bytes([root[0x22], root[0x23]]));
    assert!(count > 50);
    (1..count).for_each(|entry| root[0x20 + 8 * entry] |= 1);
    let volume = Volume::open_device(Arc::new(MemDevice::from_bytes(bytes)), &untimed()).unwrap();
    let dir = volume.resolve("/dir").unwrap();
    let mut after = 0;
    loop {
        let batch = dir.read_dir_after(after).unwrap();
        // `.` and `..`, and four names of 200 bytes.
        assert!(batch.len() <= 2 + 4, "{} names at once", batch.len());
        let Some(last) = batch.last() else { break };
        after = last.cookie();
    }
    assert_eq!(names(&dir), expected);
}

/// Each directory has two names for the next one, so there are 65,536 paths to the last.
#[test]
fn a_walk_enters_a_directory_with_several_names_once() {
    const DEPTH: usize = 16;
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-N", "512", "-O", "^metadata_csum"]) else { return };
    let volume = image.open();
    volume.create_dir_all(format!("/top{}", "/a".repeat(DEPTH)), 0o755).unwrap();
    volume.close().unwrap();
    for depth in 1..=DEPTH {
        let above = format!("/top{}", "/a".repeat(depth - 1));
        image.debugfs_write(&format!("ln {above}/a {above}/b"));
    }
    let volume = image.open();
    if !volume.exists("/top/b").unwrap() {
        return;
    }
    let found = volume.walk("/top").unwrap().take(1000).map(|entry| entry.unwrap().path());
    assert_eq!(found.count(), 2 * DEPTH);
}

/// Bytes of an image that are changed and later restored.
struct Damage {
    at: u64,
    original: Vec<u8>,
}

impl Damage {
    /// Inverts bytes of an image.
    fn new(image: &Image, at: u64, len: usize) -> Self {
        let bytes = std::fs::read(image.path()).unwrap();
        let at_index = usize::try_from(at).unwrap();
        let original = bytes[at_index..at_index + len].to_vec();
        let damage = Self { at, original };
        damage.write(image, &damage.original.iter().map(|byte| !byte).collect::<Vec<_>>());
        damage
    }

    fn repair(&self, image: &Image) {
        self.write(image, &self.original);
    }

    fn write(&self, image: &Image, bytes: &[u8]) {
        let file = std::fs::File::options().write(true).open(image.path()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, self.at).unwrap();
    }
}

/// Returns the number after `label` in the output of debugfs.
fn number_after(text: &str, label: &str) -> u64 {
    let rest = text.split(label).nth(1).unwrap_or_else(|| panic!("{label:?} in {text}"));
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Returns the offsets in an image of the leaf of a file's extent tree, of an attribute block, and
/// of the attributes in an inode.
fn places_to_damage(image: &Image) -> [(&'static str, u64); 4] {
    let extents = image.debugfs("ex /leaf");
    // The line of the index entry: "0/ 1 1/ 1 0 - 38 1234 39".
    let index = extents.lines().nth(1).unwrap();
    let leaf: u64 = index.rsplit_once(" - ").unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
    let block_of = |name: &str| number_after(&image.debugfs(&format!("stat {name}")), "File ACL:");
    let place = image.debugfs("imap /body");
    let offset = place.rsplit("0x").next().unwrap().trim();
    let body = number_after(&place, "at block") * 1024 + u64::from_str_radix(offset, 16).unwrap();
    // After 128 bytes, the 32 bytes of fields added later, and the magic: the first entry.
    [
        ("leaf", leaf * 1024),
        ("block", block_of("/block") * 1024),
        ("body", body + 128 + 32 + 4),
        ("dir", block_of("/dir") * 1024),
    ]
}

#[test]
fn an_inode_that_cannot_be_deleted_keeps_its_name() {
    // With checksums, the inode itself would not be read.
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-O", "^metadata_csum"]) else { return };
    let volume = image.open();
    let root = volume.root().unwrap();
    let leaf = volume.create_direct("/leaf").unwrap();
    for block in 0..20 {
        leaf.write_all_at(&[1; 1024], block * 2048).unwrap();
    }
    drop(leaf);
    for (name, len) in [("block", 300), ("body", 3)] {
        let file = volume.create_direct(name).unwrap();
        file.inode_ref().set_xattr(b"user.a", &vec![1; len], XattrMode::Any).unwrap();
    }
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    dir.set_xattr(b"user.a", &[1; 300], XattrMode::Any).unwrap();
    volume.create_dir("/other", 0o755).unwrap();
    for name in ["leaf", "block", "body"] {
        root.link(format!("second-{name}").as_bytes(), &volume.resolve(name).unwrap()).unwrap();
        volume.create_direct(format!("new-{name}")).unwrap();
    }
    drop((root, dir));
    volume.close().unwrap();
    if image.debugfs("stat /").is_empty() {
        return;
    }
    let damage = places_to_damage(&image).map(|(_, at)| Damage::new(&image, at, 8));

    let volume = image.open();
    let root = volume.root().unwrap();
    for name in ["leaf", "block", "body"] {
        // The inode still has another name.
        root.unlink(format!("second-{name}").as_bytes()).unwrap();
        assert_fails!(root.unlink(name.as_bytes()), Corrupt);
        let new_name = format!("new-{name}");
        let replaced = root.rename(new_name.as_bytes(), &root, name.as_bytes(), RenameMode::Replace);
        assert_fails!(replaced, Corrupt);
        assert_eq!(root.lookup(name.as_bytes()).unwrap().metadata().links, 1, "{name}");
    }
    assert_fails!(root.rmdir(b"dir"), Corrupt);
    assert_fails!(root.rename(b"other", &root, b"dir", RenameMode::Replace), Corrupt);
    assert!(volume.stopped().is_none());
    drop(root);
    volume.close().unwrap();
    for place in damage {
        place.repair(&image);
    }
    image.fsck();
    let volume = image.open();
    let root = volume.root().unwrap();
    for name in ["leaf", "block", "body"] {
        root.unlink(name.as_bytes()).unwrap();
    }
    root.rmdir(b"dir").unwrap();
    drop(root);
    volume.close().unwrap();
    image.fsck();
}

/// Lists a directory up to its error. Returns the names.
fn names_before_error(dir: &InodeRef) -> Vec<Vec<u8>> {
    let (mut names, mut after) = (Vec::new(), 0);
    loop {
        match dir.read_dir_after(after) {
            Ok(batch) => {
                after = batch.last().expect("the listing ends with an error").cookie();
                names.extend(batch.iter().map(|item| item.name().to_vec()));
            }
            Err(error) => {
                assert!(matches!(error, Error::Corrupt(_)), "{error}");
                return names;
            }
        }
    }
}

/// In the order of hashes, of offsets, and in an index of many leaves.
#[test]
fn names_before_a_damaged_entry_are_listed() {
    for (features, count) in
        [("^metadata_csum", 8), ("^metadata_csum,^dir_index", 8), ("^metadata_csum", 300)]
    {
        let Some(image) = Image::mke2fs(8, &["-b", "1024", "-N", "512", "-O", features]) else { return };
        let volume = image.open();
        let dir = volume.create_dir("/dir", 0o755).unwrap();
        let file = dir.create(b"first", &new()).unwrap();
        let name = |nth: u32| format!("name-{nth:0>40}").into_bytes();
        (0..count).for_each(|nth| dir.link(&name(nth), &file).unwrap());
        drop((dir, file));
        volume.close().unwrap();
        let mut bytes = std::fs::read(image.path()).unwrap();
        let damaged = name(count - 2);
        let places = bytes.windows(damaged.len()).enumerate().filter(|(_, window)| *window == damaged);
        // The log and old leaves have copies of the entry.
        for at in places.map(|(at, _)| at).collect::<Vec<_>>() {
            bytes[at - 4] = 5;
        }
        let volume = Volume::open_device(Arc::new(MemDevice::from_bytes(bytes)), &untimed()).unwrap();
        let dir = volume.resolve("/dir").unwrap();
        let listed = names_before_error(&dir);
        assert!(!listed.contains(&damaged));
        if count == 8 {
            let mut expected: Vec<Vec<u8>> = [&b"."[..], b"..", b"first"].map(<[u8]>::to_vec).to_vec();
            expected.extend((0..count - 2).map(name));
            let mut sorted = listed.clone();
            sorted.sort();
            assert_eq!(sorted, expected, "{features}");
        }
        assert!(listed.len() > 2, "{features}, {count} names: {} listed", listed.len());
        assert_eq!(names_before_error(&dir), listed, "{features}, {count} names");
    }
}

/// e2fsck permits blocks past the end of a directory, and finds names there, if the superblock
/// does. The kernel and parext4 find none.
#[test]
fn a_directory_with_blocks_past_its_end_neither_grows_nor_goes() {
    const NAMES: usize = 12;
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-O", "^dir_index,^inline_data"]) else { return };
    let volume = image.open();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    let name = |nth: usize| format!("{nth:0>120}").into_bytes();
    (0..NAMES).for_each(|nth| drop(dir.create(&name(nth), &new()).unwrap()));
    assert_eq!(dir.metadata().size, 2048);
    drop(dir);
    volume.close().unwrap();
    image.debugfs_write("ssv prealloc_dir_blocks 8");
    image.debugfs_write("sif /dir size 1024");
    image.fsck();

    let volume = image.open();
    let dir = volume.resolve("/dir").unwrap();
    let listed = names(&dir);
    assert!(!listed.is_empty() && listed.len() < NAMES, "{listed:?}");
    assert_fails!(dir.create(&name(NAMES), &new()), Corrupt);
    dir.unlink(&listed[0]).unwrap();
    dir.create(&listed[0], &new()).unwrap();
    listed.iter().for_each(|name| dir.unlink(name).unwrap());
    assert_fails!(volume.root().unwrap().rmdir(b"dir"), Corrupt);
    drop(dir);
    volume.close().unwrap();
    image.debugfs_write("sif /dir size 2048");
    let volume = image.open();
    assert_eq!(names(&volume.resolve("/dir").unwrap()).len(), NAMES - listed.len());
    volume.close().unwrap();
}

/// The superblock can ask for hashes that an index cannot name.
#[test]
fn new_indexes_have_hashes_that_they_can_name() {
    for version in [0, 1, 2, 3, 4, 5, 6, 200] {
        let Some(image) = Image::mke2fs(8, &["-b", "1024", "-O", "^metadata_csum"]) else { return };
        let mut bytes = std::fs::read(image.path()).unwrap();
        bytes[1024 + 0xfc] = version;
        std::fs::write(image.path(), &bytes).unwrap();
        image.fsck();
        let volume = image.open();
        let dir = volume.create_dir("/dir", 0o755).unwrap();
        // Names of bytes with and without a sign.
        let name = |nth: u32| format!("{nth:0>60}\u{e9}").into_bytes();
        (0..100).for_each(|nth| drop(dir.create(&name(nth), &new()).unwrap()));
        assert!(dir.flags().contains(InodeFlags::INDEX), "{version}");
        drop(dir);
        volume.close().unwrap();
        image.fsck();
        let volume = image.open();
        let dir = volume.resolve("/dir").unwrap();
        assert!((0..100).all(|nth| dir.lookup(&name(nth)).is_ok()) && names(&dir).len() == 100, "{version}");
        drop(dir);
        volume.close().unwrap();
    }
}

/// On a volume of the Hurd, an inode can have a block with the name of the program that serves it,
/// which only e2fsck would find again.
#[test]
fn a_file_with_a_translator_is_not_deleted() {
    let options = ["-b", "1024", "-o", "hurd", "-I", "128", "-O", "^64bit,^metadata_csum,^huge_file,^extent"];
    let Some(image) = Image::mke2fs(8, &options) else { return };
    let volume = image.open();
    for path in ["/served", "/other"] {
        volume.create_direct(path).unwrap().write_all_at(&[1; 1024], 0).unwrap();
    }
    volume.close().unwrap();
    image.debugfs_write("sif /served translator 3000");
    image.debugfs_write("sif /served blocks 4");
    let _ = testkit::tool(std::process::Command::new("e2fsck").arg("-fy").arg(image.path()));
    image.fsck();
    let volume = image.open();
    let root = volume.root().unwrap();
    assert_fails!(root.unlink(b"served"), Unsupported);
    assert_fails!(root.rename(b"other", &root, b"served", RenameMode::Replace), Unsupported);
    root.rename(b"served", &root, b"renamed", RenameMode::Replace).unwrap();
    root.unlink(b"other").unwrap();
    drop(root);
    volume.close().unwrap();
    image.fsck();
}
