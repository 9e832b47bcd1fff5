//! Names in directories, and the types beside them.

use std::fs;
use std::os::unix::fs::FileExt;

use testkit::Image;
use testkit::command::{ScratchImage, text};

use super::{BLOCK, assert_found, check, debugfs, inode_offset};

/// Returns the offset of the only block of a directory.
fn block_of(image: &Image, path: &str) -> u64 {
    let blocks = image.debugfs(&format!("blocks {path}"));
    blocks.split_whitespace().find_map(|block| block.parse::<u64>().ok()).unwrap() * BLOCK
}

/// Makes a directory `d` with a file of 20 letters in it, and returns the offset of the directory's
/// block.
fn with_directory(options: &[&str]) -> Option<(Image, u64)> {
    let image = Image::mke2fs(8, &[&["-b", "1024", "-I", "256"][..], options].concat())?;
    let scratch = ScratchImage::empty();
    fs::write(scratch.path("file"), "x").unwrap();
    let write = format!("write {} d/abcdefghijklmnopqrst", text(&scratch.path("file")));
    for request in ["mkdir d", write.as_str()] {
        assert!(debugfs(&image.path(), request), "{request}");
    }
    let block = block_of(&image, "d");
    Some((image, block))
}

#[test]
fn types_of_entries_are_checked() {
    let Some((image, block)) = with_directory(&["-O", "^metadata_csum"]) else { return };
    // `.`, `..`, and the file.
    for entry in [0, 12, 24] {
        assert_found(&image, block + entry + 7, &[5], "PR_2_BAD_FILETYPE");
    }
    let Some((image, block)) = with_directory(&["-O", "^metadata_csum,^filetype"]) else { return };
    for entry in [0, 12, 24] {
        assert_found(&image, block + entry + 7, &[2], "PR_2_CLEAR_FILETYPE");
    }
}

#[test]
fn names_that_are_not_utf8_are_found_in_a_strict_directory_without_case() {
    let options = ["-O", "casefold,^metadata_csum", "-E", "encoding_flags=strict"];
    let Some((image, block)) = with_directory(&options) else { return };
    assert!(debugfs(&image.path(), "sif d flags 0x40080000"));
    let (is_sound, printed) = check(&image.path());
    assert!(is_sound, "{printed}");
    assert_found(&image, block + 24 + 8, &[0xff], "PR_2_BAD_ENCODED_NAME");
}

/// Returns attributes of an inode that hold an encryption policy of this version and length.
fn policy(version: u8, len: usize) -> Vec<u8> {
    // The list of one entry, named "c", whose value is at the end of the 96 bytes after the fields
    // of the inode.
    let mut area = vec![0; 96];
    let value = 96 - len.next_multiple_of(4);
    area[..4].copy_from_slice(&[0, 0, 2, 0xea]);
    area[4..8].copy_from_slice(&[1, 9, u8::try_from(value - 4).unwrap(), 0]);
    area[12] = u8::try_from(len).unwrap();
    area[20] = b'c';
    area[value] = version;
    area
}

#[test]
fn entries_of_encrypted_directories_are_checked() {
    let Some((image, block)) = with_directory(&["-O", "encrypt,^metadata_csum"]) else { return };
    let file = fs::File::options().write(true).open(image.path()).unwrap();
    for path in ["d", "d/abcdefghijklmnopqrst"] {
        let area = inode_offset(&image, path, BLOCK) + 160;
        file.write_all_at(&policy(2, 40), area).unwrap();
    }
    for request in ["sif d flags 0x80800", "sif d/abcdefghijklmnopqrst flags 0x80800"] {
        assert!(debugfs(&image.path(), request), "{request}");
    }
    let (is_sound, printed) = check(&image.path());
    assert!(is_sound, "{printed}");
    assert_found(&image, block + 24 + 6, &[15], "PR_2_BAD_ENCRYPTED_NAME");
    let flags = inode_offset(&image, "d/abcdefghijklmnopqrst", BLOCK) + 32;
    assert_found(&image, flags, &0x80000_u32.to_le_bytes(), "PR_2_UNENCRYPTED_FILE");
    let area = inode_offset(&image, "d", BLOCK) + 160;
    assert_found(&image, area, &policy(0, 40), "PR_1_CORRUPT_ENCRYPTION_XATTR");
    assert_found(&image, area, &policy(1, 40), "PR_1_CORRUPT_ENCRYPTION_XATTR");
}
