//! `mkfs`: what it makes, and what it refuses to overwrite.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::command::{Bench, text};

/// A program that makes what `mkfs` must recognise, its arguments before the image, and the name that `mkfs` prints.
type Maker = (&'static str, &'static [&'static str], &'static str);

const MAKERS: &[Maker] = &[
    ("mke2fs", &["-q", "-F", "-t", "ext2"], "an ext2, ext3 or ext4 file system (signature at byte 1080)"),
    ("mkfs.xfs", &["-q", "-f"], "an XFS file system (signature at byte 0)"),
    ("mkfs.btrfs", &["-q", "-f"], "a Btrfs file system (signature at byte 65600)"),
    ("mkfs.f2fs", &["-q", "-f"], "an F2FS file system (signature at byte 1024)"),
    (
        "mkfs.ntfs",
        &["-q", "-F", "-s", "512", "-p", "0", "-H", "1", "-S", "1"],
        "an NTFS file system (signature at byte 3)",
    ),
    ("mkfs.exfat", &[], "an exFAT file system (signature at byte 3)"),
    ("mkfs.vfat", &["-F", "16"], "a FAT file system (signature at byte 54)"),
    ("mkfs.vfat", &["-F", "32"], "a FAT file system (signature at byte 82)"),
    ("mkswap", &["-q"], "swap space (signature at byte 4086)"),
];

/// Partitions as sfdisk(8) reads them, and the name that `mkfs` prints.
const TABLES: [(&str, &str); 2] = [
    ("label: gpt\n,,L\n", "a GUID partition table (signature at byte 512)"),
    ("label: dos\n,,L\n", "an MBR partition table (signature at byte 510)"),
];

#[test]
fn a_volume_is_made_as_asked_for() {
    let bench = Bench::new(&["--label", "first", "--block-size", "1024", "--inode-ratio", "32K"]);
    bench.fsck();
    let image = text(&bench.image());
    let info: serde_json::Value = serde_json::from_str(&bench.ok(&["info", "--json", &image])).unwrap();
    assert_eq!((&info["label"], &info["block_size"]), (&"first".into(), &1024.into()));
    assert_eq!((&info["blocks"], &info["inodes"]), (&65536.into(), &2048.into()));

    let error = bench.fails(&["mkfs", &image, "--size", "64M"]);
    assert!(error.contains("ext4") && error.contains("--force"), "{error}");
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let summary = bench.ok(&["mkfs", &image, "--force", "--no-journal", "--uuid", uuid, "--json"]);
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!((&summary["uuid"], &summary["journal_blocks"]), (&uuid.into(), &0.into()));
    assert_eq!(summary["size"], 64 << 20);
    bench.fsck();
    assert!(bench.ok(&["info", &image]).contains("journal   none"));
}

#[test]
fn a_failure_leaves_no_file() {
    let bench = Bench::new(&[]);
    let new = bench.path("new.img");
    assert!(bench.fails(&["mkfs", &text(&new)]).contains("--size"));
    bench.fails(&["mkfs", &text(&new), "--size", "64M", "--block-size", "3000"]);
    assert!(!new.exists());
}

#[test]
fn volumes_of_other_programs_are_overwritten_only_with_force() {
    let bench = Bench::empty();
    for &(program, arguments, name) in MAKERS {
        let image = sparse(&bench, program);
        let mut maker = Command::new(program_path(program));
        if made(maker.args(arguments).arg(&image), program) {
            refuses_without_force(&bench, &image, name);
        }
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn partition_tables_are_overwritten_only_with_force() {
    let bench = Bench::empty();
    for (table, name) in TABLES {
        let (image, script) = (sparse(&bench, "disk"), bench.path("table"));
        fs::write(&script, table).unwrap();
        let mut sfdisk = Command::new(program_path("sfdisk"));
        if made(sfdisk.arg("-q").arg(&image).stdin(File::open(script).unwrap()), "sfdisk") {
            refuses_without_force(&bench, &image, name);
        }
        fs::remove_file(image).unwrap();
    }
}

/// Only the copy at the end of the disk is left of the table.
#[test]
fn a_backup_partition_table_is_found() {
    let bench = Bench::empty();
    let image = sparse(&bench, "disk");
    File::options().write(true).open(&image).unwrap().write_all_at(b"EFI PART", SIZE - 512).unwrap();
    refuses_without_force(
        &bench,
        &image,
        &format!("a GUID partition table (signature at byte {})", SIZE - 512),
    );
}

#[test]
fn a_device_in_use_is_not_overwritten() {
    let bench = Bench::empty();
    let image = sparse(&bench, "disk");
    let Some(device) = Loop::attach(&image) else { return };
    let refused = |target: &Path, user: &str| {
        let error = bench.fails(&["mkfs", "--force", &text(target)]);
        assert_eq!(error, format!("parext4: {}: in use: {user}\n", target.display()));
    };
    let attached = format!("attached to {}", device.0.display());
    refused(&image, &attached);
    bench.ok(&["mkfs", &text(&device.0)]);

    let dir = bench.path("mount point");
    fs::create_dir(&dir).unwrap();
    if !made(Command::new("mount").arg(&device.0).arg(&dir), "mount") {
        return;
    }
    refused(&device.0, &format!("mounted on {}", dir.display()));
    refused(&image, &format!("{attached}, which is mounted on {}", dir.display()));
    assert!(Command::new("umount").arg(&dir).status().unwrap().success());
}

/// Bytes of the images; enough for the smallest file system of each program.
const SIZE: u64 = 512 << 20;

/// Makes a sparse image named `name`.
fn sparse(bench: &Bench, name: &str) -> PathBuf {
    let image = bench.path(name);
    File::create(&image).unwrap().set_len(SIZE).unwrap();
    image
}

/// Runs a program of the system. Returns false if it is not installed or cannot do its work here.
fn made(command: &mut Command, program: &str) -> bool {
    let output = command.stdout(Stdio::null()).output();
    let is_made = output.as_ref().is_ok_and(|output| output.status.success());
    if !is_made {
        let errors = output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
        eprintln!("SKIPPED: {program}: {}", errors.unwrap_or_else(|error| error.to_string()).trim());
    }
    is_made
}

/// Returns the path of a program, which may lie outside the search path of ordinary users.
fn program_path(program: &str) -> PathBuf {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&dirs).chain(["/usr/sbin".into(), "/sbin".into()]);
    dirs.map(|dir| dir.join(program)).find(|path| path.exists()).unwrap_or_else(|| program.into())
}

/// `mkfs` names what the image holds, and leaves it as it is; with `--force`, a volume takes its place.
fn refuses_without_force(bench: &Bench, image: &Path, name: &str) {
    let image = text(image);
    let error = bench.fails(&["mkfs", &image]);
    assert_eq!(error, format!("parext4: {image}: holds {name}; use --force to overwrite it\n"));
    assert_eq!(bench.fails(&["mkfs", &image]), error);
    bench.ok(&["mkfs", "--force", &image]);
    let error = bench.fails(&["mkfs", &image]);
    assert!(error.contains("holds an ext2, ext3 or ext4 file system (signature at byte 1080);"), "{error}");
}

/// A loop device, detached in the end.
struct Loop(PathBuf);

impl Loop {
    fn attach(image: &Path) -> Option<Self> {
        let output =
            Command::new(program_path("losetup")).args(["--find", "--show"]).arg(image).output().ok();
        let Some(output) = output.filter(|output| output.status.success()) else {
            eprintln!("SKIPPED: no loop device can be attached here");
            return None;
        };
        Some(Self(String::from_utf8(output.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new(program_path("losetup")).arg("--detach").arg(&self.0).status();
    }
}
