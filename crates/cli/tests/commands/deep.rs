//! Trees deeper than any path that a program can pass to the kernel.

use std::fs;

use parext4::{NewInode, Volume};
use testkit::command::{ScratchImage, text};

/// Directories in the chain: a path of twice as many bytes.
const DEPTH: usize = 5000;

/// Makes an image with the chain `/d/d/d/...`.
fn chain() -> ScratchImage {
    let scratch = ScratchImage::new(&[]);
    let volume = Volume::open_path(scratch.image()).unwrap();
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
    scratch.ok(&["rm", "-r", &inside]);
    assert_eq!(scratch.ok(&["ls", &text(&scratch.image())]), "lost+found\n");
    scratch.fsck();
}
