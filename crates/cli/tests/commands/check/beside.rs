//! Several problems of one inode, and problems of index trees and of links: each with the number
//! that e2fsck logs.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use testkit::command::{ScratchImage, program, text};
use testkit::{Image, tool};

use super::{BLOCK, check, debugfs, e2fsck, inode_offset, populated};

/// Returns the numbers of the problems that e2fsck logs; `None` without e2fsck.
fn logged(image: &Path) -> Option<String> {
    let scratch = ScratchImage::empty();
    let (config, log) = (scratch.path("e2fsck.conf"), scratch.path("problems"));
    fs::write(&config, format!("[options]\nproblem_log_filename = {}\n", log.display())).unwrap();
    tool(Command::new("/usr/sbin/e2fsck").arg("-fn").arg(image).env("E2FSCK_CONFIG", &config))?;
    Some(String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned())
}

/// Asserts that the check, and e2fsck, name each of `problems`.
fn assert_named(image: &Path, problems: &[&str], what: &str) {
    let output = Command::new(program()).args(["check", "--limit", "200000", &text(image)]).output().unwrap();
    let printed = testkit::tool::text(&output);
    let logged = logged(image);
    for problem in problems {
        let found = printed.lines().find_map(|line| line.split_once(&format!(" {problem}]")));
        let Some((line, _)) = found else { panic!("{what}: no {problem}: {printed}") };
        let number = line.rsplit('[').next().unwrap();
        let is_logged = logged.as_ref().is_none_or(|logged| logged.contains(&format!("code=\"{number}\"")));
        assert!(is_logged, "{what}: {number} {problem}: {logged:?}");
    }
}

#[test]
fn problems_of_a_damaged_inode_do_not_hide_each_other() {
    let scratch = ScratchImage::empty();
    let Some(base) = populated(&scratch, "^metadata_csum,^extents,^64bit") else { return };
    let table = base.debugfs("imap <1>");
    let table = table.split_once("located at block ").unwrap().1.split_once(',').unwrap().0;
    let bad_blocks = format!("sif <1> block[0] {table}");
    for (requests, problems) in [
        (&["sif /attributes dtime 9"][..], &["PR_1_LOW_DTIME", "PR_1_ORPHAN_LIST_REFUGEES"][..]),
        (&[&bad_blocks], &["PR_1_BADBLOCKS_IN_BADBLOCKS"]),
        (&["sif <1> block[1] 0x7fffffff"], &["PR_1_BB_ILLEGAL_BLOCK_NUM"]),
        (
            &["sif /attributes block[1] 0x7fffffff", "sif /attributes size 0xffff000000000000"],
            &["PR_1_BAD_I_SIZE", "PR_1_ILLEGAL_BLOCK_NUM"],
        ),
        (&["sif /attributes mode 0644"], &["PR_2_BAD_MODE", "PR_1_BAD_I_BLOCKS", "PR_2_BAD_FILETYPE"]),
        (
            &["sif /attributes mode 0644", "sif /attributes file_acl 99999999"],
            &["PR_2_BAD_MODE", "PR_2_FILE_ACL_BAD", "PR_2_BAD_FILETYPE"],
        ),
        (&["sif <7> block[2] 0x7fffffff"], &["PR_0_RESIZE_INODE_INVALID", "PR_1_ILLEGAL_BLOCK_NUM"]),
        (&["sif /link size 59"], &["PR_2_INVALID_SYMLINK", "PR_2_BAD_FILETYPE"]),
        (&["sif /fifo flags 0x80000"], &["PR_2_BAD_FIFO", "PR_2_BAD_FILETYPE"]),
        (&["sif /link file_acl 99999999"], &["PR_2_FILE_ACL_BAD", "PR_2_BAD_FILETYPE"]),
        (&["clri /attributes"], &["PR_2_UNUSED_INODE", "PR_2_BAD_FILETYPE"]),
    ] {
        let image = Image::of(&base.load());
        for request in requests {
            assert!(debugfs(&image.path(), request), "{request}");
        }
        assert_named(&image.path(), problems, &requests.join("; "));
    }
}

