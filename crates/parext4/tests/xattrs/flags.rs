//! Flags that users change, and the operations that they forbid.

use super::{assert_fails, file, new, on_each_kind};
use parext4::server::ServerDirectFile;
use parext4::{DirectFile, FileSize, InodeFlags, RenameMode, SetAttributes, XattrMode};
use testkit::volume::DirectFiles as _;

#[test]
fn immutable_forbids_every_change() {
    on_each_kind(|volume| {
        let (root, node) = (volume.root().unwrap(), file(volume, "file"));
        let file = DirectFile::new(node.clone()).unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        node.set_xattr(b"user.a", b"x", XattrMode::Any).unwrap();
        node.set_flags(node.flags() | InodeFlags::IMMUTABLE).unwrap();
        assert!(node.flags().contains(InodeFlags::IMMUTABLE | InodeFlags::EXTENTS));

        assert_fails!(file.write_all_at(&[2; 4096], 0), NotPermitted);
        assert_fails!(file.append(&[2; 4096]), NotPermitted);
        assert_fails!(file.set_len(0), NotPermitted);
        assert_fails!(file.allocate(0..4096, FileSize::Keep), NotPermitted);
        assert_fails!(node.set_xattr(b"user.a", b"y", XattrMode::Any), NotPermitted);
        assert_fails!(node.remove_xattr(b"user.a"), NotPermitted);
        assert_fails!(node.set_attributes(&SetAttributes::new()), NotPermitted);
        assert_fails!(root.unlink(b"file"), NotPermitted);
        assert_fails!(root.link(b"other", &node), NotPermitted);
        assert_fails!(root.rename(b"file", &root, b"other", RenameMode::Replace), NotPermitted);
        // While it is set, the other flags cannot change.
        assert_fails!(node.set_flags(node.flags() | InodeFlags::NODUMP), NotPermitted);

        node.set_flags((node.flags() - InodeFlags::IMMUTABLE) | InodeFlags::NODUMP).unwrap();
        file.write_all_at(&[2; 4096], 0).unwrap();
        root.unlink(b"file").unwrap();
    });
}

#[test]
fn append_only_lets_a_file_grow_at_its_end() {
    on_each_kind(|volume| {
        let (root, node) = (volume.root().unwrap(), file(volume, "log"));
        let log = DirectFile::new(node.clone()).unwrap();
        log.append(&[1; 4096]).unwrap();
        node.set_flags(node.flags() | InodeFlags::APPEND).unwrap();
        assert_eq!(log.append(&[2; 4096]).unwrap(), 4096);
        assert_fails!(log.write_all_at(&[3; 4096], 0), NotPermitted);
        assert_fails!(log.write_all_at(&[3; 4096], 8192), NotPermitted);
        assert_fails!(log.set_len(0), NotPermitted);
        assert_fails!(log.set_len(1 << 20), NotPermitted);
        let opened_before = log.checked_when_opened();
        opened_before.write_all_at(&[4; 512], 0).unwrap();
        opened_before.buffered().unwrap().write_all_at(&[5; 512], 512).unwrap();
        assert_fails!(opened_before.set_len(0), NotPermitted);
        assert_fails!(root.unlink(b"log"), NotPermitted);
        assert_eq!(log.size(), 8192);

        let dir = root.mkdir(b"dir", &new()).unwrap();
        dir.set_flags(dir.flags() | InodeFlags::APPEND).unwrap();
        dir.create(b"file", &new()).unwrap();
        assert_fails!(dir.unlink(b"file"), NotPermitted);
        assert_fails!(dir.rename(b"file", &root, b"file", RenameMode::Replace), NotPermitted);
        assert_fails!(root.rmdir(b"dir"), NotPermitted);
    });
}

#[test]
fn flags_suit_the_type_and_are_inherited() {
    on_each_kind(|volume| {
        let root = volume.root().unwrap();
        let dir = root.mkdir(b"dir", &new()).unwrap();
        let for_all = InodeFlags::NODUMP | InodeFlags::NOATIME;
        let set = for_all | InodeFlags::SYNC | InodeFlags::DIRSYNC | InodeFlags::TOPDIR;
        dir.set_flags(dir.flags() | set).unwrap();
        let of = |name: &[u8]| dir.lookup(name).unwrap().flags() - InodeFlags::EXTENTS;
        dir.create(b"file", &new()).unwrap();
        dir.mkdir(b"dir", &new()).unwrap();
        dir.symlink(b"link", b"target", &new()).unwrap();
        assert_eq!(of(b"file"), for_all | InodeFlags::SYNC);
        assert_eq!(of(b"dir"), for_all | InodeFlags::SYNC | InodeFlags::DIRSYNC);
        assert_eq!(of(b"link"), for_all);

        let node = dir.lookup(b"file").unwrap();
        assert_fails!(node.set_flags(node.flags() | InodeFlags::TOPDIR), Unsupported);
        assert_fails!(node.set_flags(node.flags() | InodeFlags::JOURNAL_DATA), Unsupported);
        assert_fails!(node.set_flags(node.flags() - InodeFlags::EXTENTS), Unsupported);
        assert_fails!(node.set_flags(node.flags() | InodeFlags::HUGE_FILE), Unsupported);
        assert_eq!(node.generation(), node.metadata().generation);
        assert_ne!(node.generation(), dir.lookup(b"dir").unwrap().generation());
    });
}

#[test]
fn flags_are_persistent_and_visible_to_debugfs() {
    let Some(image) = super::Image::mke2fs(8, &[]) else { return };
    let volume = image.open();
    let node = file(&volume, "file");
    node.set_flags(node.flags() | InodeFlags::IMMUTABLE | InodeFlags::NOATIME).unwrap();
    drop(node);
    volume.close().unwrap();
    image.fsck();
    let stat = image.debugfs("stat /file");
    assert!(stat.is_empty() || stat.contains("Flags: 0x80090"), "{stat}");
    let volume = image.open();
    let file = volume.direct_file("/file").unwrap();
    assert_fails!(file.write_all_at(&[1; 4096], 0), NotPermitted);
    drop(file);
    volume.close().unwrap();
}
