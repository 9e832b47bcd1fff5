//! `get` of corrupt volumes: what it writes is bounded by the size of the volume.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::command::{ScratchImage, text};
use testkit::tool;

/// Changes an image with debugfs. Returns false if it is not installed.
fn debugfs(image: &Path, request: &str) -> bool {
    tool(Command::new("/usr/sbin/debugfs").args(["-w", "-R", request]).arg(image)).is_some()
}

/// Makes an image of 64 MiB with a file `/first` of 8 MiB and empty files `/0` to `/7`.
fn files() -> ScratchImage {
    let scratch = ScratchImage::new(&[]);
    let first = scratch.path("first");
    fs::write(&first, vec![7; 8 << 20]).unwrap();
    scratch.ok(&["put", "--quiet", &text(&first), &scratch.inside("/")]);
    let empty = scratch.path("empty");
    fs::write(&empty, "").unwrap();
    for n in 0..8 {
        scratch.ok(&["put", "--quiet", &text(&empty), &scratch.inside(&format!("/{n}"))]);
    }
    scratch
}

/// Returns the arguments of the two forms of `get` for the whole image.
fn forms(scratch: &ScratchImage, n: u32) -> [Vec<String>; 2] {
    let [copy, archive]: [PathBuf; 2] = ["copy", "tar"].map(|name| scratch.path(&format!("{name}-{n}")));
    let source = scratch.inside("/");
    [
        vec!["get".to_owned(), "-q".to_owned(), source.clone(), text(&copy)],
        vec!["get".to_owned(), "-q".to_owned(), "--tar".to_owned(), text(&archive), source],
    ]
}

#[test]
fn a_file_of_one_link_with_two_names_is_not_copied_twice() {
    let scratch = files();
    // Adds a name, not a link.
    if !debugfs(&scratch.image(), "ln /first /lost+found/again") {
        return;
    }
    for form in forms(&scratch, 0) {
        let error = scratch.fails(&form);
        assert!(error.contains("has two names, but counts one link"), "{error}");
        assert!(error.contains("first") || error.contains("again"), "{error}");
    }
    // With the right count the second name is a link.
    assert!(debugfs(&scratch.image(), "sif /first links_count 2"));
    for form in forms(&scratch, 1) {
        scratch.ok(&form);
    }
}

#[test]
fn files_that_share_blocks_have_no_more_data_than_the_volume() {
    let scratch = files();
    for n in 0..8 {
        if !debugfs(&scratch.image(), &format!("copy_inode /first /{n}")) {
            return;
        }
    }
    for form in forms(&scratch, 0) {
        let error = scratch.fails(&form);
        assert!(error.contains("have more data than the volume"), "{error}");
    }
    for n in 0..2 {
        assert!(debugfs(&scratch.image(), &format!("unlink /{n}")));
    }
    for form in forms(&scratch, 1) {
        scratch.ok(&form);
    }
}
