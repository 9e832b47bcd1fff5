//! Each operation, and the errors it returns.

use std::path::Path;

use super::{Error, Image, assert_fails, names, new, on_each_kind};
use parext4::server::ServerInode as _;
use parext4::{FileType, OpenOptions, RenameMode, SetAttributes, Special, Timestamp};
use testkit::volume::DirectFiles as _;

#[test]
fn every_type_is_made_listed_and_removed() {
    on_each_kind(16, |volume| {
        let root = volume.root().unwrap();
        root.create(b"file", &new()).unwrap();
        root.mkdir(b"dir", &new().permissions(0o755).uid(1000).gid(70_000)).unwrap();
        root.symlink(b"short", &[b'a'; 59], &new()).unwrap();
        root.symlink(b"long", &[b'b'; 60], &new()).unwrap();
        root.symlink(b"longest", &[b'c'; 1023], &new()).unwrap();
        root.mknod(b"char", Special::CharDevice { major: 4, minor: 64 }, &new()).unwrap();
        root.mknod(b"block", Special::BlockDevice { major: 259, minor: 70_000 }, &new()).unwrap();
        root.mknod(b"fifo", Special::Fifo, &new()).unwrap();
        root.mknod(b"socket", Special::Socket, &new()).unwrap();

        let mut types: Vec<_> = volume.read_dir("/").unwrap().map(|item| item.unwrap().file_type()).collect();
        types.sort_by_key(|file_type| file_type.dirent_type());
        let dirs = [FileType::Directory; 2];
        let links = [FileType::Symlink; 3];
        let devices = [FileType::CharDevice, FileType::BlockDevice, FileType::Fifo, FileType::Socket];
        assert_eq!(types, [&[FileType::Regular], &dirs[..], &devices[..], &links[..]].concat());
        assert_eq!(volume.read_link("/short").unwrap(), Path::new(&"a".repeat(59)));
        assert_eq!(volume.read_link("/long").unwrap(), Path::new(&"b".repeat(60)));
        assert_eq!(volume.read_link("/longest").unwrap(), Path::new(&"c".repeat(1023)));
        assert_eq!(volume.symlink_metadata("/char").unwrap().rdev, Some((4, 64)));
        assert_eq!(volume.symlink_metadata("/block").unwrap().rdev, Some((259, 70_000)));
        assert_eq!(volume.metadata("/dir").unwrap().gid, 70_000);
        assert_eq!(root.metadata().links, 4);

        let used = volume.space();
        for name in names(&root).into_iter().filter(|name| !name.ends_with(b"dir") && name != b"lost+found") {
            root.unlink(&name).unwrap();
        }
        root.rmdir(b"dir").unwrap();
        volume.sync().unwrap();
        assert_eq!(root.metadata().links, 3);
        assert_eq!(names(&root), [b"lost+found"]);
        assert!(volume.space().free_inodes == used.free_inodes + 9, "the inodes are free again");
    });
}

#[test]
fn invalid_operations_are_refused() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024"]) else { return };
    let volume = image.open();
    let root = volume.root().unwrap();
    let file = root.create(b"file", &new()).unwrap();
    let dir = root.mkdir(b"dir", &new()).unwrap();
    dir.create(b"inside", &new()).unwrap();

    assert_fails!(root.create(b"file", &new()), Exists);
    assert_fails!(root.mkdir(b"file", &new()), Exists);
    assert_fails!(root.link(b"dir", &file), Exists);
    assert_fails!(root.create(b"", &new()), Invalid);
    assert_fails!(root.create(b"a/b", &new()), Invalid);
    assert_fails!(root.create(b"a\0", &new()), Invalid);
    assert_fails!(root.create(b"..", &new()), Invalid);
    assert_fails!(root.create(&[b'x'; 256], &new()), NameTooLong);
    root.create(&[b'x'; 255], &new()).unwrap();
    assert_fails!(root.symlink(b"s", b"", &new()), Invalid);
    assert_fails!(root.symlink(b"s", &vec![b's'; 1024], &new()), NameTooLong);
    assert_fails!(root.lookup(b"none"), NotFound);
    assert_fails!(file.lookup(b"none"), NotDirectory);
    assert_fails!(root.unlink(b"none"), NotFound);
    assert_fails!(root.unlink(b"dir"), IsDirectory);
    assert_fails!(root.rmdir(b"file"), NotDirectory);
    assert_fails!(root.rmdir(b"dir"), NotEmpty);
    assert_fails!(root.rmdir(b"."), Invalid);
    assert_fails!(root.rmdir(b".."), NotEmpty);
    assert_fails!(root.link(b"hard", &dir), NotPermitted);
    assert_fails!(root.mknod(b"n", Special::CharDevice { major: 4096, minor: 0 }, &new()), Invalid);
    volume.close().unwrap();
    image.fsck();
}

