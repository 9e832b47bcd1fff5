//! `mkfs`: the volumes that it makes, and the contents that it refuses to overwrite.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::command::{ScratchImage, program, run, text};

/// A program that makes contents that `mkfs` must recognise, its arguments before the image, and
/// the name that `mkfs` prints.
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
fn a_volume_has_the_requested_options() {
    let scratch = ScratchImage::new(&["--label", "first", "--block-size", "1024", "--inode-ratio", "32K"]);
    scratch.fsck();
    let image = text(&scratch.image());
    let info: serde_json::Value = serde_json::from_str(&scratch.ok(&["info", "--json", &image])).unwrap();
    assert_eq!((&info["label"], &info["block_size"]), (&"first".into(), &1024.into()));
    assert_eq!((&info["blocks"], &info["inodes"]), (&65536.into(), &2048.into()));

    let error = scratch.fails(&["mkfs", &image, "--size", "64M"]);
    assert!(error.contains("ext4") && error.contains("--force"), "{error}");
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let summary = scratch.ok(&["mkfs", &image, "--force", "--no-journal", "--uuid", uuid, "--json"]);
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!((&summary["uuid"], &summary["journal_blocks"]), (&uuid.into(), &0.into()));
    assert_eq!(summary["size"], 64 << 20);
    scratch.fsck();
    assert!(scratch.ok(&["info", &image]).contains("journal   none"));
}

