//! Renames: which targets they replace, and where directories may move.

use std::sync::Arc;

use parext4::device::{FaultDevice, FaultKind, FaultPlan};
use parext4::server::ServerInode as _;
use parext4::{Device, FileType, InodeNo, InodeRef, RenameMode, Volume};
use testkit::volume::{DirectFiles as _, Shape, untimed};

use super::{Error, Image, assert_fails, names, new, on_each_kind};

const MODES: [RenameMode; 3] = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];

/// Meanings of a name before a rename.
const THINGS: [&str; 4] = ["none", "file", "empty", "full"];

fn make(dir: &InodeRef, name: &[u8], thing: &str) -> Option<InodeNo> {
    match thing {
        "none" => return None,
        "file" => drop(dir.create(name, &new()).unwrap()),
        "empty" => drop(dir.mkdir(name, &new()).unwrap()),
        _ => drop(dir.mkdir(name, &new()).unwrap().create(b"inside", &new()).unwrap()),
    }
    Some(dir.lookup(name).unwrap().ino())
}

/// Returns the errno of Linux, or 0.
fn expected(old: &str, new: &str, mode: RenameMode) -> i32 {
    let is_dir = |thing| matches!(thing, "empty" | "full");
    match (old, new, mode) {
        ("none", ..) => libc::ENOENT,
        (_, "none", RenameMode::Exchange) => libc::ENOENT,
        (_, "none", _) | (_, _, RenameMode::Exchange) => 0,
        (_, _, RenameMode::NoReplace) => libc::EEXIST,
        (_, "full", _) if is_dir(old) => libc::ENOTEMPTY,
        (..) if is_dir(old) && !is_dir(new) => libc::ENOTDIR,
        (..) if is_dir(new) && !is_dir(old) => libc::EISDIR,
        _ => 0,
    }
}

/// Asserts that a directory counts its subdirectories and that their `..` refers to it.
fn check_links(dir: &InodeRef) {
    let subdirs: Vec<InodeRef> = names(dir)
        .iter()
        .map(|name| dir.lookup(name).unwrap())
        .filter(|node| node.read_dir_after(0).is_ok())
        .collect();
    assert_eq!(usize::from(dir.metadata().links), 2 + subdirs.len());
    for subdir in subdirs {
        assert_eq!(subdir.lookup(b"..").unwrap().ino(), dir.ino());
    }
}

fn check_one(volume: &Volume, old: &str, target: &str, mode: RenameMode, crosses: bool) {
    let root = volume.root().unwrap();
    let from = root.mkdir(b"from", &new()).unwrap();
    let to = if crosses { root.mkdir(b"to", &new()).unwrap() } else { from.clone() };
    let (old_ino, new_ino) = (make(&from, b"old", old), make(&to, b"new", target));
    let errno = from.rename(b"old", &to, b"new", mode).map_or_else(|error| error.to_errno(), |()| 0);
    assert_eq!(errno, expected(old, target, mode), "{old} to {target}, {mode:?}, crosses: {crosses}");
    let ino = |dir: &InodeRef, name| dir.lookup(name).ok().map(|node| node.ino());
    let now = (ino(&from, b"old"), ino(&to, b"new"));
    match (errno, mode) {
        (0, RenameMode::Exchange) => assert_eq!(now, (new_ino, old_ino)),
        (0, _) => assert_eq!(now, (None, old_ino)),
        _ => assert_eq!(now, (old_ino, new_ino)),
    }
    check_links(&from);
    check_links(&to);
    for dir in [&from, &to] {
        for name in names(dir) {
            let node = dir.lookup(&name).unwrap();
            let _ = node.unlink(b"inside");
            if dir.rmdir(&name).is_err() {
                dir.unlink(&name).unwrap();
            }
        }
    }
    root.rmdir(b"from").unwrap();
    if crosses {
        root.rmdir(b"to").unwrap();
    }
}

#[test]
fn matrix() {
    on_each_kind(16, |volume| {
        for crosses in [false, true] {
            for mode in MODES {
                for old in THINGS {
                    for target in THINGS {
                        check_one(volume, old, target, mode, crosses);
                    }
                }
            }
        }
    });
}

#[test]
fn to_itself_and_to_a_hard_link() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024"]) else { return };
    let volume = image.open();
    let root = volume.root().unwrap();
    let file = root.create(b"one", &new()).unwrap();
    root.link(b"two", &file).unwrap();
    root.rename(b"one", &root, b"one", RenameMode::Replace).unwrap();
    root.rename(b"one", &root, b"two", RenameMode::Replace).unwrap();
    root.rename(b"one", &root, b"two", RenameMode::Exchange).unwrap();
    assert_fails!(root.rename(b"one", &root, b"one", RenameMode::NoReplace), Exists);
    assert_eq!(file.metadata().links, 2);
    assert_eq!(names(&root), [&b"lost+found"[..], b"one", b"two"]);
    volume.close().unwrap();
    image.fsck();
}

