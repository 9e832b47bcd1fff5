//! `check`: finds what e2fsck finds, and nothing in sound volumes.

mod beside;
mod formats;
mod illegal_blocks;
mod names;
mod sound;
mod superblock;
mod values;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{XattrFlags, lsetxattr};
use testkit::command::{ScratchImage, program, run, text};
use testkit::rng::Rng;
use testkit::{Image, settings, tool};

/// Bytes of a block of the images here.
const BLOCK: u64 = 1024;

/// Makes a volume with an index, an extent tree, attributes in a block, links and special files.
/// `None` without mke2fs.
fn populated(scratch: &ScratchImage, features: &str) -> Option<Image> {
    let image = Image::mke2fs(16, &["-b", "1024", "-O", features])?;
    let tree = scratch.path("tree");
    fs::create_dir_all(tree.join("many")).unwrap();
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    for n in 0..400 {
        fs::write(tree.join(format!("many/a-name-that-fills-blocks-{n}")), "x").unwrap();
    }
    let sparse = File::create(tree.join("sparse")).unwrap();
    for n in 0..200 {
        sparse.write_all_at(b"x", n * 16384).unwrap();
    }
    fs::write(tree.join("attributes"), "x").unwrap();
    for n in 0..4 {
        lsetxattr(tree.join("attributes"), format!("user.{n}"), &[b'v'; 150], XattrFlags::empty()).unwrap();
    }
    fs::hard_link(tree.join("sparse"), tree.join("a/again")).unwrap();
    symlink("x/".repeat(60), tree.join("link")).unwrap();
    assert!(Command::new("mkfifo").arg(tree.join("fifo")).status().unwrap().success());
    scratch.ok(&["put", "--quiet", &text(&tree.join(".")), &format!("{}:/", image.path().display())]);
    fs::remove_dir_all(&tree).unwrap();
    Some(image)
}

fn e2fsck(image: &Path) -> Option<Output> {
    tool(Command::new("/usr/sbin/e2fsck").arg("-fn").arg(image))
}

/// Runs the check, which must end with a known status. Returns true if it found nothing, and its
/// output.
fn check(image: &Path) -> (bool, String) {
    let output = run(&["check", &text(image)]);
    let printed = testkit::tool::text(&output);
    assert!(matches!(output.status.code(), Some(0 | 1 | 8)), "{printed}");
    assert!(!printed.contains("panicked"), "{printed}");
    (output.status.success(), printed)
}

fn debugfs(image: &Path, request: &str) -> bool {
    tool(Command::new("/usr/sbin/debugfs").args(["-w", "-R", request]).arg(image)).is_some()
}

/// Returns the offset of an inode in the image. `inode` is a path, or a number in angle brackets.
fn inode_offset(image: &Image, inode: &str, block_size: u64) -> u64 {
    let place = image.debugfs(&format!("imap {inode}"));
    let (block, offset) = place.split_once("located at block ").unwrap().1.split_once(", offset 0x").unwrap();
    block.parse::<u64>().unwrap() * block_size + u64::from_str_radix(offset.trim(), 16).unwrap()
}

/// Writes `bytes` to a copy of a sound image, and asserts that the check and e2fsck find damage.
/// The check must name `problem`.
fn assert_found(base: &Image, offset: u64, bytes: &[u8], problem: &str) {
    let scratch = ScratchImage::empty();
    let image = scratch.path("damaged.img");
    fs::copy(base.path(), &image).unwrap();
    File::options().write(true).open(&image).unwrap().write_all_at(bytes, offset).unwrap();
    let (is_clean, printed) = check(&image);
    assert!(!is_clean && printed.contains(problem), "{bytes:?} at {offset}: {printed}");
    assert!(e2fsck(&image).is_none_or(|output| !output.status.success()), "{bytes:?} at {offset}");
}

