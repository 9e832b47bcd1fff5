//! Encrypted directories without the key, as the kernel shows them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Error, Image, assert_fails, names, new};
use parext4::{FileType, InodeFlags, InodeRef, OpenOptions, RenameMode, SetAttributes, Volume, XattrMode};
use testkit::encrypted;

/// What a listing shows of an entry: its inode, size and target.
type Shown = (u64, u64, Option<Vec<u8>>);

fn shown_by_kernel(dir: &Path, below: &Path, all: &mut BTreeMap<PathBuf, Shown>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, metadata) = (below.join(entry.file_name()), entry.path().symlink_metadata().unwrap());
        if metadata.is_dir() {
            shown_by_kernel(&entry.path(), &path, all);
        }
        let target =
            metadata.is_symlink().then(|| fs::read_link(entry.path()).unwrap().into_os_string().into_vec());
        all.insert(path, (metadata.ino(), metadata.size(), target));
    }
}

fn shown_by_us(volume: &Volume) -> BTreeMap<PathBuf, Shown> {
    let mut all = BTreeMap::new();
    for top in ["/enc", "/tight"] {
        for entry in volume.walk(top).unwrap() {
            let entry = entry.unwrap();
            let node = entry.inode_ref().unwrap();
            assert_eq!(node.ino(), entry.ino());
            let target = (node.file_type() == FileType::Symlink)
                .then(|| node.read_link().unwrap().into_os_string().into_vec());
            let path = entry.path().strip_prefix("/").unwrap().to_owned();
            all.insert(path, (node.ino().get().into(), node.metadata().size, target));
        }
    }
    all
}

/// Returns a file of a directory, with its no-key name.
fn any_file(dir: &InodeRef) -> (Vec<u8>, InodeRef) {
    let is_file = |node: &InodeRef| node.file_type() == FileType::Regular && node.metadata().links == 1;
    names(dir)
        .into_iter()
        .map(|name| (name.clone(), dir.lookup(&name).unwrap()))
        .find(|(_, node)| is_file(node))
        .unwrap()
}

/// Operations that need the key, and operations that do not.
fn operations(volume: &Volume) {
    let (root, dir) = (volume.root().unwrap(), volume.resolve("/enc").unwrap());
    let plain = root.create(b"plain", &new()).unwrap();
    let (name, file) = any_file(&dir);
    let path = PathBuf::from(OsString::from_vec([b"/enc/", &name[..]].concat()));
    for options in
        [OpenOptions::new().read(true), OpenOptions::read_write(), OpenOptions::read_write().truncate(true)]
    {
        assert_fails!(volume.open_file(&path, &options), NoKey);
    }
    assert_fails!(volume.open_direct(&path, &OpenOptions::new().read(true)), NoKey);
    assert_fails!(dir.create(b"new", &new()), NoKey);
    assert_fails!(dir.create(&name, &new()), Exists);
    assert_fails!(dir.mkdir(b"new", &new()), NoKey);
    assert_fails!(dir.symlink(b"new", b"target", &new()), NoKey);
    assert_fails!(dir.link(b"new", &plain), NoKey);
    assert_fails!(dir.rename(&name, &dir, b"new", RenameMode::Replace), NoKey);
    assert_fails!(dir.rename(&name, &root, b"new", RenameMode::Replace), NoKey);
    assert_fails!(root.rename(b"plain", &dir, b"new", RenameMode::Replace), NoKey);
    assert_fails!(root.rename(b"plain", &dir, &name, RenameMode::Replace), NoKey);
    assert_fails!(root.rename(b"plain", &dir, &name, RenameMode::Exchange), NoKey);
    assert_fails!(dir.lookup(b"new"), NotFound);
    assert_fails!(dir.unlink(b"nnnnn"), NotFound);
    // The no-key name of `.`.
    assert_fails!(dir.rmdir(b"AAAAAAAAAAAu"), NotFound);
    assert_fails!(dir.set_flags(dir.flags() ^ InodeFlags::CASEFOLD), NoKey);

    file.set_attributes(&SetAttributes::new().permissions(0o600).uid(7)).unwrap();
    file.set_xattr(b"user.a", &[1; 300], XattrMode::Any).unwrap();
    root.link(b"linked", &file).unwrap();
    assert_eq!(root.lookup(b"linked").unwrap().metadata().links, 2);
    root.unlink(b"linked").unwrap();
    // The directory itself has an ordinary name.
    root.rename(b"enc", &root, b"moved", RenameMode::Replace).unwrap();
    root.rename(b"moved", &root, b"enc", RenameMode::Replace).unwrap();
}

