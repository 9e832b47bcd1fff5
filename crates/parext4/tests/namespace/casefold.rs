//! Directories that ignore case (`casefold`), checked by e2fsck, whose hashes of folded names are
//! its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Image, assert_fails, names, new};
use parext4::{Error, InodeFlags, InodeRef, MemDevice, RenameMode, Volume, VolumeOptions};
use testkit::settings;
use testkit::volume::untimed;

/// Makes a volume with a directory `/dir` that ignores case.
fn make(mib: u64, options: &[&str], extended: &str) -> Option<Image> {
    let image = Image::mke2fs(mib, &[options, &["-O", "casefold", "-E", extended]].concat())?;
    let volume = image.open();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    dir.set_flags(dir.flags() | InodeFlags::CASEFOLD).unwrap();
    drop(dir);
    volume.close().unwrap();
    Some(image)
}

fn in_dir(image: &Image, test: impl FnOnce(&Volume, &InodeRef)) {
    let volume = image.open();
    test(&volume, &volume.resolve("/dir").unwrap());
    volume.close().unwrap();
    image.fsck();
}

/// Spellings of one name each.
const SPELLINGS: [[&str; 3]; 12] = [
    ["readme", "README", "ReadMe"],
    ["straße", "STRASSE", "strasse"],
    ["\u{1e9e}", "ss", "ß"],
    ["\u{130}", "i\u{307}", "I\u{307}"],
    ["ΟΔΟΣ", "οδος", "οδοσ"],
    ["Ångström", "a\u{30a}ngstro\u{308}m", "\u{212b}NGSTRÖM"],
    ["한글", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}", "한\u{1100}\u{1173}\u{11af}"],
    ["so\u{ad}ft", "SOFT", "s\u{200d}oft"],
    ["e\u{323}\u{301}x", "E\u{301}\u{323}X", "\u{1eb9}\u{301}x"],
    ["ﬃ", "FFI", "ﬀI"],
    ["\u{378}\u{2c2f}A", "\u{378}\u{2c2f}a", "\u{378}\u{2c2f}\u{200b}a"],
    ["\u{1fb7}", "α\u{342}ι", "Α\u{342}Ι"],
];

fn inos(dir: &InodeRef, spellings: &[&str]) -> Vec<u32> {
    spellings.iter().map(|name| dir.lookup(name.as_bytes()).unwrap().ino().get()).collect()
}

#[test]
fn names_are_found_in_every_spelling_and_kept_as_written() {
    for options in [&["-b", "4096"][..], &["-b", "1024"], &["-b", "1024", "-O", "^dir_index"]] {
        let Some(image) = make(16, options, "encoding=utf8") else { return };
        in_dir(&image, |volume, dir| {
            let root = volume.root().unwrap();
            for spellings in SPELLINGS {
                let [a, b, c] = spellings.map(str::as_bytes);
                let file = dir.create(a, &new()).unwrap();
                assert_eq!(inos(dir, &spellings), [file.ino().get(); 3]);
                assert_fails!(dir.create(b, &new()), Exists);
                assert_fails!(dir.mkdir(c, &new()), Exists);
                assert_fails!(dir.link(b, &file), Exists);
                // As in the kernel, a rename to another spelling is one of a name to itself.
                dir.rename(b, dir, c, RenameMode::Replace).unwrap();
                assert_fails!(dir.rename(a, dir, c, RenameMode::NoReplace), Exists);
                assert!(names(dir).contains(&a.to_vec()), "{a:?}");
                dir.unlink(b).unwrap();
                assert_fails!(dir.lookup(a), NotFound);

                // The entry of a replaced inode keeps its spelling.
                dir.create(c, &new()).unwrap();
                let moved = root.create(b"moved", &new()).unwrap();
                root.rename(b"moved", dir, b, RenameMode::Replace).unwrap();
                assert_eq!(dir.lookup(a).unwrap().ino(), moved.ino());
                assert!(names(dir).contains(&c.to_vec()));
                dir.rename(a, &root, b"moved", RenameMode::Replace).unwrap();
                root.rename(b"moved", dir, a, RenameMode::NoReplace).unwrap();
            }
            let mut expected: Vec<_> = SPELLINGS.iter().map(|[a, ..]| a.as_bytes().to_vec()).collect();
            expected.sort();
            assert_eq!(names(dir), expected);
        });
    }
}

