//! Resolution of paths.

use std::path::Path;

use super::{Error, Image, assert_fails};
use parext4::{FileType, Volume};
use testkit::volume::DirectFiles as _;

/// Makes a volume with files, directories and links.
fn tree(image: &Image) -> Volume {
    let volume = image.open();
    volume.create_dir_all("/a/b/c", 0o755).unwrap();
    volume.create_direct("/a/b/file").unwrap();
    volume.symlink("/a/to-b", "b").unwrap();
    volume.symlink("/abs", "/a/b").unwrap();
    volume.symlink("/up", "a/b/c/../..").unwrap();
    volume.symlink("/to-file", "abs/file").unwrap();
    volume.symlink("/dangling", "nowhere").unwrap();
    volume.symlink("/dir-slash", "a/").unwrap();
    volume.symlink("/file-slash", "a/b/file/").unwrap();
    volume.symlink("/loop", "loop").unwrap();
    volume
}

#[test]
fn paths_lead_where_linux_leads() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024"]) else { return };
    let volume = tree(&image);
    let ino = |path: &str| volume.resolve(path).unwrap().ino();
    for same in ["/a/b", "a//b/", "/a/./b/.", "/a/b/c/..", "/../a/b", "/a/to-b", "/abs", "/abs/", "/up/b"] {
        assert_eq!(ino(same), ino("/a/b"), "{same}");
    }
    for root in ["/", "//", "/..", "/.", "/a/../.."] {
        assert_eq!(ino(root), ino("/"), "{root}");
    }
    assert_eq!(ino("/to-file"), ino("/a/b/file"));
    assert_eq!(ino("/dir-slash"), ino("/a"));
    assert_eq!(volume.symlink_metadata("/abs").unwrap().file_type, FileType::Symlink);
    assert_eq!(volume.symlink_metadata("/abs/").unwrap().file_type, FileType::Directory);
    assert_fails!(volume.resolve(""), NotFound);
    assert_fails!(volume.resolve("/dangling"), NotFound);
    assert_fails!(volume.resolve("/loop"), Loop);
    assert_fails!(volume.resolve("/loop/x"), Loop);
    assert_fails!(volume.resolve("/a/b/file/"), NotDirectory);
    assert_fails!(volume.resolve("/a/b/file/x"), NotDirectory);
    assert_fails!(volume.resolve("/a/b/file/.."), NotDirectory);
    assert_fails!(volume.resolve("/file-slash"), NotDirectory);
    assert_fails!(volume.resolve("/a/none/.."), NotFound);
    volume.resolve_no_follow("/loop").unwrap();

    volume.create_direct("/chain-0").unwrap();
    for n in 1..=41 {
        volume.symlink(format!("/chain-{n}"), format!("chain-{}", n - 1)).unwrap();
    }
    volume.resolve("/chain-40").unwrap();
    assert_fails!(volume.resolve("/chain-41"), Loop);
    volume.close().unwrap();
    image.fsck();
}

#[test]
fn the_last_component() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024"]) else { return };
    let volume = tree(&image);
    assert_fails!(volume.create_direct("/new/"), IsDirectory);
    assert_fails!(volume.create_direct("/dangling"), Exists);
    assert_fails!(volume.create_direct("/"), IsDirectory);
    assert_fails!(volume.create_dir("/", 0o755), Exists);
    assert_fails!(volume.remove_dir("/"), Busy);
    assert_fails!(volume.rename("/", "/x"), Busy);
    assert_fails!(volume.remove_file("/a/b/file/"), NotDirectory);
    assert_fails!(volume.remove_file("/a/"), IsDirectory);
    assert_fails!(volume.rename("/a/b/file/", "/x"), NotDirectory);
    assert_fails!(volume.rename("/a/b/file", "/x/"), NotDirectory);
    assert_fails!(volume.symlink("/x/", "y"), NotFound);
    assert_fails!(volume.hard_link("/a/b/file", "/x/"), NotFound);
    assert_fails!(volume.direct_file("/a"), IsDirectory);
    assert_fails!(volume.direct_file("/dangling"), NotFound);
    assert_fails!(volume.create_dir_all("/a/b/file/x", 0o755), NotDirectory);
    volume.create_dir("/made/", 0o755).unwrap();
    volume.rename("/made/", "/moved/").unwrap();
    volume.remove_dir("/moved/").unwrap();
    volume.create_dir_all("/p/q/../r/./s", 0o755).unwrap();
    volume.resolve("/p/q").unwrap();
    volume.resolve("/p/r/s").unwrap();
    // A link at the end of the path is not followed.
    volume.hard_link("/abs", "/abs-2").unwrap();
    assert_eq!(volume.read_link("/abs-2").unwrap(), Path::new("/a/b"));
    volume.rename("/abs", "/abs-3").unwrap();
    volume.remove_file("/abs-2").unwrap();
    assert_eq!(volume.read_link("/abs-3").unwrap(), Path::new("/a/b"));
    assert_fails!(volume.read_link("/a"), Invalid);
    volume.close().unwrap();
    image.fsck();
}
