//! Blocks outside of the volume: `i_blocks` is compared with the number of the other blocks of the
//! file, as e2fsck does it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use parext4::OpenOptions;
use testkit::Image;

use super::{BLOCK, check, debugfs, e2fsck, inode_offset};

/// Damages of the file: the offsets of numbers of blocks in the image.
type Damages = Vec<(&'static str, Vec<u64>)>;

/// Makes a volume with a file `/f` that has many extents, or blocks of pointers of each level.
fn with_file(features: &str) -> Option<Image> {
    let image = Image::mke2fs(24, &["-b", "1024", "-O", features])?;
    let volume = image.open();
    volume.write("/f", "x").unwrap();
    let file = volume.open_file("/f", &OpenOptions::new().write(true)).unwrap();
    for block in (0..600).map(|n| n * 2).chain([70_000, 140_000]) {
        file.write_all_at(&[b'x'; 100], block * BLOCK).unwrap();
    }
    drop(file);
    volume.close().unwrap();
    Some(image)
}

/// Returns the 32-bit number at an offset of the image.
fn word(image: &Image, offset: u64) -> u64 {
    let mut bytes = [0; 4];
    File::open(image.path()).unwrap().read_exact_at(&mut bytes, offset).unwrap();
    u32::from_le_bytes(bytes).into()
}

/// Returns the numbers after `before` and `between` in each line that has both.
fn numbers(printed: &str, before: &str, between: &str) -> Vec<(u64, u64)> {
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    let of_line = |line: &str| {
        let (_, rest) = line.split_once(before)?;
        let (first, rest) = rest.split_once(between)?;
        Some((number(first), number(rest)))
    };
    printed.lines().filter_map(of_line).collect()
}

/// Asserts that the check and e2fsck find the same wrong `i_blocks`, and returns them, each with
/// the right number. `None` without e2fsck.
fn wrong_counts(image: &Path, what: &str) -> Option<Vec<(u64, u64)>> {
    let expected = testkit::tool::text(&e2fsck(image)?);
    let (_, printed) = check(image);
    let wrong = numbers(&printed, "i_blocks: ", ", but ");
    assert_eq!(wrong, numbers(&expected, "i_blocks is ", ", should be "), "{what}: {expected}\n{printed}");
    Some(wrong)
}

/// Damages a copy of the image at each list of offsets, and compares the check with e2fsck while
/// `i_blocks` counts all blocks, the blocks that are left, or neither.
fn assert_counted(base: &Image, damages: &Damages, problem: &str) {
    for (what, offsets) in damages {
        let image = Image::of(&base.load());
        let file = File::options().write(true).open(image.path()).unwrap();
        for &offset in offsets {
            file.write_all_at(&0x7fff_ffff_u32.to_le_bytes(), offset).unwrap();
        }
        assert!(check(&image.path()).1.contains(problem), "{what}");
        let Some(wrong) = wrong_counts(&image.path(), what) else { return };
        let [(_, left)] = wrong[..] else { panic!("{what}: {wrong:?}") };
        for (blocks, expected) in [(left, vec![]), (left + 2, vec![(left + 2, left)])] {
            assert!(debugfs(&image.path(), &format!("sif /f blocks {blocks}")));
            assert_eq!(wrong_counts(&image.path(), what).unwrap(), expected, "{what}");
        }
    }
}

#[test]
fn pointers_out_of_the_volume_do_not_hide_a_wrong_number_of_blocks() {
    let Some(image) = with_file("^metadata_csum,^extents,^64bit") else { return };
    let pointers = inode_offset(&image, "/f", BLOCK) + 40;
    let (single, double, triple) = (pointers + 48, pointers + 52, pointers + 56);
    let block = |offset| word(&image, offset) * BLOCK;
    let in_double = block(double);
    let damages = vec![
        ("a direct block", vec![pointers]),
        ("direct blocks", (0..12).map(|n| pointers + n * 4).collect()),
        ("the block of pointers", vec![single]),
        ("a block in the block of pointers", vec![block(single)]),
        ("the double block", vec![double]),
        ("a block of pointers in the double block", vec![in_double + 4]),
        ("blocks of the double block", vec![block(in_double), block(in_double) + 8, block(in_double + 4)]),
        // File block 70000 is pointer 100 of block 16 below the first double block.
        ("a block of the triple block", vec![block(block(block(triple)) + 64) + 400]),
        ("a block in each", vec![pointers + 8, block(single) + 8, in_double + 8]),
    ];
    assert_counted(&image, &damages, "PR_1_ILLEGAL_BLOCK_NUM");
}

#[test]
fn extents_out_of_the_volume_do_not_hide_a_wrong_number_of_blocks() {
    for features in ["^metadata_csum", "metadata_csum"] {
        let Some(image) = with_file(features) else { return };
        // The root, the first index node and the first leaf have a header of 12 bytes, and entries
        // of 12 bytes.
        let root = inode_offset(&image, "/f", BLOCK) + 40;
        let index = word(&image, root + 16) * BLOCK;
        let leaf = word(&image, index + 16) * BLOCK;
        let damages = vec![
            ("an extent", vec![leaf + 20]),
            ("extents", (0..30).map(|n| leaf + 20 + n * 24).collect()),
            ("a leaf", vec![index + 16]),
            ("leaves, and an extent", vec![index + 28, index + 40, leaf + 32]),
        ];
        assert_counted(&image, &damages, "PR_1_EXTENT_BAD_START_BLK");
        if features == "^metadata_csum" {
            assert_counted(&image, &vec![("the index", vec![root + 16])], "PR_1_EXTENT_BAD_START_BLK");
        }
    }
}

#[test]
fn an_attribute_block_out_of_the_volume_counts_as_none() {
    let Some(image) = with_file("^metadata_csum,^64bit") else { return };
    let file_acl = inode_offset(&image, "/f", BLOCK) + 104;
    for blocks in [word(&image, file_acl - 104 + 28), 4] {
        let image = Image::of(&image.load());
        assert!(debugfs(&image.path(), &format!("sif /f blocks {blocks}")));
        let file = File::options().write(true).open(image.path()).unwrap();
        file.write_all_at(&0x7fff_ffff_u32.to_le_bytes(), file_acl).unwrap();
        assert!(check(&image.path()).1.contains("PR_2_FILE_ACL_BAD"));
        let Some(wrong) = wrong_counts(&image.path(), "attributes") else { return };
        assert_eq!(wrong.len(), usize::from(blocks == 4), "{wrong:?}");
    }
}