/// Returns the inode of a path.
fn inode_of(image: &Image, path: &str) -> u32 {
    let number = image.debugfs(&format!("stat {path}"));
    let number = number.split_once("Inode: ").unwrap().1.split_whitespace().next().unwrap();
    number.parse().unwrap()
}

#[test]
fn a_block_of_a_map_is_read_for_each_inode_that_has_it() {
    let scratch = ScratchImage::empty();
    let Some(image) = populated(&scratch, "^metadata_csum,^extents,^64bit") else { return };
    // The target of the link, whose bytes are no numbers of blocks.
    let block = image.debugfs("bmap /link 0");
    let files = ["/sparse", "/attributes"];
    for file in files {
        assert!(debugfs(&image.path(), &format!("sif {file} block[IND] {}", block.trim())), "{file}");
    }
    assert_named(&image.path(), &["PR_1_ILLEGAL_BLOCK_NUM", "PR_1B_DUP_BLOCK"], "shared");
    let (_, printed) = check(&image.path());
    for file in files {
        let place = format!("(inode {}) [0x01000e PR_1_ILLEGAL_BLOCK_NUM]", inode_of(&image, file));
        assert!(printed.contains(&place), "{file}, {place}: {printed}");
    }
}

#[test]
fn blocks_of_a_directory_that_another_one_has_are_not_missing() {
    let scratch = ScratchImage::empty();
    let Some(image) = populated(&scratch, "^metadata_csum,^extents,^64bit") else { return };
    let block = image.debugfs("bmap /a/b 0");
    assert!(debugfs(&image.path(), &format!("sif /a/b/c block[0] {}", block.trim())));
    assert_named(&image.path(), &["PR_1B_DUP_BLOCK"], "shared");
    let (_, printed) = check(&image.path());
    assert!(!printed.contains("PR_2_DIRECTORY_HOLE"), "{printed}");
    let logged = logged(&image.path());
    assert!(
        logged.is_none_or(|logged| !logged.contains("PR_2_DIRECTORY_HOLE") && !logged.contains("0x020015"))
    );
}

#[test]
fn an_entry_of_an_unused_inode_has_the_type_that_the_inode_had() {
    let scratch = ScratchImage::empty();
    let Some(image) = populated(&scratch, "^metadata_csum") else { return };
    for request in ["sif /attributes links_count 0", "sif /attributes dtime 0x69000000"] {
        assert!(debugfs(&image.path(), request), "{request}");
    }
    assert_named(&image.path(), &["PR_2_UNUSED_INODE"], "deleted");
    assert!(!check(&image.path()).1.contains("PR_2_BAD_FILETYPE"));
}

/// A machine without a clock begins in 1970, and deletes files in the first seconds.
#[test]
fn times_of_deletion_after_1970_are_sound_if_the_volume_was_made_then() {
    let Some(image) = Image::mke2fs(8, &["-b", "1024", "-O", "^metadata_csum"]) else { return };
    assert!(debugfs(&image.path(), "sif <13> dtime 9"));
    assert_named(&image.path(), &["PR_1_LOW_DTIME", "PR_1_ORPHAN_LIST_REFUGEES"], "now");
    assert!(debugfs(&image.path(), "ssv mkfs_time 5"));
    let (is_sound, printed) = check(&image.path());
    assert!(is_sound, "{printed}");
    assert!(e2fsck(&image.path()).is_none_or(|output| output.status.success()));
}

/// Returns the offset of the first block of data. The list of all blocks may begin with one of the
/// extent tree.
fn first_block(image: &Image, path: &str) -> u64 {
    image.debugfs(&format!("bmap {path} 0")).trim().parse::<u64>().unwrap() * BLOCK
}

