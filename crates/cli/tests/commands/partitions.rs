//! Volumes in partitions, `IMAGE?partition=N`, and images that hold something else.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::command::{ScratchImage, text};
use testkit::tool;

const MIB: u64 = 1 << 20;

/// Makes a disk of 64 MiB and partitions it with parted. Returns false if parted is not installed.
fn partitioned(disk: &Path, table: &[&str]) -> bool {
    File::create(disk).unwrap().set_len(64 * MIB).unwrap();
    let made = tool(Command::new("/usr/sbin/parted").args(["-s"]).arg(disk).args(table));
    made.is_none_or(|made| {
        assert!(made.status.success(), "{}", testkit::tool::text(&made));
        true
    }) && Path::new("/usr/sbin/parted").exists()
}

/// Makes a volume in a partition, and checks it with e2fsck and that no byte around it has changed.
fn uses_only(scratch: &ScratchImage, disk: &Path, number: u32, start: u64, end: u64) {
    let before = fs::read(disk).unwrap();
    let name = format!("{}?partition={number}", disk.display());
    let file = scratch.path("file");
    fs::write(&file, "contents").unwrap();
    scratch.ok(&["mkfs", "--force", &name]);
    scratch.ok(&["put", "--quiet", &text(&file), &format!("{name}:/dir-less")]);
    assert_eq!(scratch.ok(&["cat", &format!("{name}:/dir-less")]), "contents");
    assert_eq!(scratch.ok(&["check", "-q", &name]), "");
    let after = fs::read(disk).unwrap();
    let (start, end) = (start as usize, end as usize);
    assert!(before[..start] == after[..start] && before[end..] == after[end..]);
    let alone = scratch.path("alone.img");
    fs::write(&alone, &after[start..end]).unwrap();
    let checked = tool(Command::new("/usr/sbin/e2fsck").arg("-fn").arg(&alone));
    assert!(checked.is_none_or(|output| output.status.success()));
}

#[test]
fn partitions_of_a_gpt_hold_volumes() {
    let scratch = ScratchImage::empty();
    let disk = scratch.path("disk?.img");
    let table =
        ["mklabel", "gpt", "mkpart", "boot", "1MiB", "17MiB", "mkpart", "my-root", "ext4", "20MiB", "50MiB"];
    if !partitioned(&disk, &table) {
        return;
    }
    uses_only(&scratch, &disk, 2, 20 * MIB, 50 * MIB);
    let listed: Value = serde_json::from_str(&scratch.ok(&["info", "--json", &text(&disk)])).unwrap();
    let root = &listed["partitions"][1];
    assert_eq!(
        (&root["number"], &root["start"], &root["size"]),
        (&2.into(), &(20 * MIB).into(), &(30 * MIB).into())
    );
    assert_eq!((&root["label"], &root["type"]), (&"my-root".into(), &"Linux".into()));
    assert!(root["contents"].as_str().unwrap().contains("ext4"), "{root}");
    let error = scratch.fails(&["ls", &text(&disk)]);
    assert!(error.contains("a GUID partition table") && error.contains("?partition=N"), "{error}");
    let error = scratch.fails(&["ls", &format!("{}?partition=7", disk.display())]);
    assert!(error.contains("no partition 7, only 1, 2"), "{error}");

    // The backup serves when the first table is damaged; the disk is refused when both are.
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&[0xff; 8], 512 + 40).unwrap();
    assert!(scratch.ok(&["ls", &format!("{}?partition=2", disk.display())]).contains("dir-less"));
    file.write_all_at(&[0xff; 8], 64 * MIB - 512 + 40).unwrap();
    assert!(scratch.fails(&["ls", &format!("{}?partition=2", disk.display())]).contains("damaged"));
}

#[test]
fn partitions_of_an_mbr_hold_volumes() {
    let scratch = ScratchImage::empty();
    let disk = scratch.path("disk.img");
    let table = [
        "mklabel", "msdos", "mkpart", "primary", "1MiB", "5MiB", "mkpart", "extended", "8MiB", "60MiB",
        "mkpart", "logical", "9MiB", "12MiB", "mkpart", "logical", "16MiB", "40MiB",
    ];
    if !partitioned(&disk, &table) {
        return;
    }
    uses_only(&scratch, &disk, 6, 16 * MIB, 40 * MIB);
    let listed = scratch.ok(&["info", &text(&disk)]);
    assert!(listed.contains("with 3 partitions") && listed.contains("\n  5  "), "{listed}");

    // A partition that passes the end of the disk, and a chain of tables that is a loop.
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&u32::MAX.to_le_bytes(), 446 + 12).unwrap();
    let error = scratch.fails(&["ls", &format!("{}?partition=1", disk.display())]);
    assert!(error.contains("but the disk only"), "{error}");
    file.write_all_at(&[0; 4], 8 * MIB + 446 + 16 + 8).unwrap();
    assert!(scratch.fails(&["info", &text(&disk)]).contains("loop"));
}

#[test]
fn other_contents_are_named_with_what_to_do() {
    let scratch = ScratchImage::empty();
    let image = scratch.path("other.img");
    for (bytes, name, hint) in [
        (&b"QFI\xfb"[..], "a QCOW2 image", "qemu-img convert"),
        (&[0x3a, 0xff, 0x26, 0xed], "an Android sparse image", "simg2img"),
        (&[0x1f, 0x8b, 8], "compressed by gzip", "gzip -dc"),
        (&[0xfd, b'7', b'z', b'X', b'Z', 0], "compressed by xz", "xz -dc"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "compressed by zstd", "zstd -dc"),
        (b"hsqs", "a SquashFS file system", ""),
        (b"XFSB", "an XFS file system", ""),
    ] {
        let file = File::create(&image).unwrap();
        file.set_len(MIB).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        for command in ["ls", "info"] {
            let error = scratch.fails(&[command, &text(&image)]);
            assert!(error.contains(name) && error.contains(hint), "{error}");
        }
        assert!(scratch.fails(&["mkfs", &text(&image)]).contains(name));
    }
}
