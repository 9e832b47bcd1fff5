//! Large directories.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::{Error, Image, assert_fails, names, new};
use parext4::InodeRef;
use testkit::volume::DirectFiles as _;

fn name(n: u32) -> Vec<u8> {
    format!("file-{n}").into_bytes()
}

fn create_all(dir: &InodeRef, count: u32) {
    for n in 0..count {
        dir.create(&name(n), &new()).unwrap();
    }
}

#[test]
fn a_hundred_thousand_names() {
    const COUNT: u32 = 100_000;
    let Some(image) = Image::mke2fs(256, &["-b", "4096", "-N", "110000"]) else { return };
    let volume = image.open();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    create_all(&dir, COUNT);
    let listed = names(&dir);
    assert_eq!(listed.len(), COUNT as usize, "each name once");
    assert!(listed.iter().cloned().eq((0..COUNT).map(name).collect::<BTreeSet<_>>()));
    for n in 0..COUNT {
        dir.lookup(&name(n)).unwrap();
    }
    assert_fails!(dir.lookup(&name(COUNT)), NotFound);
    for n in (0..COUNT).step_by(2) {
        dir.unlink(&name(n)).unwrap();
    }
    let left: BTreeSet<_> = (1..COUNT).step_by(2).map(name).collect();
    assert!(names(&dir).into_iter().eq(left.iter().cloned()));
    drop(dir);
    volume.close().unwrap();
    image.fsck();
    image.with_kernel(|root| {
        let seen: BTreeSet<Vec<u8>> = std::fs::read_dir(root.join("dir"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_vec())
            .collect();
        assert_eq!(seen, left);
        let last = root.join("dir").join(OsString::from_vec(name(COUNT - 1)));
        assert!(last.symlink_metadata().is_ok());
    });
}

#[test]
fn a_linear_directory_of_many_blocks() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", "^dir_index", "-N", "2048"]) else { return };
    let volume = image.open();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    create_all(&dir, 1000);
    assert_eq!(names(&dir).len(), 1000);
    for n in 0..1000 {
        dir.unlink(&name(n)).unwrap();
    }
    assert!(names(&dir).is_empty());
    drop(dir);
    volume.remove_dir("/dir").unwrap();
    volume.close().unwrap();
    image.fsck();
}

/// Names of 250 bytes: three or four to a leaf, so that the tree gets a second level, and its nodes
/// split.
#[test]
fn two_levels_of_index() {
    for options in [&["-b", "1024"][..], &["-b", "1024", "-O", "^metadata_csum"]] {
        let Some(image) = Image::mke2fs(64, options) else { return };
        let volume = image.open();
        let dir = volume.create_dir("/dir", 0o755).unwrap();
        let first = dir.create(b"first", &new()).unwrap();
        let long = |n: u32| format!("{n:0>250}").into_bytes();
        for n in 0..3000 {
            dir.link(&long(n), &first).unwrap();
        }
        for n in 0..3000 {
            assert_eq!(dir.lookup(&long(n)).unwrap().ino(), first.ino());
        }
        assert_eq!(names(&dir).len(), 3001);
        drop((dir, first));
        volume.close().unwrap();
        image.fsck();
        let dump = image.debugfs("htree_dump /dir");
        assert!(dump.is_empty() || dump.contains("Indirect levels: 1"), "{dump}");

        // An emptied directory can be filled again.
        let volume = image.open();
        let dir = volume.resolve("/dir").unwrap();
        for name in names(&dir) {
            dir.unlink(&name).unwrap();
        }
        create_all(&dir, 500);
        assert_eq!(names(&dir).len(), 500);
        drop(dir);
        volume.close().unwrap();
        image.fsck();
    }
}

/// A directory of 1 KiB blocks has at most about 123 * 126 leaves; then its index is full.
#[test]
fn a_full_index_refuses_names() {
    let Some(image) = Image::mke2fs(64, &["-b", "1024", "-O", "^has_journal"]) else { return };
    let volume = image.open();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    let file = volume.create_direct("/file").unwrap();
    let mut files = vec![file.inode_ref().clone()];
    let mut full = None;
    for n in 0..60_000_u32 {
        if n % 60_000 == 59_999 {
            files.push(volume.create_direct(format!("/file-{n}")).unwrap().inode_ref().clone());
        }
        if let Err(error) = dir.link(format!("{n:0>250}").as_bytes(), files.last().unwrap()) {
            full = Some((n, error));
            break;
        }
    }
    let (count, error) = full.expect("the index gets full");
    assert!(matches!(error, Error::NoSpace), "{error}");
    assert_eq!(names(&dir).len(), count as usize);
    assert!(volume.space().free_blocks > 16 << 10, "it is not the volume that is full");
    drop((dir, file, files));
    volume.close().unwrap();
    image.fsck();
}

#[test]
fn seventy_thousand_subdirectories() {
    const COUNT: u32 = 70_000;
    let Some(image) = Image::mke2fs(256, &["-b", "1024", "-N", "71000"]) else { return };
    let volume = image.open();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    for n in 0..COUNT {
        dir.mkdir(&name(n), &new()).unwrap();
        if n == 64_997 {
            assert_eq!(dir.metadata().links, 65_000);
        }
    }
    assert_eq!(dir.metadata().links, 1);
    for n in (0..COUNT).step_by(7) {
        dir.rmdir(&name(n)).unwrap();
    }
    assert_eq!(dir.metadata().links, 1);
    drop(dir);
    volume.close().unwrap();
    image.fsck();
}

#[test]
fn without_dir_nlink_there_is_a_limit() {
    let Some(image) = Image::mke2fs(256, &["-b", "1024", "-N", "71000", "-O", "^dir_nlink"]) else { return };
    let volume = image.open();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    for n in 0..64_998 {
        dir.mkdir(&name(n), &new()).unwrap();
    }
    assert_fails!(dir.mkdir(b"more", &new()), TooManyLinks);
    dir.rmdir(&name(5)).unwrap();
    dir.mkdir(b"more", &new()).unwrap();
    drop(dir);
    volume.close().unwrap();
    image.fsck();
}