#[test]
fn damage_is_found_as_the_problem_of_e2fsck() {
    let scratch = ScratchImage::empty();
    let Some(base) = populated(&scratch, "flex_bg") else { return };
    let base = base.path();
    assert_eq!(check(&base), (true, scratch.ok(&["check", &text(&base)])));
    let image = scratch.path("damaged.img");
    for (request, problem) in [
        ("sif /attributes links_count 3", "PR_4_BAD_REF_COUNT"),
        ("sif /sparse blocks 2", "PR_1_BAD_I_BLOCKS"),
        ("sif /sparse size 1024", "PR_1_BAD_I_SIZE"),
        ("sif /sparse dtime 9", "PR_1_SET_DTIME"),
        ("sif /a/b mode 0100644", "PR_2_BAD_FILETYPE"),
        ("sif /attributes file_acl 99999999", "PR_2_FILE_ACL_BAD"),
        ("sif /sparse block[0] 0", "PR_1_EXTENT_HEADER_INVALID"),
        ("sif /a block[1] 1", "PR_1_MISSING_EXTENT_HEADER"),
        ("sif /a block[4] 0x8001", "PR_1_UNINIT_DBLOCK"),
        ("sif /a flags 0x40080000", "PR_1_CASEFOLD_FEATURE"),
        ("sif /sparse flags 0x40080000", "PR_1_CASEFOLD_NONDIR"),
        ("sif /sparse flags 0x80800", "PR_1_MISSING_ENCRYPTION_XATTR"),
        ("sif /attributes flags 0x80800", "PR_1_MISSING_ENCRYPTION_XATTR"),
        ("sif /a flags 0x82000", "PR_1_SET_IMAGIC"),
        ("sif <3> blocks 2", "PR_1_QUOTA_INODE_NOT_CLEAR"),
        ("sif <4> block[0] 5000", "PR_1_QUOTA_INODE_NOT_CLEAR"),
        ("clri /attributes", "PR_2_UNUSED_INODE"),
        ("unlink /attributes", "PR_4_UNATTACHED_INODE"),
        ("unlink /a", "PR_3_UNCONNECTED_DIR"),
        ("ln /a /a/b/c/again", "PR_2_LINK_DIR"),
        ("ln /attributes /many/a-new-name", "PR_4_BAD_REF_COUNT"),
        ("freeb 1", "PR_5_BLOCK_USED"),
        ("setb 15000 3", "PR_5_BLOCK_UNUSED"),
        ("freei /attributes", "PR_5_INODE_USED"),
        ("seti <900>", "PR_5_INODE_UNUSED"),
        ("set_bg 0 free_inodes_count 3", "PR_5_FREE_INODE_COUNT_GROUP"),
        ("set_bg 1 inode_table 3", "PR_1_BB_CONFLICT"),
        ("sif /fifo flags 0x80000", "PR_2_BAD_FIFO"),
        ("sif /fifo size 0x100000000", "PR_1_SET_NONZSIZE"),
        ("sif /link block[3] 0x4000", "PR_2_INVALID_SYMLINK"),
        ("sif /link size 119", "PR_2_INVALID_SYMLINK"),
        ("sif /link size 59", "PR_2_INVALID_SYMLINK"),
        ("sif /sparse dtime 9", "PR_1_LOW_DTIME"),
        ("sif /a block[3] 3", "PR_1_COLLAPSE_DBLOCK"),
        ("sif <1> uid 3", "PR_1_INVALID_BAD_INODE"),
        ("ssv usr_quota_inum 2", "PR_0_INVALID_QUOTA_INO"),
        ("ssv orphan_file_inum 13", "PR_1_ORPHAN_FILE_NOT_CLEAR"),
        ("feature -ext_attr", "PR_2_FILE_ACL_ZERO"),
    ] {
        fs::copy(&base, &image).unwrap();
        if !debugfs(&image, request) {
            return;
        }
        let (is_clean, printed) = check(&image);
        assert!(!is_clean && printed.contains(problem), "{request}: {printed}");
        assert!(e2fsck(&image).is_none_or(|output| !output.status.success()), "{request}");
    }
    let listed: serde_json::Value =
        serde_json::from_slice(&run(&["check", "--json", &text(&image)]).stdout).unwrap();
    assert_eq!(listed["count"].as_u64().map(|count| count > 0), Some(true));
    let output = run(&["check", &text(&scratch.path("missing.img"))]);
    assert_eq!(output.status.code(), Some(8));
}

