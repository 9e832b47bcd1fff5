//! Trees deeper than any path that a program can pass to the kernel.

use std::fs;

use parext4::{NewInode, Volume};
use testkit::command::{ScratchImage, text};

/// Directories in the chain: a path of twice as many bytes.
const DEPTH: usize = 5000;

/// Makes an image with the chain `/d/d/d/...`.
fn chain() -> ScratchImage {
    let scratch = ScratchImage::new(&[]);
    let volume = Volume::open(scratch.image()).unwrap();
    let mut dir = volume.root().unwrap();
    for _ in 0..DEPTH {
        dir = dir.mkdir(b"d", &NewInode::new().permissions(0o755)).unwrap();
    }
    drop(dir);
    volume.close().unwrap();
    scratch
}

#[test]
fn recursive_commands_end_on_a_deep_chain() {
    let scratch = chain();
    let inside = scratch.inside("/d");
    assert!(scratch.fails(&["ls", "-R", &inside]).contains("longer than 4096 bytes"));
    let copy = scratch.path("copy");
    let error = scratch.fails(&["get", "-q", &inside, &text(&copy)]);
    assert!(error.contains("too long"), "{error}");
    fs::remove_dir_all(&copy).unwrap();
    let error = scratch.fails(&["get", "-q", "--tar", "/dev/null", &inside]);
    assert!(error.contains("too long"), "{error}");
    scratch.ok(&["rm", "-r", &inside]);
    assert_eq!(scratch.ok(&["ls", &text(&scratch.image())]), "lost+found\n");
    scratch.fsck();
}

/// A name in an archive has at most the 4095 bytes that `put --tar` accepts. The name of a
/// directory ends with a slash.
#[test]
fn the_longest_path_goes_into_an_archive_and_out_of_it() {
    let scratch = ScratchImage::new(&[]);
    let archive = text(&scratch.path("out.tar"));
    let volume = Volume::open(scratch.image()).unwrap();
    let new = NewInode::new().permissions(0o755);
    let mut dir = volume.root().unwrap().mkdir(b"top", &new).unwrap();
    let top = dir.clone();
    let name = [b'n'; 255];
    for _ in 0..15 {
        dir = dir.mkdir(&name, &new).unwrap();
    }
    dir.create(&name, &new).unwrap();
    let longest = dir.id();
    drop((top, dir));
    volume.close().unwrap();
    let get = ["get", "-q", "--tar", &archive, &scratch.inside("/top/.")];
    scratch.ok(&get);
    scratch.ok(&["mkdir", &scratch.inside("/copy")]);
    scratch.ok(&["put", "-q", "--tar", &archive, &scratch.inside("/copy")]);

    let volume = Volume::open(scratch.image()).unwrap();
    let dir = volume.inode_ref(longest).unwrap();
    dir.unlink(&name).unwrap();
    dir.mkdir(&name, &new).unwrap();
    drop(dir);
    volume.close().unwrap();
    assert!(scratch.fails(&get).contains("too long"));
    scratch.fsck();
}
