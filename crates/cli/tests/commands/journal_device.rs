//! A journal on a device of its own, made by mke2fs or by `mkfs`: the kernel and parext4 use it in
//! turn.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::command::{ScratchImage, text};
use testkit::{kernel_umount, skipped, tool};

use crate::mke2fs::{TIME, UUID, ours, sparse, words};

/// A loop device; detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn attach(image: &Path) -> Option<Self> {
        let output = tool(Command::new("losetup").args(["--find", "--show"]).arg(image))?;
        let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then(|| Self(device.into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        tool(Command::new("losetup").arg("--detach").arg(&self.0));
    }
}

fn ok(command: &mut Command) {
    let output = tool(command).expect("the program is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a journal or a volume with the options of mke2fs in `words`.
fn mke2fs(words: &str, device: &Path) {
    ok(Command::new("mke2fs").args(["-q", "-F"]).args(words.split(' ')).arg(device));
}

/// Bytes of a block, and the further options of mke2fs for a volume.
const FORMATS: [(&str, &str); 4] = [
    ("4096", "-t ext4"),
    ("1024", "-t ext3"),
    ("2048", "-t ext4 -O ^64bit,^metadata_csum"),
    ("1024", "-t ext4 -O orphan_file,metadata_csum_seed,inline_data"),
];

fn fsck(volume: &Path, journal: &Path) {
    ok(Command::new("e2fsck").args(["-fn", "-j"]).arg(journal).arg(volume));
}

#[test]
fn the_kernel_and_parext4_use_a_journal_device_in_turn() {
    for (block_size, words) in FORMATS {
        in_turn(block_size, words);
    }
}

fn in_turn(block_size: &str, words: &str) {
    let scratch = ScratchImage::empty();
    let (volume, journal) = (scratch.path("volume"), scratch.path("journal"));
    let (crashed, its_journal) = (scratch.path("crashed"), scratch.path("its-journal"));
    for (path, mib) in [(&volume, 48), (&journal, 6)] {
        std::fs::File::create(path).unwrap().set_len(mib << 20).unwrap();
    }
    let devices = (Loop::attach(&volume), Loop::attach(&journal));
    let (Some(volume_loop), Some(journal_loop)) = devices else { return skipped("no loop devices") };
    mke2fs(&format!("-b {block_size} -O journal_dev"), &journal_loop.0);
    mke2fs(&format!("-b {block_size} {words} -J device={}", text(&journal_loop.0)), &volume_loop.0);
    let dir = scratch.path("mount");
    std::fs::create_dir(&dir).unwrap();
    let mount = || ok(Command::new("mount").args(["-t", "ext4"]).arg(&volume_loop.0).arg(&dir));

    mount();
    std::fs::write(dir.join("kernel"), "by the kernel").unwrap();
    for nth in 0..200 {
        std::fs::write(dir.join(format!("file{nth}")), vec![nth; 100 * usize::from(nth)]).unwrap();
        if nth % 3 == 2 {
            std::fs::remove_file(dir.join(format!("file{}", nth - 1))).unwrap();
        }
    }
    ok(Command::new("sync").arg("--file-system").arg(&dir));
    for (from, to) in [(&volume, &crashed), (&journal, &its_journal)] {
        std::fs::copy(from, to).unwrap();
    }
    kernel_umount(&dir);

    let inside = |path: &str| format!("{}:{path}", crashed.display());
    let error = scratch.fails(&["cat", &inside("/kernel")]);
    assert!(error.contains("--journal"), "{error}");
    let with = ["--journal", &text(&its_journal)];
    assert_eq!(scratch.ok(&[&with[..], &["cat", &inside("/kernel")]].concat()), "by the kernel");
    let replayed = scratch.ok(&[&with[..], &["recover", &text(&crashed)]].concat());
    assert!(!replayed.starts_with("replayed 0 "), "{replayed}");
    fsck(&crashed, &its_journal);
    // The volume is clean, so it can be read without the journal.
    assert_eq!(scratch.ok(&["cat", &inside("/kernel")]), "by the kernel");
    scratch.ok(&[&["mkdir"], &with[..], &[&inside("/ours")[..]]].concat());
    fsck(&crashed, &its_journal);

    let own = ["--journal", &text(&journal)];
    scratch.ok(&[&own[..], &["mkdir", &format!("{}:/ours", volume.display())]].concat());
    mount();
    assert!(dir.join("ours").is_dir(), "the kernel does not see the change");
    kernel_umount(&dir);
    fsck(&volume, &journal);
}

#[test]
fn a_journal_device_is_made_as_by_mke2fs() {
    let Some(_) = tool(Command::new("mke2fs").arg("-V")) else { return skipped("no e2fsprogs") };
    let scratch = ScratchImage::empty();
    for block_size in ["1024", "4096"] {
        let (mine, other) = (sparse(&scratch, "ours", 8), sparse(&scratch, "theirs", 8));
        let words = words(&format!("-O journal_dev -b {block_size} -L name"), "");
        ours(&mine, &words);
        tool(Command::new("mke2fs").args(&words).arg(&other).env("E2FSPROGS_FAKE_TIME", TIME)).unwrap();
        assert!(std::fs::read(&mine).unwrap() == std::fs::read(&other).unwrap(), "{block_size}");
    }
    let small = text(&sparse(&scratch, "small", 1));
    assert!(scratch.fails(&["mkfs", "-O", "journal_dev", "-b", "4096", &small]).contains("at least 1025"));
    assert!(
        scratch
            .fails(&["mkfs", "-O", "journal_dev", "-O", "mmp", &small])
            .contains("excludes other features")
    );
}

#[test]
fn a_volume_has_its_journal_on_another_device() {
    let scratch = ScratchImage::empty();
    let (volume, journal) = (sparse(&scratch, "volume", 48), sparse(&scratch, "journal", 6));
    scratch.ok(&["mkfs", "-q", "-O", "journal_dev", "-b", "4096", &text(&journal)]);
    let devices = (Loop::attach(&volume), Loop::attach(&journal));
    let (Some(volume_loop), Some(journal_loop)) = devices else { return skipped("no loop devices") };
    let device = format!("device={}", text(&journal_loop.0));
    let made = scratch.ok(&["mkfs", "-U", UUID, "-J", &device, &text(&volume_loop.0)]);
    // The block size is that of the journal.
    assert!(made.contains("12288 of 4096 bytes"), "{made}");
    let other = text(&sparse(&scratch, "other", 48));
    assert!(scratch.fails(&["mkfs", "-J", &device, &other]).contains(UUID), "a journal of one volume only");
    assert!(scratch.fails(&["mkfs", "-b", "1024", "-J", &device, &other]).contains("blocks of 4096 bytes"));
    let dir = scratch.path("mount");
    std::fs::create_dir(&dir).unwrap();
    let mount = || ok(Command::new("mount").args(["-t", "ext4"]).arg(&volume_loop.0).arg(&dir));
    mount();
    std::fs::write(dir.join("kernel"), "by the kernel").unwrap();
    kernel_umount(&dir);
    let with = ["--journal", &text(&journal)];
    let inside = |path: &str| format!("{}:{path}", volume.display());
    assert_eq!(scratch.ok(&[&with[..], &["cat", &inside("/kernel")]].concat()), "by the kernel");
    scratch.ok(&[&with[..], &["mkdir", &inside("/ours")]].concat());
    mount();
    assert!(dir.join("ours").is_dir());
    kernel_umount(&dir);
    fsck(&volume, &journal);
}