#[test]
fn names_whose_hashes_do_not_fit_the_bounds_of_their_block_are_found() {
    /// Offset of the first entry with a hash in the root of an index, after the entry with the
    /// counts.
    const SECOND: usize = 40;
    let scratch = ScratchImage::empty();
    let Some(base) = populated(&scratch, "^metadata_csum") else { return };
    let root = first_block(&base, "/many");
    let mut bytes = [0; BLOCK as usize];
    File::open(base.path()).unwrap().read_exact_at(&mut bytes, root).unwrap();
    let hash = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    let (first, second) = (hash(SECOND), hash(SECOND + 8));
    // Between the hashes of the names in one of the two blocks that the bound divides.
    for (bound, problem) in
        [(first / 2, "PR_2_HTREE_MAX_HASH"), (first + (second - first) / 2, "PR_2_HTREE_MIN_HASH")]
    {
        let image = Image::of(&base.load());
        let file = File::options().write(true).open(image.path()).unwrap();
        file.write_all_at(&(bound & !1).to_le_bytes(), root + SECOND as u64).unwrap();
        assert_named(&image.path(), &[problem], problem);
    }
}

#[test]
fn a_parent_that_does_not_name_the_directory_is_found() {
    let scratch = ScratchImage::empty();
    let Some(image) = populated(&scratch, "^metadata_csum") else { return };
    let block = first_block(&image, "/a/b/c");
    let file = File::options().write(true).open(image.path()).unwrap();
    // The inode of `..`: the root instead of `/a/b`.
    file.write_all_at(&[2], block + 12).unwrap();
    assert_named(&image.path(), &["PR_3_BAD_DOT_DOT"], "..");
}

/// Returns the blocks of a directory with an entry for each of `inodes`.
fn entries(own: u32, inodes: Range<u32>) -> Vec<u8> {
    const LEN: u16 = 16;
    let entry = |inode: u32, name: &[u8]| {
        let mut entry = inode.to_le_bytes().to_vec();
        entry.extend(LEN.to_le_bytes());
        entry.extend([u8::try_from(name.len()).unwrap(), 2]);
        entry.extend(name);
        entry.resize(LEN.into(), 0);
        entry
    };
    let mut bytes = [entry(own, b"."), entry(2, b"..")].concat();
    inodes.for_each(|inode| bytes.extend(entry(inode, format!("{inode:08}").as_bytes())));
    let blocks = bytes.len().next_multiple_of(BLOCK as usize);
    // The last entry fills the block.
    let rest = u16::try_from(blocks - bytes.len()).unwrap();
    let last = bytes.len() - usize::from(LEN) + 4;
    bytes[last..last + 2].copy_from_slice(&(LEN + rest).to_le_bytes());
    bytes.resize(blocks, 0);
    bytes
}

#[test]
fn a_directory_with_more_names_than_links_needs_the_feature() {
    const INODES: Range<u32> = 100..65_101;
    const SIZE: usize = 256;
    let features = "inline_data,^metadata_csum,^uninit_bg,^dir_index,^dir_nlink,^has_journal";
    let options = ["-b", "1024", "-I", "256", "-N", "70000", "-O", features];
    let Some(image) = Image::mke2fs(160, &options) else { return };
    let volume = image.open();
    volume.create_dir("/template", 0o755).unwrap();
    volume.write("/parent", "x").unwrap();
    let parent = volume.resolve("/parent").unwrap().ino().get();
    volume.write("/parent", entries(parent, INODES)).unwrap();
    volume.close().unwrap();
    for request in ["sif /parent mode 040755", "sif /parent links_count 2"] {
        assert!(debugfs(&image.path(), request), "{request}");
    }
    // Subdirectories in their inodes: the first word is the parent.
    let file = File::options().read(true).write(true).open(image.path()).unwrap();
    let mut template = [0; SIZE];
    file.read_exact_at(&mut template, inode_offset(&image, "/template", BLOCK)).unwrap();
    template[40..44].copy_from_slice(&parent.to_le_bytes());
    let mut per_group = [0; 4];
    file.read_exact_at(&mut per_group, 1024 + 40).unwrap();
    let per_group = u32::from_le_bytes(per_group);
    for first in (1..INODES.end).step_by(per_group as usize) {
        let (start, end) = (first.max(INODES.start), (first + per_group).min(INODES.end));
        let offset = inode_offset(&image, &format!("<{start}>"), BLOCK);
        file.write_all_at(&template.repeat((end - start) as usize), offset).unwrap();
    }
    assert_named(&image.path(), &["PR_4_DIR_NLINK_FEATURE"], "many subdirectories");
}