#[test]
fn cycles_are_refused() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024"]) else { return };
    let volume = image.open();
    volume.create_dir_all("/a/b/c", 0o755).unwrap();
    volume.create_direct("/a/b/c/file").unwrap();
    let [root, a, b, c] = ["/", "/a", "/a/b", "/a/b/c"].map(|path| volume.resolve(path).unwrap());
    assert_fails!(root.rename(b"a", &a, b"x", RenameMode::Replace), Invalid);
    assert_fails!(root.rename(b"a", &b, b"x", RenameMode::Replace), Invalid);
    assert_fails!(root.rename(b"a", &c, b"x", RenameMode::NoReplace), Invalid);
    assert_fails!(root.rename(b"a", &c, b"file", RenameMode::Exchange), Invalid);
    assert_fails!(c.rename(b"file", &root, b"a", RenameMode::Exchange), Invalid);
    assert_fails!(b.rename(b"c", &root, b"a", RenameMode::Exchange), Invalid);
    assert_fails!(b.rename(b"c", &root, b"a", RenameMode::Replace), NotEmpty);
    assert_fails!(b.rename(b"c", &a, b"b", RenameMode::Replace), NotEmpty);
    // A move towards the root makes no cycle.
    b.rename(b"c", &root, b"c", RenameMode::Replace).unwrap();
    assert_eq!(c.lookup(b"..").unwrap().ino(), root.ino());
    volume.close().unwrap();
    image.fsck();
}

#[test]
fn a_victim_in_use_lives_on() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024"]) else { return };
    let volume = image.open();
    let root = volume.root().unwrap();
    let victim = volume.create_direct("/new").unwrap();
    victim.write_all_at(&[9; 4096], 0).unwrap();
    volume.create_direct("/old").unwrap();
    volume.rename("/old", "/new").unwrap();
    let mut read = [0; 4096];
    victim.read_at(&mut read, 0).unwrap();
    assert_eq!(read, [9; 4096]);
    assert_eq!(victim.inode_ref().metadata().links, 0);
    let dir = root.mkdir(b"dir", &new()).unwrap();
    root.mkdir(b"other", &new()).unwrap();
    volume.rename("/other", "/dir").unwrap();
    assert!(dir.read_dir_after(0).unwrap().is_empty());
    drop((victim, dir));
    volume.close().unwrap();
    image.fsck();
}

#[test]
fn a_rename_leaves_a_whiteout() {
    on_each_kind(16, |volume| {
        let root = volume.root().unwrap();
        let owner = new().uid(7).gid(8);
        for (crosses, thing, target) in [
            (false, "file", "none"),
            (true, "file", "file"),
            (true, "empty", "none"),
            (false, "full", "empty"),
            (true, "full", "empty"),
        ] {
            let from = root.mkdir(b"from", &new()).unwrap();
            let to = if crosses { root.mkdir(b"to", &new()).unwrap() } else { from.clone() };
            let (old_ino, _) = (make(&from, b"old", thing), make(&to, b"new", target));
            assert_fails!(
                from.rename_with_whiteout(b"old", &to, b"new", RenameMode::Exchange, &owner),
                Invalid
            );
            from.rename_with_whiteout(b"old", &to, b"new", RenameMode::Replace, &owner).unwrap();
            assert_eq!(Some(to.lookup(b"new").unwrap().ino()), old_ino);
            let whiteout = from.lookup(b"old").unwrap().metadata();
            assert_eq!((whiteout.file_type, whiteout.rdev), (FileType::CharDevice, Some((0, 0))));
            assert_eq!((whiteout.permissions, whiteout.links), (0, 1));
            assert_eq!((whiteout.uid, whiteout.gid), (7, 8));
            for dir in [&from, &to] {
                check_links(dir);
            }
            assert_fails!(
                from.rename_with_whiteout(b"old", &to, b"new", RenameMode::NoReplace, &owner),
                Exists
            );
            from.unlink(b"old").unwrap();
            let moved = to.lookup(b"new").unwrap();
            let _ = moved.unlink(b"inside");
            to.rmdir(b"new").or_else(|_| to.unlink(b"new")).unwrap();
            drop((from, to));
            root.rmdir(b"from").unwrap();
            if crosses {
                root.rmdir(b"to").unwrap();
            }
        }
    });
}

/// A directory's `..` is read before the first change.
#[test]
fn a_rename_that_cannot_read_a_directory_changes_nothing_and_the_volume_goes_on() {
    for mode in [RenameMode::Replace, RenameMode::Exchange] {
        let memory = Arc::new(Shape::new(16, 4096, true).make());
        let open = |device: &Arc<dyn Device>| Volume::open_device(Arc::clone(device), &untimed()).unwrap();
        let volume = open(&(Arc::clone(&memory) as _));
        ["/a", "/a/dir", "/b", "/b/dir"]
            .iter()
            .for_each(|path| drop(volume.create_dir(path, 0o755).unwrap()));
        volume.close().unwrap();
        let mut failures = 0;
        for nth in 1.. {
            let device = Arc::new(FaultDevice::new(Arc::new(memory.fork()), FaultPlan::default()));
            let volume = open(&(Arc::clone(&device) as _));
            device.arm(FaultPlan::at(nth).kind(FaultKind::Reads));
            let rename = || volume.resolve("/a")?.rename(b"dir", &volume.resolve("/b")?, b"dir", mode);
            let renamed = rename();
            if device.failed().is_none() {
                renamed.unwrap();
                break;
            }
            failures += u32::from(renamed.is_err());
            assert!(volume.stopped().is_none(), "read {nth}: {renamed:?}");
            assert_eq!(volume.exists("/a/dir").unwrap(), renamed.is_err() || mode == RenameMode::Exchange);
            volume.close().unwrap();
        }
        assert!(failures > 1, "{mode:?}: {failures} renames failed");
    }
}