#[test]
fn hard_links_count_and_the_last_one_counts() {
    on_each_kind(16, |volume| {
        let root = volume.root().unwrap();
        let file = root.create(b"one", &new()).unwrap();
        root.link(b"two", &file).unwrap();
        assert_eq!(root.lookup(b"two").unwrap().ino(), file.ino());
        assert_eq!(file.metadata().links, 2);
        root.unlink(b"one").unwrap();
        root.link(b"three", &file).unwrap();
        root.unlink(b"two").unwrap();
        root.unlink(b"three").unwrap();
        assert_eq!(file.metadata().links, 0);
        assert_fails!(root.link(b"four", &file), NotFound);
    });
}

#[test]
fn listed_names_lead_to_the_inodes_that_they_name_now() {
    on_each_kind(16, |volume| {
        let root = volume.root().unwrap();
        for name in [b"kept", b"gone", b"late"] {
            root.create(name, &new()).unwrap();
        }
        let batch = root.read_dir_after(0).unwrap();
        let nth = |name: &[u8]| batch.iter().position(|item| item.name() == name).unwrap();
        let entries: Vec<_> = volume.read_dir("/").unwrap().map(Result::unwrap).collect();
        let entry = |name: &str| entries.iter().find(|entry| entry.file_name() == name).unwrap();
        for name in [&b"kept"[..], b"gone", b"late"] {
            let ino = batch[nth(name)].inode_ref().unwrap().ino();
            assert_eq!(ino, batch[nth(name)].ino());
            assert_eq!(ino, entry(std::str::from_utf8(name).unwrap()).inode_ref().unwrap().ino());
        }
        assert_eq!(batch[nth(b".")].inode_ref().unwrap().ino(), root.ino());
        assert_eq!(batch[nth(b"..")].inode_ref().unwrap().ino(), root.ino());

        root.unlink(b"gone").unwrap();
        root.rename(b"kept", &root, b"late", RenameMode::Replace).unwrap();
        let kept = batch[nth(b"kept")].ino();
        assert_eq!(batch[nth(b"late")].inode_ref().unwrap().ino(), kept);
        assert_eq!(entry("late").inode_ref().unwrap().ino(), kept);
        for name in ["kept", "gone"] {
            assert_fails!(batch[nth(name.as_bytes())].inode_ref(), NotFound);
            assert_fails!(entry(name).inode_ref(), NotFound);
        }
    });
}

#[test]
fn a_removed_directory_is_empty_and_stays_so() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024"]) else { return };
    let volume = image.open();
    let root = volume.root().unwrap();
    let dir = root.mkdir(b"dir", &new()).unwrap();
    assert_eq!(dir.read_dir_after(0).unwrap().len(), 2);
    root.rmdir(b"dir").unwrap();
    assert!(dir.read_dir_after(0).unwrap().is_empty());
    assert_fails!(dir.create(b"x", &new()), NotFound);
    assert_fails!(dir.lookup(b".."), NotFound);
    assert_fails!(dir.link(b"x", &root.create(b"file", &new()).unwrap()), NotFound);
    let file = root.lookup(b"file").unwrap();
    assert_fails!(root.rename(b"file", &dir, b"x", RenameMode::Replace), NotFound);
    drop((dir, file));
    volume.close().unwrap();
    image.fsck();
}

