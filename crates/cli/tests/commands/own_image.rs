//! A command does not replace the image that it reads, nor copy it into itself.

use std::fs;
use std::os::unix::fs::symlink;

use testkit::command::{ScratchImage, text};

/// Runs a command that must refuse to use the image, which stays as it is.
fn refuses(scratch: &ScratchImage, arguments: &[&str]) {
    let before = fs::read(scratch.image()).unwrap();
    let error = scratch.fails(arguments);
    assert!(error.contains("holds the volume itself"), "{error}");
    assert!(fs::read(scratch.image()).ok() == Some(before), "the image changed");
}

#[test]
fn an_archive_does_not_replace_the_image() {
    let scratch = ScratchImage::new(&[]);
    let link = scratch.path("link");
    symlink(scratch.image(), &link).unwrap();
    for archive in [&scratch.image(), &link] {
        refuses(&scratch, &["get", "-q", &scratch.inside("/"), "--tar", &text(archive)]);
    }
    // Another file is replaced.
    let archive = scratch.path("out.tar");
    fs::write(&archive, vec![b'x'; 1 << 20]).unwrap();
    scratch.ok(&["get", "-q", &scratch.inside("/"), "--tar", &text(&archive)]);
    assert!(fs::metadata(&archive).unwrap().len() < 1 << 20);
}

#[test]
fn an_archive_does_not_replace_the_journal() {
    let scratch = ScratchImage::empty();
    let (image, journal) = (text(&scratch.image()), text(&scratch.path("journal")));
    scratch.ok(&["mkfs", "--size", "16M", "-O", "journal_dev", &journal]);
    scratch.ok(&["mkfs", "--size", "64M", "-J", &format!("device={journal}"), &image]);
    let before = fs::read(&journal).unwrap();
    let get = ["get", "-q", "--journal", &journal, &scratch.inside("/"), "--tar", &journal];
    refuses(&scratch, &get);
    assert!(fs::read(&journal).unwrap() == before, "the journal changed");
}

#[test]
fn a_copy_does_not_replace_the_image() {
    let scratch = ScratchImage::new(&[]);
    let tree = scratch.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("test.img"), "a file").unwrap();
    fs::write(tree.join("linked"), "a file of two names").unwrap();
    fs::hard_link(tree.join("linked"), tree.join("other")).unwrap();
    symlink("target", tree.join("symlink")).unwrap();
    scratch.ok(&["put", "-q", &text(&tree.join(".")), &scratch.inside("/")]);
    let scratch_dir = text(&scratch.path("."));
    refuses(&scratch, &["get", "-q", &scratch.inside("/."), &scratch_dir]);
    for name in ["/linked", "/symlink"] {
        refuses(&scratch, &["get", "-q", &scratch.inside(name), &text(&scratch.image())]);
    }
    scratch.fsck();
}

#[test]
fn an_image_is_not_copied_into_itself() {
    let scratch = ScratchImage::new(&[]);
    for source in [scratch.image(), scratch.path(".")] {
        let error = scratch.fails(&["put", "-q", &text(&source), &scratch.inside("/")]);
        assert!(error.contains("test.img: this file holds the volume itself"), "{error}");
    }
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/")]), "lost+found\n");
    scratch.fsck();
}
