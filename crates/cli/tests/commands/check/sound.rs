//! Volumes that other programs leave, and that e2fsck accepts.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use testkit::Image;
use testkit::command::{ScratchImage, text};

use super::{check, debugfs, e2fsck, inode_offset};

/// Asserts that neither the check nor e2fsck finds anything after the requests of debugfs.
fn assert_sound(image: &Image, requests: &[&str]) {
    for request in requests {
        assert!(debugfs(&image.path(), request), "{request}");
    }
    let (is_sound, printed) = check(&image.path());
    assert!(is_sound, "{requests:?}: {printed}");
    assert!(e2fsck(&image.path()).is_none_or(|output| output.status.success()), "{requests:?}");
}

/// The inode of such a value names the inode with the attribute, which is not charged for the space
/// of the value.
#[test]
fn values_of_lustre_are_sound() {
    let features = "ea_inode,^has_journal,^metadata_csum,^resize_inode";
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-I", "256", "-O", features]) else { return };
    let scratch = ScratchImage::empty();
    let value = scratch.path("value");
    fs::write(&value, [b'v'; 1024]).unwrap();
    let (write, set) =
        (format!("write {} f", text(&value)), format!("ea_set -f {} f user.big", text(&value)));
    let names = ["sif f generation 77", "sif <13> generation 77", "sif <13> mtime @12"];
    let times = ["sif <13> ctime @1000", "sif <13> atime @1000", "sif f blocks 2"];
    assert_sound(&image, &[&[write.as_str(), set.as_str()][..], &names, &times].concat());
}

/// `tune2fs -j` makes such a journal in a mounted volume.
#[test]
fn a_journal_with_a_name_is_sound() {
    let features = "^metadata_csum,^extents,^64bit,^resize_inode";
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-J", "size=1", "-O", features]) else { return };
    let journal = ["write /dev/null .journal", "copy_inode <8> .journal", "clri <8>", "ssv journal_inum 12"];
    assert_sound(&image, &journal);
}

/// The Hurd has other fields where Linux has the upper bits of numbers, and other systems may.
#[test]
fn fields_of_other_systems_are_sound() {
    for (system, at) in [("hurd", 118), ("2", 116)] {
        let options = ["-o", "hurd", "-O", "none,sparse_super,ext_attr", "-I", "128", "-b", "1024"];
        let Some(image) = Image::mke2fs(8, &options) else { return };
        if system != "hurd" {
            image.debugfs_write(&format!("ssv creator_os {system}"));
        }
        image.debugfs_write("write /dev/null f");
        let offset = inode_offset(&image, "f", 1024) + at;
        File::options().write(true).open(image.path()).unwrap().write_all_at(&[1], offset).unwrap();
        assert_sound(&image, &[]);
    }
}

#[test]
fn blocks_that_were_preallocated_for_a_directory_are_sound() {
    let features = "^extents,^64bit,^dir_index,^has_journal,^metadata_csum";
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-O", features]) else { return };
    assert_sound(&image, &["mkdir d", "expand_dir d", "ssv prealloc_dir_blocks 8", "sif d size 1024"]);
}

/// The reserved inodes are in two groups then.
#[test]
fn groups_with_fewer_inodes_than_are_reserved_are_sound() {
    let options = ["-b", "1024", "-g", "256", "-N", "256", "-O", "^resize_inode"];
    let Some(image) = Image::mke2fs(8, &options) else { return };
    assert!(image.debugfs("stats").contains("Inodes per group:         8"));
    assert_sound(&image, &[]);
    let volume = image.open();
    for n in 0..20 {
        volume.write(format!("/{n}"), "x").unwrap();
    }
    volume.close().unwrap();
    assert_sound(&image, &[]);
}