#[test]
fn an_open_unlinked_file_lives_until_it_is_closed() {
    on_each_kind(16, |volume| {
        volume.sync().unwrap();
        let before = volume.space();
        let options = OpenOptions::read_write().create_new(true).mode(0o600);
        let file = volume.open_direct("/file", &options).unwrap();
        let data = vec![7; 256 << 10];
        file.write_all_at(&data, 0).unwrap();
        volume.remove_file("/file").unwrap();
        volume.sync().unwrap();
        let mut read = vec![0; data.len()];
        file.read_at(&mut read, 0).unwrap();
        assert_eq!(read, data);
        assert!(volume.space().free_blocks < before.free_blocks);
        drop(file);
        volume.sync().unwrap();
        assert_eq!(volume.space().free_blocks, before.free_blocks);
        assert_eq!(volume.space().free_inodes, before.free_inodes);
    });
}

#[test]
fn attributes_are_persistent() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024"]) else { return };
    let volume = image.open();
    let root = volume.root().unwrap();
    let dir = root.mkdir(b"dir", &new().permissions(0o2775).uid(5).gid(6)).unwrap();
    let file = dir.create(b"file", &new().permissions(0o6755).uid(7).gid(8)).unwrap();
    let inner = dir.mkdir(b"inner", &new()).unwrap();
    assert_eq!((file.metadata().gid, inner.metadata().gid), (6, 6));
    assert_eq!(inner.metadata().permissions, 0o2644);
    file.set_attributes(&SetAttributes::new().uid(9)).unwrap();
    assert_eq!(file.metadata().permissions, 0o755, "a new owner clears set-ID bits");
    let mtime = Timestamp { seconds: 5_000_000_000, nanoseconds: 123 };
    let set = SetAttributes::new().permissions(0o600).mtime(mtime);
    file.set_attributes(&set).unwrap();
    let mut expected = file.metadata();
    file.touch_accessed().unwrap();
    assert!(file.metadata().atime >= expected.ctime);
    expected.atime = file.metadata().atime;
    assert_eq!(file.metadata(), expected);
    let ctime = Timestamp { seconds: 7, nanoseconds: 8 };
    file.set_attributes(&set.ctime(ctime)).unwrap();
    let kept = file.metadata();
    assert_eq!(kept.ctime, ctime);
    drop((dir, file, inner, root));
    volume.close().unwrap();
    image.fsck();
    let volume = image.open();
    let again = volume.metadata("/dir/file").unwrap();
    assert_eq!(again, kept);
    assert_eq!((again.permissions, again.mtime, again.uid, again.gid), (0o600, mtime, 9, 6));
}

#[test]
fn immutable_is_immutable() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024"]) else { return };
    let volume = image.open();
    volume.create_dir("/dir", 0o755).unwrap();
    volume.create_direct("/dir/file").unwrap();
    volume.create_direct("/fixed").unwrap();
    volume.close().unwrap();
    image.debugfs_write("sif /dir flags 0x80010");
    image.debugfs_write("sif /fixed flags 0x80020");
    let volume = image.open();
    let root = volume.root().unwrap();
    let dir = root.lookup(b"dir").unwrap();
    assert_fails!(dir.create(b"x", &new()), NotPermitted);
    assert_fails!(dir.unlink(b"file"), NotPermitted);
    assert_fails!(root.rmdir(b"dir"), NotPermitted);
    assert_fails!(dir.rename(b"file", &root, b"out", RenameMode::Replace), NotPermitted);
    assert_fails!(root.unlink(b"fixed"), NotPermitted);
    assert_fails!(root.link(b"more", &root.lookup(b"fixed").unwrap()), NotPermitted);
    assert_fails!(dir.set_attributes(&SetAttributes::new()), NotPermitted);
}

#[test]
fn a_full_volume_refuses_and_stays_sound() {
    let Some(image) = Image::mke2fs(4, &["-b", "1024", "-N", "4096", "-O", "^has_journal"]) else { return };
    let volume = image.open();
    let root = volume.root().unwrap();
    let (mut made, mut missing) = (0, None);
    for n in 0..4096 {
        // Directories need blocks, and more of them with long names.
        match root.mkdir(format!("{n:0>200}").as_bytes(), &new()) {
            Ok(_) => made += 1,
            Err(error) => {
                missing = Some(error);
                break;
            }
        }
    }
    assert!(matches!(missing, Some(Error::NoSpace)), "{missing:?}");
    assert_eq!(names(&root).len(), made + 1);
    root.rmdir(format!("{:0>200}", 0).as_bytes()).unwrap();
    root.mkdir(b"again", &new()).unwrap();
    volume.close().unwrap();
    image.fsck();
}