#[test]
fn names_that_are_not_utf8() {
    let bad: &[u8] = b"A\xffz";
    let Some(image) = make(16, &["-b", "1024"], "encoding=utf8") else { return };
    in_dir(&image, |_, dir| {
        dir.create(bad, &new()).unwrap();
        dir.create(b"a\xffz", &new()).unwrap();
        assert_eq!(names(dir).len(), 2);
        dir.unlink(bad).unwrap();
        assert_fails!(dir.lookup(bad), NotFound);
        // Other drivers take these for the directory and its parent.
        assert_fails!(dir.create(".\u{200d}".as_bytes(), &new()), Invalid);
        assert_fails!(dir.rmdir("\u{ad}..".as_bytes()), Invalid);
        // All characters are ignored.
        dir.create("\u{200d}".as_bytes(), &new()).unwrap();
        assert_fails!(dir.create("\u{ad}\u{200b}".as_bytes(), &new()), Exists);
    });
    let Some(image) = make(16, &["-b", "1024"], "encoding=utf8,encoding_flags=strict") else { return };
    in_dir(&image, |volume, dir| {
        assert_fails!(dir.create(bad, &new()), Invalid);
        assert_fails!(dir.lookup(bad), Invalid);
        let root = volume.root().unwrap();
        root.create(bad, &new()).unwrap();
        assert_fails!(root.rename(bad, dir, bad, RenameMode::Replace), Invalid);
        assert_fails!(dir.link(bad, &root.lookup(bad).unwrap()), Invalid);
    });
}

#[test]
fn the_flag_changes_only_in_empty_directories() {
    let Some(image) = make(16, &["-b", "1024"], "encoding=utf8") else { return };
    in_dir(&image, |volume, dir| {
        let with = |dir: &InodeRef, on: bool| {
            let mut flags = dir.flags();
            flags.set(InodeFlags::CASEFOLD, on);
            dir.set_flags(flags)
        };
        let sub = dir.mkdir(b"Sub", &new()).unwrap();
        assert!(sub.flags().contains(InodeFlags::CASEFOLD), "it is inherited");
        let file = sub.create(b"File", &new()).unwrap();
        assert!(!file.flags().contains(InodeFlags::CASEFOLD));
        assert_fails!(with(&file, true), Unsupported);
        assert_fails!(with(&sub, false), NotEmpty);
        assert_fails!(with(&volume.root().unwrap(), true), NotEmpty);
        assert_eq!(volume.resolve("/DIR/sub/FILE").map(|node| node.ino()).ok(), None, "the root has case");
        assert_eq!(volume.resolve("/dir/sUB/FILE").unwrap().ino(), file.ino());
        // An emptied directory keeps its tree.
        for n in 0..100 {
            sub.create(format!("NAME-{n:0>60}").as_bytes(), &new()).unwrap();
        }
        for name in names(&sub) {
            sub.unlink(&name).unwrap();
        }
        with(&sub, false).unwrap();
        for n in 0..100 {
            sub.create(format!("Name-{n:0>60}").as_bytes(), &new()).unwrap();
            sub.create(format!("name-{n:0>60}").as_bytes(), &new()).unwrap();
        }
    });
    let Some(image) = Image::mke2fs(8, &[]) else { return };
    let volume = image.open();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    assert_fails!(dir.set_flags(dir.flags() | InodeFlags::CASEFOLD), Unsupported);
}

