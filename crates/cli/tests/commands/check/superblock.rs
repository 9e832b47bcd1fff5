//! Fields of the superblock, and the structures to which they lead.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use testkit::Image;
use testkit::command::{program, text};

use super::{assert_found, check};

const SUPERBLOCK: u64 = 1024;

#[test]
fn fields_that_e2fsck_refuses_are_found() {
    let options = ["-b", "1024", "-O", "^metadata_csum,^has_journal,^resize_inode"];
    let Some(image) = Image::mke2fs(16, &options) else { return };
    // The backups, to which e2fsck turns, have other counts then.
    let volume = image.open();
    volume.create_dir("/dir", 0o755).unwrap();
    volume.close().unwrap();
    for (offset, byte, problem) in [
        (0x24, 1, "PR_0_SB_CORRUPT"),
        (0x5d, 0x80, "feature not known"),
        (0x5f, 0x80, "feature not known"),
        (0x66, 8, "feature not known"),
        (0x60, 0xc6, "PR_0_JOURNAL_RECOVER_SET"),
        (0xd1, 1, "PR_0_CANT_FIND_JOURNAL"),
        (0xe0, 8, "PR_0_JOURNAL_HAS_JOURNAL"),
    ] {
        assert_found(&image, SUPERBLOCK + offset, &[byte], problem);
    }
}

#[test]
fn the_inode_of_a_journal_that_the_volume_does_not_have_is_found() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", "^metadata_csum"]) else { return };
    image.debugfs_write("feature -has_journal");
    assert_found(&image, SUPERBLOCK + 0xe0, &[0], "PR_1_JOURNAL_INODE_NOT_CLEAR");
}

#[test]
fn the_block_of_multi_mount_protection_is_checked() {
    const NUMBER: u64 = SUPERBLOCK + 0x168;
    for (features, after_damage) in
        [("mmp,metadata_csum", "PR_0_MMP_CSUM_INVALID"), ("mmp,^metadata_csum", "PR_0_MMP_INVALID_MAGIC")]
    {
        let Some(image) = Image::mke2fs(16, &["-b", "4096", "-O", features]) else { return };
        let (is_clean, printed) = check(&image.path());
        assert!(is_clean, "{printed}");
        let bytes = fs::read(image.path()).unwrap();
        let number = bytes[NUMBER as usize..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).unwrap();
        let damaged = if after_damage == "PR_0_MMP_CSUM_INVALID" { 20 } else { 0 };
        assert_found(&image, number * 4096 + damaged, &[0xff], after_damage);
        assert_found(&image, number * 4096, &[0xff; 1024], "PR_0_MMP_INVALID_MAGIC");
        if features.contains('^') {
            assert_found(&image, NUMBER, &[0; 8], "PR_0_MMP_INVALID_BLK");
        }
    }
}

#[test]
fn a_warning_that_cannot_be_printed_does_not_end_the_check() {
    const NUMBER: usize = SUPERBLOCK as usize + 0x168;
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", "mmp,^metadata_csum"]) else { return };
    let bytes = fs::read(image.path()).unwrap();
    let number = bytes[NUMBER..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).unwrap();
    let file = fs::File::options().write(true).open(image.path()).unwrap();
    // The sequence number of a volume that is in use.
    file.write_all_at(&1_u32.to_le_bytes(), number * 1024 + 4).unwrap();
    let (_, printed) = check(&image.path());
    assert!(printed.contains("in use, or not closed"), "{printed}");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(program()).args(["check", &text(&image.path())]).stderr(full).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
