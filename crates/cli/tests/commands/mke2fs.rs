//! `mkfs` with the words of mke2fs: the same words make the same volume, which e2fsck and the
//! kernel accept.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::command::{ScratchImage, program, run, text};
use testkit::kernel_mount::KernelMount;
use testkit::{skipped, tool};

pub const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
const SEED: &str = "hash_seed=00000000-0000-0000-0000-000000000001";
/// The time of all volumes, in seconds.
pub const TIME: &str = "1000000000";

/// Sizes in MiB, words, and extended options.
const CASES: &[(u64, &str, &str)] = &[
    (8, "-t ext2", ""),
    (64, "-t ext2 -j -m 0.5", ""),
    (64, "-t ext2 -r 0 -O ^64bit -N 0", ""),
    (64, "-t ext3 -J size=4 -e remount-ro", "resize=1G"),
    (64, "-t ext4 -T floppy -e panic", ""),
    (64, "-t ext4 -T big -L label -M /mnt/there", "test_fs"),
    (64, "-t ext4 -T huge -J location=32M", ""),
    (64, "-t ext2 -T news", ""),
    (300, "-t ext4 -T small,largefile", ""),
    (300, "-t ext3 -T largefile4", ""),
    (64, "-t ext4 -O fast_commit", "stride=4,stripe_width=16"),
    (256, "-t ext4 -O fast_commit -b 4096 -J size=16,fast_commit_size=1024", ""),
    (64, "-t ext4 -O orphan_file,metadata_csum_seed,stable_inodes", "root_owner=1000:1001"),
    (64, "-t ext4 -O orphan_file,^metadata_csum", "orphan_file_size=64K,nodiscard"),
    (64, "-t ext4 -O sparse_super2 -g 1024", "num_backup_sb=1"),
    (64, "-t ext4 -O sparse_super2,^resize_inode -g 1024", "num_backup_sb=0"),
    (64, "-t ext4 -J location=20000", "packed_meta_blocks=1,lazy_itable_init=0,lazy_journal_init=1,discard"),
    (64, "-t ext4", "packed_meta_blocks=1,resize=1000000"),
];

/// Lines in which volumes with the same words differ, because the programs do not write the same
/// number of bytes.
const DIFFER: [&str; 2] = ["Checksum:", "Lifetime writes:"];

/// Makes a sparse image.
pub fn sparse(scratch: &ScratchImage, name: &str, mib: u64) -> PathBuf {
    let image = scratch.path(name);
    File::create(&image).unwrap().set_len(mib << 20).unwrap();
    image
}

/// Returns the words of both programs.
pub fn words(words: &str, extended: &str) -> Vec<String> {
    let extended =
        [SEED, extended].iter().filter(|list| !list.is_empty()).copied().collect::<Vec<_>>().join(",");
    ["-q", "-F", "-U", UUID, "-E", &extended].into_iter().chain(words.split(' ')).map(str::to_owned).collect()
}

/// Makes a volume with parext4.
pub fn ours(image: &Path, words: &[String]) {
    let mut mkfs = Command::new(program());
    let made = mkfs.arg("mkfs").args(words).arg(image).env("SOURCE_DATE_EPOCH", TIME).output().unwrap();
    assert!(made.status.success(), "{words:?}: {}", String::from_utf8_lossy(&made.stderr));
    assert!(made.stdout.is_empty());
}

/// Returns true if mke2fs makes a volume of `blocks` blocks with the files of `dir`.
fn mke2fs_fits(dir: &Path, image: &Path, blocks: u64) -> Option<bool> {
    let _ = fs::remove_file(image);
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal", "-N", "512", "-d"]);
    tool(mke2fs.args([dir, image]).arg(blocks.to_string())).map(|output| output.status.success())
}

/// The names of the files need a directory of several blocks.
#[test]
fn put_fits_where_mke2fs_fits_the_same_files() {
    let scratch = ScratchImage::empty();
    let (dir, image) = (scratch.path("files"), scratch.path("tight"));
    fs::create_dir(&dir).unwrap();
    for nth in 0..400 {
        fs::write(dir.join(format!("a file {nth}")), nth.to_string()).unwrap();
    }
    // Not one block less suffices.
    let (mut few, mut enough): (u64, u64) = (300, 1500);
    while enough - few > 1 {
        let blocks = few.midpoint(enough);
        let Some(fits) = mke2fs_fits(&dir, &image, blocks) else { return };
        (few, enough) = if fits { (few, blocks) } else { (blocks, enough) };
    }
    let empty = scratch.path("empty");
    fs::create_dir(&empty).unwrap();
    for threads in ["1", "2", "8"] {
        assert_eq!(mke2fs_fits(&empty, &image, enough), Some(true));
        let (from, to) = (text(&dir.join(".")), format!("{}:/", text(&image)));
        scratch.ok(&["put", "-q", "--threads", threads, &from, &to]);
        let checked = tool(Command::new("e2fsck").arg("-fn").arg(&image)).unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }
}