#[test]
fn a_block_of_two_files_is_reported_with_both() {
    let scratch = ScratchImage::empty();
    let Some(image) = populated(&scratch, "^metadata_csum,^has_journal") else { return };
    let image = image.path();
    let stat = testkit::tool::text(
        &tool(Command::new("/usr/sbin/debugfs").args(["-R", "blocks /link"]).arg(&image)).unwrap(),
    );
    let block = stat.lines().find_map(|line| line.trim().parse::<u64>().ok()).unwrap();
    debugfs(&image, &format!("sif /attributes block[5] {block}"));
    let (is_clean, printed) = check(&image);
    let inode = |path| {
        let list = scratch.ok(&["ls", "--json", &format!("{}:{path}", image.display())]);
        serde_json::from_str::<serde_json::Value>(&list).unwrap()[0]["inode"].as_u64().unwrap()
    };
    let (a, b) = (inode("/attributes").min(inode("/link")), inode("/attributes").max(inode("/link")));
    assert!(!is_clean && printed.contains("PR_1B_DUP_BLOCK"), "{printed}");
    let either = [format!("by inode {a}, {b} (block {block})"), format!("by inode {b}, {a} (block {block})")];
    assert!(either.iter().any(|owners| printed.contains(owners)), "{printed}");
}

#[test]
fn a_name_without_a_prefix_in_an_attribute_block_is_found() {
    let scratch = ScratchImage::empty();
    let Some(image) = populated(&scratch, "^metadata_csum") else { return };
    let stat = image.debugfs("stat /attributes");
    let block = stat.split("File ACL: ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    assert_found(&image, block.parse::<u64>().unwrap() * BLOCK + 32 + 1, &[0], "PR_1_EA_BAD_NAME");
}

#[test]
fn a_size_that_no_map_can_have_is_found() {
    for features in ["inline_data,^metadata_csum", "^extents,^64bit,^metadata_csum"] {
        let Some(image) = Image::mke2fs(16, &["-b", "1024", "-I", "256", "-O", features]) else { return };
        let volume = image.open();
        volume.write("/file", "x").unwrap();
        volume.close().unwrap();
        let high = inode_offset(&image, "/file", BLOCK) + 108;
        assert_found(&image, high, &[5], "PR_1_BAD_I_SIZE");
    }
}

/// libext2fs reads no list with such an entry, and so finds no inline data.
#[test]
fn an_empty_value_past_the_attributes_of_an_inode_is_found() {
    let options = ["-b", "1024", "-I", "256", "-O", "inline_data,^metadata_csum"];
    let Some(image) = Image::mke2fs(16, &options) else { return };
    let volume = image.open();
    volume.write("/file", "x").unwrap();
    volume.close().unwrap();
    let offset = inode_offset(&image, "/file", BLOCK) + 160 + 4 + 2;
    assert_found(&image, offset, &[0xff], "PR_1_INLINE_DATA_NO_ATTR");
}

/// Changes something of the volume: by debugfs, with right checksums, or bytes of a block of
/// metadata.
fn damage(rng: &mut Rng, image: &Path) -> String {
    let inode = [2, 8, 11, 12 + rng.below(410), 12 + rng.below(410)][rng.below(5) as usize];
    let value = [0, 1, 2, 0xffff, 0xffff_ffff, rng.below(16384)][rng.below(6) as usize];
    let fields = [
        "mode",
        "size",
        "links_count",
        "blocks",
        "flags",
        "dtime",
        "file_acl",
        "block[0]",
        "block[2]",
        "block[5]",
    ];
    let counts =
        ["free_blocks_count", "free_inodes_count", "last_orphan", "journal_inum", "reserved_gdt_blocks"];
    let places =
        ["block_bitmap", "inode_bitmap", "inode_table", "free_blocks_count", "used_dirs_count", "flags"];
    let of = |list: &[&'static str], rng: &mut Rng| list[rng.below(list.len() as u64) as usize];
    let request = match rng.below(9) {
        0 | 1 => format!("sif <{inode}> {} {value}", of(&fields, rng)),
        2 => format!("clri <{inode}>"),
        3 => format!("ssv {} {value}", of(&counts, rng)),
        4 => format!("set_bg {} {} {value}", rng.below(2), of(&places, rng)),
        5 => format!("{} {} 2", of(&["freeb", "setb"], rng), 1 + rng.below(16000)),
        6 => format!("{} <{inode}>", of(&["freei", "seti"], rng)),
        7 => format!("ln <{inode}> /a/n{}", rng.below(99)),
        _ => {
            // The first blocks are descriptors, bitmaps, inode tables and directories.
            let (block, at) =
                (1 + rng.below(700), [rng.below(64), rng.below(BLOCK - 4)][rng.below(2) as usize]);
            let file = File::options().write(true).open(image).unwrap();
            file.write_all_at(&value.to_le_bytes()[..=(rng.below(4) as usize)], block * BLOCK + at).unwrap();
            return format!("byte {at} of block {block} and the next: {value:#x}");
        }
    };
    debugfs(image, &request);
    request
}

/// A crash leaves such a directory between its removal and its deletion.
#[test]
fn a_deleted_directory_has_no_name_and_the_names_in_it_do_not_count() {
    let Some(image) = Image::mke2fs(8, &["-b", "1024"]) else { return };
    assert!(debugfs(&image.path(), "mkdir d"));
    let stat = image.debugfs("stat d");
    let number = stat.split("Inode: ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let sif = format!("sif <{number}> links_count 0");
    let orphan = format!("ssv last_orphan {number}");
    for request in [&sif, &orphan, "sif / links_count 3"] {
        assert!(debugfs(&image.path(), request), "{request}");
    }
    let (is_sound, printed) = check(&image.path());
    assert!(!is_sound && printed.contains("PR_2_UNUSED_INODE"), "still named: {printed}");
    assert!(e2fsck(&image.path()).is_none_or(|output| !output.status.success()));
    assert!(debugfs(&image.path(), "unlink d"));
    let (is_sound, printed) = check(&image.path());
    assert!(is_sound && printed.contains("1 orphans"), "{printed}");
    // Its blocks are freed before the inode.
    assert!(debugfs(&image.path(), &format!("punch <{number}> 0")));
    let (is_sound, printed) = check(&image.path());
    assert!(is_sound, "{printed}");
}

#[test]
fn no_damage_that_e2fsck_finds_is_missed() {
    let scratch = ScratchImage::empty();
    let mut rng = Rng::new(settings::seed("check"), 0);
    let image = scratch.path("damaged.img");
    for features in ["flex_bg", "^metadata_csum"] {
        let Some(base) = populated(&scratch, features) else { return };
        for _ in 0..if settings::all() { 500 } else { 25 } {
            fs::copy(base.path(), &image).unwrap();
            let mut done = vec![damage(&mut rng, &image)];
            if rng.chance(30) {
                done.push(damage(&mut rng, &image));
            }
            let Some(expected) = e2fsck(&image) else { return };
            let (is_clean, printed) = check(&image);
            assert!(
                !is_clean || expected.status.success(),
                "{done:?}: {}\n{printed}",
                testkit::tool::text(&expected)
            );
        }
    }
}

#[test]
fn a_dirty_journal_is_replayed_in_memory() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024"]) else { return };
    let volume = image.open();
    volume.create_dir("/dir", 0o755).unwrap();
    volume.write("/dir/file", "x").unwrap();
    volume.abort().unwrap();
    drop(volume);
    let (path, before) = (image.path(), fs::read(image.path()).unwrap());
    let (is_clean, printed) = check(&path);
    assert!(is_clean && printed.contains("the journal was replayed in memory"), "{printed}");
    let raw = testkit::tool::text(&run(&["check", "--no-replay", &text(&path)]));
    assert!(raw.contains("note: the journal is not replayed"), "{raw}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// Writes 32-bit numbers at offsets of the superblock.
fn set_superblock(image: &Path, fields: &[(u64, u32)]) {
    let file = File::options().write(true).open(image).unwrap();
    for (at, value) in fields {
        file.write_all_at(&value.to_le_bytes(), 1024 + at).unwrap();
    }
}

#[test]
fn a_superblock_alone_takes_no_memory_for_its_groups() {
    let scratch = ScratchImage::empty();
    let features = "meta_bg,^resize_inode,^metadata_csum,^64bit,^has_journal";
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", features]) else { return };
    // Groups of eight blocks. All but the descriptors of the first few are in a hole of the file.
    let groups = (1 << 29) - 1;
    let fields =
        [(0, groups * 8), (4, groups * 8 + 1), (12, 0), (16, 0), (32, 8), (36, 8), (40, 8), (260, 0)];
    set_superblock(&image.path(), &fields);
    File::options().write(true).open(image.path()).unwrap().set_len((1 << 42) - 1024).unwrap();
    let limited = format!("ulimit -v 2000000; exec {} check {}", program().display(), image.path().display());
    let output = Command::new("sh").args(["-c", &limited]).output().unwrap();
    let printed = testkit::tool::text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("more than 65536 group descriptors are unusable"), "{printed}");
    drop(scratch);
}

#[test]
fn a_table_that_several_groups_name_is_read_once() {
    let scratch = ScratchImage::empty();
    let Some(image) = Image::mke2fs(64, &["-b", "1024", "-O", "^metadata_csum,^uninit_bg,^flex_bg"]) else {
        return;
    };
    let image = image.path();
    fs::write(scratch.path("file"), "x").unwrap();
    scratch.ok(&["put", "-q", &text(&scratch.path("file")), &format!("{}:/", image.display())]);
    let listed = testkit::tool::text(
        &tool(Command::new("/usr/sbin/debugfs").args(["-R", "imap /file"]).arg(&image)).unwrap(),
    );
    assert!(listed.contains("group 0"), "{listed}");
    let place = listed.split("located at block ").nth(1).unwrap();
    let block: u64 = place.split(',').next().unwrap().parse().unwrap();
    let table = block - (12 - 1) * 256 / BLOCK;
    debugfs(&image, "sif /file blocks 88");
    for group in 1..8 {
        debugfs(&image, &format!("set_bg {group} inode_table {table}"));
    }
    let (_, printed) = check(&image);
    assert!(printed.contains("PR_1_BB_CONFLICT"), "{printed}");
    assert_eq!(printed.matches("PR_1_BAD_I_BLOCKS").count(), 1, "{printed}");
}

#[test]
fn extents_that_all_inodes_share_are_searched_within_a_limit() {
    const FILES: u64 = 600;
    let scratch = ScratchImage::empty();
    let features = "^metadata_csum,^uninit_bg,^has_journal,^resize_inode";
    let Some(image) = Image::mke2fs(1024, &["-b", "4096", "-I", "256", "-N", "8192", "-O", features]) else {
        return;
    };
    let tree = scratch.path("tree");
    fs::create_dir(&tree).unwrap();
    for n in 0..FILES {
        fs::write(tree.join(n.to_string()), "").unwrap();
    }
    scratch.ok(&["put", "-q", &text(&tree.join(".")), &format!("{}:/", image.path().display())]);
    let place = image.debugfs("imap /lost+found");
    let block: u64 =
        place.split("located at block ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    // An extent tree of depth 0: four times the same 32768 blocks.
    let mut map: Vec<u8> = [0xf30a_u16, 4, 4, 0, 0, 0].into_iter().flat_map(u16::to_le_bytes).collect();
    for n in 0..4_u32 {
        map.extend((n << 15).to_le_bytes());
        map.extend([0x8000_u16, 0].into_iter().flat_map(u16::to_le_bytes));
        map.extend(100_000_u32.to_le_bytes());
    }
    let file = File::options().write(true).open(image.path()).unwrap();
    for n in 0..FILES {
        file.write_all_at(&map, block * 4096 + (12 - 1 + n) * 256 + 40).unwrap();
    }
    let output = run(&["check", "--limit", "100000", &text(&image.path())]);
    let printed = testkit::tool::text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let owners = printed.matches("PR_1B_DUP_BLOCK").count();
    assert!((1..=1000).contains(&owners), "{owners}");
}

/// The tree of pointers below the last word has places for 2^33 blocks if blocks have 8 KiB.
#[test]
fn a_directory_with_a_block_past_the_largest_file_is_reported() {
    const BLOCK: u64 = 8192;
    let options = ["-b", "8192", "-O", "^extents,^metadata_csum,^64bit,^has_journal"];
    let Some(image) = Image::mke2fs(32, &options) else { return };
    let image = image.path();
    // Blocks that are free: three of pointers, of which the last pointer leads to the next one, and
    // one of entries.
    let blocks = [3000_u32, 3001, 3002, 3003];
    let file = File::options().write(true).open(&image).unwrap();
    for pair in blocks.windows(2) {
        file.write_all_at(&pair[1].to_le_bytes(), u64::from(pair[0] + 1) * BLOCK - 4).unwrap();
    }
    drop(file);
    if !debugfs(&image, &format!("sif /lost+found block[TIND] {}", blocks[0])) {
        return;
    }
    let (is_clean, printed) = check(&image);
    assert!(!is_clean && printed.contains("PR_1_ILLEGAL_BLOCK_NUM"), "{printed}");
    assert!(printed.contains("which no file can have"), "{printed}");
}
