//! Directories and symbolic links in inodes: what other programs make of them, and their growth.

use std::collections::BTreeSet;
use std::path::Path;

use parext4::{NewInode, RenameMode, Volume, XattrMode};
use testkit::Image;

use super::{KINDS, is_inline};

fn names(volume: &Volume, path: &str) -> BTreeSet<String> {
    let entries = volume.read_dir(path).unwrap().map(|entry| entry.unwrap());
    let names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    let set: BTreeSet<_> = names.iter().cloned().collect();
    assert_eq!(set.len(), names.len(), "a name is listed twice: {names:?}");
    set
}

/// Each size of a directory, from none to more entries than an inode has room for, on every kind of
/// volume.
#[test]
fn a_directory_grows_out_of_its_inode() {
    for &(inode_size, kind) in KINDS {
        let Some(image) = Image::mke2fs(16, kind) else { return };
        let volume = image.open();
        let root = volume.root().unwrap();
        let entries = inode_size / 12;
        let dir = root.mkdir(b"dir", &NewInode::new().permissions(0o755)).unwrap();
        let mut expected = BTreeSet::new();
        let was_inline = |image: &Image| is_inline(image, "/dir");
        for number in 0..entries {
            let name = format!("e{number}");
            dir.mkdir(name.as_bytes(), &NewInode::new().permissions(0o755)).unwrap();
            expected.insert(name);
            assert_eq!(names(&volume, "/dir"), expected);
        }
        for number in (0..entries).step_by(2) {
            dir.rmdir(format!("e{number}").as_bytes()).unwrap();
            expected.remove(&format!("e{number}"));
        }
        assert_eq!(names(&volume, "/dir"), expected);
        // An inline directory gets another parent, and is exchanged with one.
        for (from, to) in [("e1", "top1"), ("e3", "top3")] {
            dir.rename(from.as_bytes(), &root, to.as_bytes(), RenameMode::Replace).unwrap();
            assert_eq!(root.lookup(to.as_bytes()).unwrap().lookup(b"..").unwrap().ino(), root.ino());
        }
        dir.rename(b"e5", &root, b"top1", RenameMode::Exchange).unwrap();
        assert_eq!(dir.lookup(b"e5").unwrap().lookup(b"..").unwrap().ino(), dir.ino());
        // A new default list leaves room for a subdirectory's entries, or moves them to a block.
        dir.set_xattr(b"user.large", &[1; 60], XattrMode::Any).unwrap();
        let inner = dir.mkdir(b"inner", &NewInode::new().permissions(0o755)).unwrap();
        inner.set_xattr(b"user.note", &[2; 50], XattrMode::Any).unwrap();
        for number in 0..8 {
            inner.create(format!("file{number}").as_bytes(), &NewInode::new()).unwrap();
            inner.unlink(format!("file{number}").as_bytes()).unwrap();
            inner.create(format!("kept{number}").as_bytes(), &NewInode::new()).unwrap();
        }
        assert_eq!(inner.get_xattr(b"user.note").unwrap().unwrap(), [2; 50]);
        drop((root, dir, inner));
        volume.close().unwrap();
        image.fsck();
        assert!(!was_inline(&image));
        assert!(image.debugfs("stat /top3").is_empty() || is_inline(&image, "/top3"));
    }
}

/// Only other programs store a target in the inode that is longer than 59 bytes.
#[test]
fn long_targets_in_the_inode_are_read() {
    let (_, kind) = KINDS[0];
    let Some(image) = Image::mke2fs(16, kind) else { return };
    for len in [59, 60, 61, 100, 120] {
        image.debugfs_write(&format!("symlink link{len} {}", "t".repeat(len)));
    }
    let volume = image.open();
    let links: Vec<String> =
        names(&volume, "/").into_iter().filter(|name| name.starts_with("link")).collect();
    for name in &links {
        let len: usize = name[4..].parse().unwrap();
        let link = volume.resolve_no_follow(format!("/{name}")).unwrap();
        assert_eq!(link.read_link().unwrap(), Path::new(&"t".repeat(len)));
        drop(link);
        volume.remove_file(format!("/{name}")).unwrap();
    }
    volume.close().unwrap();
    image.fsck();
}