/// Random operations in a directory that splits often, against a map of folded names. Every name
/// has 60 to 250 bytes and three spellings.
#[test]
fn random_operations() {
    let Some(image) = make(16, &["-b", "1024"], "encoding=utf8") else { return };
    let mut random = testkit::rng::Rng::new(settings::seed("casefold"), 0);
    let spelled = |n: u64, how: u64| {
        let [group, how] = [n % SPELLINGS.len() as u64, how].map(|n| usize::try_from(n).unwrap());
        let tail = format!("{n:x}-{}", ["κόσμε", "ΚΌΣΜΕ", "κο\u{301}σμε"][how]);
        let long = "é".repeat(usize::try_from(20 + n % 70).unwrap());
        format!("{}{tail}{}", SPELLINGS[group][how], if how == 1 { long.to_uppercase() } else { long })
            .into_bytes()
    };
    in_dir(&image, |volume, dir| {
        let root = volume.root().unwrap();
        let first = root.create(b"first", &new()).unwrap();
        let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for _ in 0..4000 {
            let n = random.below(400);
            let name = spelled(n, random.below(3));
            let known = model.contains_key(&n);
            match random.below(5) {
                0..3 => {
                    assert_eq!(dir.link(&name, &first).is_ok(), !known);
                    model.entry(n).or_insert(name);
                }
                3 => {
                    assert_eq!(dir.unlink(&name).is_ok(), known);
                    model.remove(&n);
                }
                _ => {
                    let to = random.below(400);
                    let new_name = spelled(to, random.below(3));
                    let renamed = dir.rename(&name, dir, &new_name, RenameMode::NoReplace).is_ok();
                    assert_eq!(renamed, known && !model.contains_key(&to));
                    if renamed {
                        model.remove(&n);
                        model.insert(to, new_name);
                    }
                }
            }
        }
        let mut expected: Vec<_> = model.values().cloned().collect();
        expected.sort();
        assert_eq!(names(dir), expected);
        for &n in model.keys() {
            assert!((0..3).all(|how| dir.lookup(&spelled(n, how)).is_ok()), "{n}");
        }
    });
    // e2fsck builds the tree again.
    let Some(output) = testkit::tool(std::process::Command::new("e2fsck").arg("-fyD").arg(image.path()))
    else {
        return;
    };
    assert!(output.status.code() <= Some(1), "{output:?}");
    in_dir(&image, |_, dir| {
        for name in names(dir) {
            let upper = String::from_utf8(name).unwrap().to_uppercase();
            dir.unlink(upper.as_bytes()).unwrap();
        }
        assert!(names(dir).is_empty());
    });
}

/// Changes bytes of the superblock of a volume without checksums.
fn with_superblock(image: &Image, at: usize, bytes: &[u8]) -> MemDevice {
    let mut all = std::fs::read(image.path()).unwrap();
    all[1024 + at..1024 + at + bytes.len()].copy_from_slice(bytes);
    MemDevice::from_bytes(all)
}

const INCOMPAT: usize = 0x60;
const ENCODING: usize = 0x27c;
const ENCODING_FLAGS: usize = 0x27e;