/// Returns the superblock as dumpe2fs prints it, apart from the lines that differ.
fn facts(image: &Path) -> Vec<String> {
    let printed = tool(Command::new("dumpe2fs").arg("-h").arg(image)).unwrap();
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let is_fact = |line: &&str| !DIFFER.iter().any(|name| line.starts_with(name));
    printed.lines().filter(is_fact).map(str::to_owned).collect()
}

fn fsck(image: &Path) {
    let checked = tool(Command::new("e2fsck").arg("-fn").arg(image)).unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

/// Returns the message of a command that must fail.
fn failure(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The reports of `mkfs` and `info` name the type as blkid does, whatever `-t` was.
#[test]
fn reports_name_the_type_that_was_made() {
    let scratch = ScratchImage::empty();
    let image = sparse(&scratch, "volume", 8);
    let cases = [
        ("-t ext2", "ext2"),
        ("-t ext2 -j", "ext3"),
        ("-t ext2 -r 0", "ext2"),
        ("-t ext2 -O meta_bg,^resize_inode", "ext2"),
        ("-t ext2 -O extent", "ext4"),
        ("-t ext3", "ext3"),
        ("-t ext3 -O huge_file", "ext4"),
        ("-t ext4", "ext4"),
        ("-t ext4 --no-journal", "ext4"),
        ("-O none", "ext2"),
        ("-O journal_dev", "jbd"),
    ];
    for (words, expected) in cases {
        let mkfs: Vec<_> = ["mkfs", "-F"].into_iter().chain(words.split(' ')).collect();
        let name = text(&image);
        let is_journal = expected == "jbd";
        let printed = scratch.ok(&[&mkfs[..], &[&name]].concat());
        let kind = if is_journal { "journal device" } else { expected };
        assert!(printed.starts_with(&format!("{name}: {kind}, 8.00 MiB\n")), "{words}: {printed}");
        assert_eq!(printed.contains("inodes"), !is_journal, "{printed}");
        let json = scratch.ok(&[&mkfs[..], &["--json", &name]].concat());
        assert!(json.contains(&format!("\"type\": \"{expected}\"")), "{words}: {json}");
        if is_journal {
            for command in ["info", "check", "ls"] {
                let error = failure(&[command, &name]);
                assert!(error.contains("the journal of a volume on another device"), "{error}");
            }
        } else {
            let info = scratch.ok(&["info", &name]);
            assert!(info.starts_with(&format!("{name}: {expected}, 8.00 MiB, ")), "{words}: {info}");
        }
        let blkid = tool(Command::new("blkid").args(["-p", "-o", "value", "-s", "TYPE"]).arg(&image));
        if let Some(found) = blkid {
            assert_eq!(String::from_utf8_lossy(&found.stdout).trim(), expected, "{words}");
        }
    }
}

#[test]
fn the_same_words_make_the_same_volume() {
    let Some(_) = tool(Command::new("mke2fs").arg("-V")) else { return skipped("no e2fsprogs") };
    let scratch = ScratchImage::empty();
    for &(mib, list, extended) in CASES {
        let words = words(list, extended);
        let (mine, other) = (sparse(&scratch, "ours", mib), sparse(&scratch, "theirs", mib));
        ours(&mine, &words);
        fsck(&mine);
        let made =
            tool(Command::new("mke2fs").args(&words).arg(&other).env("E2FSPROGS_FAKE_TIME", TIME)).unwrap();
        assert!(made.status.success(), "{list}: {}", testkit::tool::text(&made));
        assert_eq!(facts(&mine), facts(&other), "{mib} MiB: {list} -E {extended}");
    }
}

/// The kernel writes to the volumes, and parext4 reads what it wrote and writes more.
#[test]
fn the_kernel_uses_volumes_of_all_types() {
    let scratch = ScratchImage::empty();
    let cases = [
        ("-t ext2", ""),
        ("-t ext2 -r 0", ""),
        ("-t ext3", "stride=8"),
        ("-t ext4 -O orphan_file,fast_commit,metadata_csum_seed", "root_perms=1777,root_owner=7:8"),
        ("-t ext4 -O fast_commit -J fast_commit_size=300", "packed_meta_blocks=1"),
    ];
    for (list, extended) in cases {
        let image = sparse(&scratch, "ours", 32);
        ours(&image, &words(list, extended));
        let Some(mount) = KernelMount::with_copy_of(&image, "rw") else { return };
        std::fs::create_dir(mount.path().join("dir")).unwrap();
        std::fs::write(mount.path().join("dir/file"), vec![7; 300_000]).unwrap();
        mount.umount();
        let inside = |path: &str| format!("{}:{path}", mount.image().display());
        assert!(
            scratch.ok(&["cat", &inside("/dir/file")]).bytes().eq(std::iter::repeat_n(7, 300_000)),
            "{list}"
        );
        scratch.ok(&["mkdir", &inside("/ours")]);
        fsck(&mount.image());
        mount.mount_again();
        assert!(mount.path().join("ours").is_dir(), "{list}");
        mount.umount();
    }
}

#[test]
fn the_owner_and_the_permissions_of_the_root_are_chosen() {
    let scratch = ScratchImage::new(&["-E", "root_owner=7:8,root_perms=1770"]);
    let shown = tool(Command::new("debugfs").args(["-R", "stat <2>"]).arg(scratch.image()));
    let Some(shown) = shown else { return skipped("no debugfs") };
    let shown = testkit::tool::text(&shown);
    assert!(shown.contains("Mode:  01770") && shown.contains("User:     7   Group:     8"), "{shown}");
    scratch.fsck();
}

#[test]
fn what_is_unknown_or_impossible_is_named() {
    let scratch = ScratchImage::empty();
    let image = text(&sparse(&scratch, "image", 64));
    let usage = |words: &[&str]| {
        let output = run(&[&["mkfs", &image], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(usage(&["-t", "ext5"]).contains("\"ext5\" is unknown"));
    assert!(usage(&["-T", "small,tiny"]).contains("\"tiny\" is unknown"));
    assert!(usage(&["-E", "stride=4,frob=1"]).contains("\"frob=1\" is unknown"));
    assert!(usage(&["-J", "speed=4"]).contains("\"speed=4\" is unknown"));
    assert!(usage(&["-e", "reboot"]).contains("\"reboot\" is unknown"));
    assert!(usage(&["-U", "time"]).contains("a UUID, clear or random"));
    let fails = |words: &[&str]| scratch.fails(&[&["mkfs", &image], words].concat());
    assert!(fails(&["-t", "ext2", "-O", "orphan_file"]).contains("orphan_file needs a journal"));
    assert!(fails(&["-O", "metadata_csum_seed,^metadata_csum"]).contains("needs metadata_csum"));
    assert!(fails(&["-t", "ext3", "-E", "packed_meta_blocks"]).contains("needs the feature flex_bg"));
    assert!(fails(&["-E", "resize=100"]).contains("cannot be extended to 100 blocks"));
    assert!(
        fails(&["-O", "orphan_file", "-E", "orphan_file_size=1M"]).contains("orphan file of 1024 blocks")
    );
    assert!(fails(&["-J", "location=1G"]).contains("journal at block 1048576"));
    assert!(fails(&["-O", "fast_commit", "-J", "fast_commit_size=0"]).contains("area of 0 blocks"));
    assert!(fails(&["-m", "50.1"]).contains("50.1%"));
}

#[test]
fn a_dry_run_writes_nothing() {
    let scratch = ScratchImage::empty();
    let image = sparse(&scratch, "image", 64);
    let planned = scratch.ok(&["mkfs", "-n", "-U", UUID, "-t", "ext3", &text(&image)]);
    assert!(std::fs::read(&image).unwrap().iter().all(|&byte| byte == 0));
    assert_eq!(planned, scratch.ok(&["mkfs", "-U", UUID, "-t", "ext3", &text(&image)]));
    let absent = text(&scratch.path("absent"));
    assert!(scratch.ok(&["mkfs", "-n", &absent, "100M"]).contains("102400 of 1024 bytes"));
    assert!(!Path::new(&absent).exists());
}

#[test]
fn a_volume_may_lie_within_a_file() {
    let scratch = ScratchImage::empty();
    let image = scratch.path("file");
    std::fs::write(&image, vec![0xa5; 10 << 20]).unwrap();
    scratch.ok(&["mkfs", "-q", "-E", "offset=1M", &text(&image), "8M"]);
    let bytes = std::fs::read(&image).unwrap();
    assert!(bytes[..1 << 20].iter().chain(&bytes[9 << 20..]).all(|&byte| byte == 0xa5));
    let alone = scratch.path("alone");
    std::fs::write(&alone, &bytes[1 << 20..9 << 20]).unwrap();
    fsck(&alone);
    let new = scratch.path("new");
    scratch.ok(&["mkfs", "-q", "-E", "offset=1M", &text(&new), "8192", "-b", "1024"]);
    assert_eq!(std::fs::metadata(&new).unwrap().len(), 9 << 20);
}

#[test]
fn a_file_stays_as_it_is_if_the_options_are_refused() {
    let scratch = ScratchImage::empty();
    let image = scratch.path("old.img");
    fs::write(&image, "contents").unwrap();
    let image = image.to_str().unwrap();
    for refused in [&["-g", "7"][..], &["-J", "device=/missing"], &["-J", "size=60"]] {
        scratch.fails(&[&["mkfs", "-F", image, "64M"], refused].concat());
        assert_eq!(fs::read(image).unwrap(), b"contents", "{refused:?}");
    }
}