#[test]
fn multi_mount_protection_is_chosen_as_with_mke2fs() {
    let scratch = ScratchImage::new(&["-O", "mmp", "-E", "mmp_update_interval=1"]);
    scratch.fsck();
    let image = text(&scratch.image());
    assert!(scratch.ok(&["info", &image]).contains("mmp       not in use; update interval 1 s"));
    let info: serde_json::Value = serde_json::from_str(&scratch.ok(&["info", "--json", &image])).unwrap();
    assert_eq!((&info["mmp"]["state"], &info["mmp"]["update_interval"]), (&"clean".into(), &1.into()));
    scratch.ok(&["mkdir", &scratch.inside("/dir")]);
    let info: serde_json::Value = serde_json::from_str(&scratch.ok(&["info", "--json", &image])).unwrap();
    assert_eq!(
        (&info["mmp"]["state"], &info["mmp"]["device"]),
        (&"clean".into(), &image[..31.min(image.len())].into())
    );
    scratch.fsck();

    let usage = |arguments: &[&str]| {
        let output = run(&[&["mkfs", &image, "--force"], arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(usage(&["-O", "^mmp,shared_blocks"]).contains("feature \"shared_blocks\" cannot be chosen"));
    assert!(scratch.fails(&["mkfs", &image, "--force", "-E", "mmp_update_interval=301"]).contains("301"));
    scratch.ok(&["mkfs", &image, "--force", "-O", "^mmp"]);
    assert!(!scratch.ok(&["info", &image]).contains("mmp"));
}

#[test]
fn geometry_and_features_are_chosen_as_with_mke2fs() {
    let scratch = ScratchImage::empty();
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let seed = format!("hash_seed={uuid}");
    let make = |name: &str| {
        let image = text(&scratch.path(name));
        let geometry =
            ["-b", "1024", "-g", "512", "-I", "128", "-N", "1000", "-m", "0", "-O", "^filetype,meta_bg"];
        let same = ["-O", "^resize_inode", "--uuid", uuid, "-E", &seed, "--size", "24M"];
        let arguments = [&["mkfs", &image], &geometry[..], &same].concat();
        let made =
            Command::new(program()).args(arguments).env("SOURCE_DATE_EPOCH", "1000000000").output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        fs::read(image).unwrap()
    };
    assert!(make("first") == make("second"), "the same options give the same bytes");
    let info = scratch.ok(&["info", "--json", &text(&scratch.path("first"))]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let features = info["features"].as_array().unwrap();
    assert!(features.contains(&"meta_bg".into()) && !features.contains(&"filetype".into()));
    assert_eq!((&info["inode_size"], &info["groups"]), (&128.into(), &48.into()));

    let image = text(&scratch.path("old"));
    let refused = scratch.fails(&["mkfs", &image, "--size", "24M", "-g", "100"]);
    assert!(refused.contains("100 blocks per group: not a multiple of 8"), "{refused}");
    let made = scratch.ok(&["mkfs", &image, "--size", "8M", "-r", "0"]);
    assert!(made.contains("journal   none") && made.contains("inodes    2048 of 128 bytes"), "{made}");
}

#[test]
fn features_of_names_can_be_chosen() {
    let extended = "encoding=utf8,encoding_flags=strict";
    let scratch = ScratchImage::new(&["-O", "large_dir,encrypt", "-E", extended]);
    let image = text(&scratch.image());
    let features = |image: &str| {
        let info: serde_json::Value = serde_json::from_str(&scratch.ok(&["info", "--json", image])).unwrap();
        let names = ["large_dir", "encrypt", "casefold"];
        names.map(|name| info["features"].as_array().unwrap().contains(&name.into()))
    };
    assert_eq!(features(&image), [true; 3]);
    scratch.fsck();
    // `s_encoding` and `s_encoding_flags`.
    assert_eq!(std::fs::read(&image).unwrap()[1024 + 0x27c..][..4], [1, 0, 1, 0]);
    scratch.ok(&["mkfs", &image, "--force", "-O", "casefold"]);
    assert_eq!(features(&image), [false, false, true]);
    scratch.fsck();
    scratch.ok(&["mkfs", &image, "--force"]);
    assert_eq!(features(&image), [false; 3]);
    assert!(
        scratch.fails(&["mkfs", &image, "--force", "-E", "encoding_flags=strict"]).contains("encoding=utf8")
    );
}

#[test]
fn a_volume_that_another_machine_uses_is_not_overwritten() {
    let scratch = ScratchImage::new(&["-O", "mmp"]);
    let image = text(&scratch.image());
    let volume = parext4::Volume::open(&image).unwrap();
    volume.abort().unwrap();
    drop(volume);
    let error = scratch.fails(&["mkfs", &image]);
    assert!(error.contains("another machine") && error.contains("--force"), "{error}");
    scratch.ok(&["mkfs", &image, "--force"]);
}

#[test]
fn a_failed_mkfs_leaves_no_file() {
    let scratch = ScratchImage::new(&[]);
    let new = scratch.path("new.img");
    assert!(scratch.fails(&["mkfs", &text(&new)]).contains("--size"));
    scratch.fails(&["mkfs", &text(&new), "--size", "64M", "--block-size", "3000"]);
    assert!(!new.exists());
}

#[test]
fn volumes_of_other_programs_are_overwritten_only_with_force() {
    let scratch = ScratchImage::empty();
    for &(program, arguments, name) in MAKERS {
        let image = sparse(&scratch, program);
        let mut maker = Command::new(program_path(program));
        if made(maker.args(arguments).arg(&image), program) {
            refuses_without_force(&scratch, &image, name);
        }
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn partition_tables_are_overwritten_only_with_force() {
    let scratch = ScratchImage::empty();
    for (table, name) in TABLES {
        let (image, script) = (sparse(&scratch, "disk"), scratch.path("table"));
        fs::write(&script, table).unwrap();
        let mut sfdisk = Command::new(program_path("sfdisk"));
        if made(sfdisk.arg("-q").arg(&image).stdin(File::open(script).unwrap()), "sfdisk") {
            refuses_without_force(&scratch, &image, name);
        }
        fs::remove_file(image).unwrap();
    }
}

/// Only the table's copy at the end of the disk is left.
#[test]
fn a_backup_partition_table_is_found() {
    let scratch = ScratchImage::empty();
    let image = sparse(&scratch, "disk");
    File::options().write(true).open(&image).unwrap().write_all_at(b"EFI PART", SIZE - 512).unwrap();
    refuses_without_force(
        &scratch,
        &image,
        &format!("a GUID partition table (signature at byte {})", SIZE - 512),
    );
}

#[test]
fn a_device_in_use_is_not_overwritten() {
    let scratch = ScratchImage::empty();
    let image = sparse(&scratch, "disk");
    let Some(device) = Loop::attach(&image) else { return };
    let refused = |target: &Path, user: &str| {
        let error = scratch.fails(&["mkfs", "--force", &text(target)]);
        assert_eq!(error, format!("parext4: {}: in use: {user}\n", target.display()));
    };
    let attached = format!("attached to {}", device.0.display());
    refused(&image, &attached);
    scratch.ok(&["mkfs", &text(&device.0)]);

    let dir = scratch.path("mount point");
    fs::create_dir(&dir).unwrap();
    if !made(Command::new("mount").arg(&device.0).arg(&dir), "mount") {
        return;
    }
    refused(&device.0, &format!("mounted on {}", dir.display()));
    refused(&image, &format!("{attached}, which is mounted on {}", dir.display()));
    testkit::kernel_umount(&dir);
}

/// Bytes of the images; enough for the smallest file system of each program.
const SIZE: u64 = 512 << 20;

/// Makes a sparse image named `name`.
fn sparse(scratch: &ScratchImage, name: &str) -> PathBuf {
    let image = scratch.path(name);
    File::create(&image).unwrap().set_len(SIZE).unwrap();
    image
}

/// Runs a program of the system. Returns false if it is not installed or fails here.
fn made(command: &mut Command, program: &str) -> bool {
    let output = command.stdout(Stdio::null()).output();
    let is_made = output.as_ref().is_ok_and(|output| output.status.success());
    if !is_made {
        let errors = output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
        testkit::skipped(&format!("{program}: {}", errors.unwrap_or_else(|error| error.to_string()).trim()));
    }
    is_made
}

/// Returns the path of a program, which may lie outside the search path of ordinary users.
fn program_path(program: &str) -> PathBuf {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&dirs).chain(["/usr/sbin".into(), "/sbin".into()]);
    dirs.map(|dir| dir.join(program)).find(|path| path.exists()).unwrap_or_else(|| program.into())
}

/// Asserts that `mkfs` names the contents of the image and does not change them, and that `--force`
/// replaces them by a volume.
fn refuses_without_force(scratch: &ScratchImage, image: &Path, name: &str) {
    let image = text(image);
    let error = scratch.fails(&["mkfs", &image]);
    assert_eq!(error, format!("parext4: {image}: holds {name}; use --force to overwrite it\n"));
    assert_eq!(scratch.fails(&["mkfs", &image]), error);
    scratch.ok(&["mkfs", "--force", &image]);
    let error = scratch.fails(&["mkfs", &image]);
    assert!(error.contains("holds an ext2, ext3 or ext4 file system (signature at byte 1080);"), "{error}");
}

/// A loop device, detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn attach(image: &Path) -> Option<Self> {
        let output =
            Command::new(program_path("losetup")).args(["--find", "--show"]).arg(image).output().ok();
        let Some(output) = output.filter(|output| output.status.success()) else {
            testkit::skipped("no loop device can be attached here");
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

#[test]
fn contents_of_small_files_lie_in_their_inodes() {
    let scratch = ScratchImage::new(&["-O", "inline_data"]);
    let tree = scratch.path("tree");
    std::fs::create_dir(&tree).unwrap();
    for (name, len) in [("empty", 0), ("small", 100), ("large", 5000)] {
        std::fs::write(tree.join(name), vec![7; len]).unwrap();
    }
    scratch.ok(&["put", &text(&tree), &scratch.inside("/tree")]);
    scratch.fsck();
    let shown = scratch.ok(&["fiemap", &scratch.inside("/tree/small")]);
    assert!(shown.contains("last,not_aligned,inline,eof") && shown.contains("       0..      99"), "{shown}");
    let extents: serde_json::Value =
        serde_json::from_str(&scratch.ok(&["fiemap", "--json", &scratch.inside("/tree/small")])).unwrap();
    assert_eq!(extents["extents"][0]["inline"], true);
    assert!(!scratch.ok(&["fiemap", &scratch.inside("/tree/large")]).contains("inline"));
    scratch.ok(&["get", &scratch.inside("/tree"), &text(&scratch.path("copy"))]);
    for name in ["empty", "small", "large"] {
        let read = |dir: &str| std::fs::read(scratch.path(dir).join(name)).unwrap();
        assert_eq!(read("tree"), read("copy"), "{name}");
    }
}