#[test]
fn strange_volumes() {
    let Some(image) = make(8, &["-b", "1024", "-O", "^metadata_csum"], "encoding=utf8") else { return };
    let options = VolumeOptions::new().commit_interval(None);
    for encoding in [0_u16, 2, 0xffff] {
        let device = with_superblock(&image, ENCODING, &encoding.to_le_bytes());
        match Volume::open_device(Arc::new(device), &options) {
            Err(Error::Unsupported(text)) => assert!(text.contains("s_encoding"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
    // A directory with the flag on a volume without the feature.
    let incompat = std::fs::read(image.path()).unwrap()[1024 + INCOMPAT + 2] & !2;
    let device = with_superblock(&image, INCOMPAT + 2, &[incompat]);
    let volume = Volume::open_device(Arc::new(device), &options).unwrap();
    let dir = volume.resolve("/dir").unwrap();
    assert_fails!(dir.lookup(b"name"), Corrupt);
    assert_fails!(dir.create(b"name", &new()), Corrupt);
    let dots = dir.read_dir_after(0).unwrap();
    assert_eq!(dots.len(), 2);
    assert_fails!(dir.read_dir_after(dots[1].cookie()), Corrupt);
}

/// Makes a volume with a directory `/dir` that ignores case and has the names `name-0...` to
/// `name-199` and `strange`. Names with U+200D are in the places of other hashes, as versions of
/// Linux have made them that did not ignore it. `None` without e2fsprogs.
fn misplaced(strange: &[String]) -> Option<Image> {
    // One seed, because another can put a name's two hashes into one leaf, where it is not
    // misplaced.
    let extended = "encoding=utf8,hash_seed=01234567-89ab-4def-8123-456789abcdef";
    let image = Image::mke2fs(8, &["-b", "1024", "-O", "casefold,^metadata_csum", "-E", extended])?;
    let volume = image.open();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    for name in (0..200).map(placed).chain(strange.iter().cloned()) {
        dir.create(name.as_bytes(), &new()).unwrap();
    }
    drop(dir);
    volume.close().unwrap();
    // EXT4_CASEFOLD_FL, EXT4_EXTENTS_FL, EXT4_INDEX_FL
    image.debugfs_write("set_inode_field /dir flags 0x40081000");
    (!image.debugfs("stat /dir").is_empty()).then_some(image)
}

fn placed(n: u32) -> String {
    format!("name-{n:0>50}")
}

#[test]
fn misplaced_names_are_found() {
    let strange = ["one", "two", "three", "four", "five", "six"].map(|n| format!("x\u{200d}-{n}"));
    let Some(image) = misplaced(&strange) else { return };
    for (flags, found) in [(0_u16, true), (2, false)] {
        let device = Arc::new(with_superblock(&image, ENCODING_FLAGS, &flags.to_le_bytes()));
        let volume = Volume::open_device(device, &untimed()).unwrap();
        let dir = volume.resolve("/dir").unwrap();
        assert!(dir.lookup(placed(7).to_uppercase().as_bytes()).is_ok());
        let all_found = strange.iter().all(|name| dir.lookup(name.to_uppercase().as_bytes()).is_ok());
        assert_eq!(all_found, found);
        assert_eq!(dir.create(b"X-one", &new()).is_err(), found);
        assert_eq!(dir.unlink(b"x-two").is_ok(), found);
    }
}

/// Opens a volume of [`misplaced`] whose directories may have misplaced names.
fn open_misplaced(image: &Image) -> Volume {
    let device = with_superblock(image, ENCODING_FLAGS, &[0, 0]);
    Volume::open_device(Arc::new(device), &untimed()).unwrap()
}

#[test]
fn misplaced_names_and_the_names_around_them_are_listed_once() {
    let strange: Vec<_> = (0..40).map(|n| format!("x\u{200d}-{n}")).collect();
    let Some(image) = misplaced(&strange) else { return };
    let volume = open_misplaced(&image);
    let mut expected: Vec<_> = (0..200).map(placed).chain(strange).map(String::into_bytes).collect();
    expected.sort();
    assert_eq!(names(&volume.resolve("/dir").unwrap()), expected);
}

/// Fills leaves of misplaced names with long names, until the tree has two levels.
#[test]
fn leaves_of_misplaced_names_split() {
    let strange: Vec<_> = (0..200).map(|n| format!("x\u{200d}-{n:0>40}")).collect();
    let Some(image) = misplaced(&strange) else { return };
    let volume = open_misplaced(&image);
    let dir = volume.resolve("/dir").unwrap();
    let more: Vec<_> = (0..500).map(|n| format!("long-{n:0>240}")).collect();
    for name in &more {
        dir.create(name.as_bytes(), &new()).unwrap();
    }
    let all: Vec<_> = (0..200).map(placed).chain(strange).chain(more).collect();
    assert!(all.iter().all(|name| dir.lookup(name.to_uppercase().as_bytes()).is_ok()));
    let mut expected: Vec<_> = all.into_iter().map(String::into_bytes).collect();
    expected.sort();
    assert_eq!(names(&dir), expected);
}