#[test]
fn directories_are_shown_and_emptied_without_the_key() {
    for options in [&["-b", "1024"][..], &["-b", "4096", "-O", "^dir_index,^metadata_csum"]] {
        let Some(image) = Image::mke2fs(16, &[options, &["-O", "encrypt", "-N", "256"]].concat()) else {
            return;
        };
        let mut is_made = false;
        image.with_kernel(|root| is_made = encrypted::make(root, 500));
        if !is_made {
            return;
        }
        let mut expected = BTreeMap::new();
        image.with_kernel(|root| {
            for top in ["enc", "tight"] {
                shown_by_kernel(&root.join(top), Path::new(top), &mut expected);
            }
        });
        let volume = image.open();
        assert_eq!(shown_by_us(&volume), expected);
        operations(&volume);
        assert_eq!(shown_by_us(&volume).len(), expected.len());
        let tight = volume.resolve("/tight").unwrap();
        let big = names(&tight).into_iter().map(|name| tight.lookup(&name).unwrap());
        let big =
            big.max_by_key(
                |node| if node.file_type() == FileType::Directory { node.metadata().size } else { 0 },
            );
        let big = big.unwrap();
        let all = names(&big);
        assert_eq!(all.len(), 500);
        for name in all.iter().step_by(2) {
            big.unlink(name).unwrap();
        }
        drop((big, tight));
        volume.close().unwrap();
        image.fsck();

        // With the key, the rest is as it was.
        image.with_kernel(|root| {
            let shown = encrypted::show(root);
            assert_eq!(shown.lines().filter(|line| line.starts_with("tight/big/")).count(), 250, "{shown}");
            assert!(shown.contains("enc/nnnnn 5\n") && shown.contains("tight/sub/inner 0\n"), "{shown}");
        });
        let volume = image.open();
        volume.remove_dir_all("/tight").unwrap();
        volume.remove_dir_all("/enc").unwrap();
        volume.close().unwrap();
        image.fsck();
    }
}

/// Makes a directory `/dir` of names like encrypted ones, and one that is too short if `short`,
/// then gives it flags.
fn pretend(flags: &str, short: bool) -> Option<Image> {
    let image = Image::mke2fs(8, &["-b", "1024", "-O", "^metadata_csum,encrypt"])?;
    let volume = image.open();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    for n in 0..40 {
        dir.create(format!("{n:0>width$}", width = 16 + n * 6).as_bytes(), &new()).unwrap();
    }
    if short {
        dir.create(b"short", &new()).unwrap();
    }
    drop(dir);
    volume.close().unwrap();
    image.debugfs_write(&format!("set_inode_field /dir flags {flags}"));
    (!image.debugfs("stat /dir").is_empty()).then_some(image)
}

#[test]
fn strange_encrypted_directories() {
    // EXT4_EXTENTS_FL, EXT4_INDEX_FL, EXT4_ENCRYPT_FL, and EXT4_CASEFOLD_FL in the last one.
    for (flags, short) in [("0x81800", true), ("0x81800", false), ("0x40081800", false)] {
        let Some(image) = pretend(flags, short) else { return };
        let volume = image.open();
        let dir = volume.resolve("/dir").unwrap();
        if short {
            let all: Result<Vec<_>, Error> = volume.read_dir("/dir").unwrap().collect();
            assert_fails!(all, Corrupt);
            continue;
        }
        let all = names(&dir);
        assert_eq!(all.len(), 40);
        assert!(all.iter().all(|name| !name.starts_with(b"0000000") && dir.lookup(name).is_ok()));
        assert_fails!(volume.root().unwrap().rmdir(b"dir"), NotEmpty);
        assert_fails!(dir.create(b"new", &new()), NoKey);
        for name in &all {
            dir.unlink(name).unwrap();
        }
        drop(dir);
        volume.remove_dir("/dir").unwrap();
        volume.close().unwrap();
        image.fsck();
    }
}
