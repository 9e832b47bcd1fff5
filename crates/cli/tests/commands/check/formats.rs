//! Files whose flags do not fit what is in them, and files of the file system itself.

use std::fs;
use std::os::unix::fs::FileExt;

use testkit::Image;

use super::{BLOCK, assert_found, check, debugfs, inode_offset};

#[test]
fn a_file_with_the_flags_of_two_formats_is_named_by_what_it_looks_like() {
    const BOTH: [u8; 4] = 0x1008_0000_u32.to_le_bytes();
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-I", "256", "-O", "inline_data,^metadata_csum"])
    else {
        return;
    };
    let volume = image.open();
    volume.write("/short", "short").unwrap();
    volume.write("/long", vec![b'x'; 5000]).unwrap();
    volume.close().unwrap();
    let [short, long] = ["/short", "/long"].map(|path| inode_offset(&image, path, BLOCK));
    assert_found(&image, long + 32, &BOTH, "PR_1_CLEAR_INLINE_DATA_FOR_EXTENT");
    assert_found(&image, short + 32, &BOTH, "PR_1_CLEAR_EXTENT_FOR_INLINE_DATA");
    // A file without extents, and junk.
    for (words, problem) in [
        ([0, 77], "PR_1_CLEAR_EXTENT_INLINE_DATA_FLAGS"),
        ([u32::MAX; 2], "PR_1_CLEAR_EXTENT_INLINE_DATA_INODE"),
    ] {
        let image = Image::of(&image.load());
        let file = fs::File::options().write(true).open(image.path()).unwrap();
        file.write_all_at(&words.map(u32::to_le_bytes).concat(), long + 40).unwrap();
        assert_found(&image, long + 32, &BOTH, problem);
    }
}

#[test]
fn a_special_file_with_the_blocks_of_a_directory_is_found() {
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-O", "^metadata_csum"]) else { return };
    assert!(debugfs(&image.path(), "mkdir d"));
    let mode = inode_offset(&image, "d", BLOCK);
    assert_found(&image, mode, &0o060_644_u16.to_le_bytes(), "PR_1_TREAT_AS_DIRECTORY");
    assert_found(&image, mode, &0o060_644_u16.to_le_bytes(), "PR_2_BAD_BLOCK_DEV");
    assert_found(&image, mode, &0o020_644_u16.to_le_bytes(), "PR_2_BAD_CHAR_DEV");
}

#[test]
fn a_journal_in_the_volume_has_one_user() {
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-O", "^metadata_csum,^64bit"]) else { return };
    let blocks = image.debugfs("blocks <8>");
    let journal = blocks.split_whitespace().find_map(|block| block.parse::<u64>().ok()).unwrap() * BLOCK;
    assert_found(&image, journal + 64, &2_u32.to_be_bytes(), "PR_0_CLEAR_V2_JOURNAL");
}

#[test]
fn the_blocks_of_an_orphan_file_are_empty_in_a_closed_volume() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", "orphan_file,^metadata_csum"]) else { return };
    let (is_sound, printed) = check(&image.path());
    assert!(is_sound, "{printed}");
    let blocks = image.debugfs("blocks <12>");
    let block = blocks.split_whitespace().find_map(|block| block.parse::<u64>().ok()).unwrap() * BLOCK;
    assert_found(&image, block, &[11], "PR_6_ORPHAN_BLOCK_DIRTY");
    assert_found(&image, block + BLOCK - 8, &[0], "PR_6_ORPHAN_BLOCK_DIRTY");
    let size = inode_offset(&image, "<12>", BLOCK) + 4;
    assert_found(&image, size, &[1], "PR_6_ORPHAN_FILE_CORRUPTED");
}

#[test]
fn a_file_without_extents_in_a_volume_with_clusters_is_found() {
    let options = ["-b", "1024", "-C", "4096", "-O", "bigalloc,^metadata_csum,^resize_inode"];
    let Some(image) = Image::mke2fs(16, &options) else { return };
    assert!(debugfs(&image.path(), "mkdir d"));
    // The directory keeps its block, as the first one of a file without extents.
    let blocks = image.debugfs("blocks d");
    let block: u32 = blocks.split_whitespace().find_map(|block| block.parse().ok()).unwrap();
    let inode = inode_offset(&image, "d", BLOCK);
    let file = fs::File::options().write(true).open(image.path()).unwrap();
    file.write_all_at(&[0; 60], inode + 40).unwrap();
    file.write_all_at(&block.to_le_bytes(), inode + 40).unwrap();
    assert_found(&image, inode + 32, &[0; 4], "PR_1_NO_BIGALLOC_BLOCKMAP_FILES");
}
