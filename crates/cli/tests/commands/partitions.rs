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
    let listed = scratch.ok(&["info", &text(&disk)]);
    assert!(
        listed.contains("with 2 partitions") && listed.contains("leads back to an earlier one"),
        "{listed}"
    );
    let error = scratch.fails(&["ls", &format!("{}?partition=6", disk.display())]);
    assert!(error.contains("no partition 6, only 1, 5; the extended table"), "{error}");
}

/// Runs a partitioning program with a script on its standard input. Returns false, after a message,
/// if it is not installed.
fn partition(program: &str, arguments: &[&str], disk: &Path, script: &str) -> bool {
    let input = disk.with_extension("script");
    fs::write(&input, script).unwrap();
    let mut command = Command::new(format!("/usr/sbin/{program}"));
    let Some(made) = tool(command.args(arguments).arg(disk).stdin(File::open(input).unwrap())) else {
        return false;
    };
    assert!(made.status.success(), "{}", testkit::tool::text(&made));
    true
}

/// Returns numbers, first bytes and lengths of the partitions as sfdisk lists them.
fn by_sfdisk(disk: &Path) -> Vec<(u64, u64, u64)> {
    let listed = tool(Command::new("/usr/sbin/sfdisk").arg("-J").arg(disk)).unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let table = &listed["partitiontable"];
    let sector = table["sectorsize"].as_u64().unwrap();
    let is_extended = |entry: &&Value| !matches!(entry["type"].as_str(), Some("5" | "f" | "85"));
    let entries = table["partitions"].as_array().unwrap().iter().filter(is_extended);
    let place = |entry: &Value| {
        let node = entry["node"].as_str().unwrap().trim_start_matches(disk.to_str().unwrap());
        let number = node.trim_start_matches('p').parse().unwrap();
        let field = |name: &str| entry[name].as_u64().unwrap() * sector;
        (number, field("start"), field("size"))
    };
    entries.map(place).collect()
}

/// Returns the same as `info` lists it.
fn by_info(scratch: &ScratchImage, disk: &Path) -> Vec<(u64, u64, u64)> {
    let listed: Value = serde_json::from_str(&scratch.ok(&["info", "--json", &text(disk)])).unwrap();
    let field = |entry: &Value, name: &str| entry[name].as_u64().unwrap();
    let entries = listed["partitions"].as_array().unwrap().iter();
    entries.map(|entry| (field(entry, "number"), field(entry, "start"), field(entry, "size"))).collect()
}

#[test]
fn partitions_are_listed_as_by_sfdisk() {
    let scratch = ScratchImage::empty();
    let logical: String = (0..12).map(|_| ",2M\n").collect();
    let extended = format!("label: dos\n,1M,c\n4: start=4096,size=100000,type=f\n{logical}");
    let cases: [(&str, &[&str], &str); 5] = [
        ("sfdisk", &["-q"], "label: gpt\n1: size=1M,type=uefi,name=\"boot\"\n7: size=20M\n128: size=3M\n"),
        ("sfdisk", &["-q"], "label: dos\n,4M,83,*\n3: start=40960,size=2048,type=82\n"),
        ("sfdisk", &["-q"], &extended),
        ("sgdisk", &["-n1:2048:+8M", "-n3:40960:+4M", "-t3:8200", "-c1:name"], ""),
        // A hybrid: an MBR with two of the partitions of the GPT.
        ("sgdisk", &["-n1:2048:+8M", "-n2:40960:+4M", "-n9:60000:+4M", "-h1:2"], ""),
    ];
    for (nr, (program, arguments, script)) in cases.into_iter().enumerate() {
        let disk = scratch.path(&format!("disk-{nr}-"));
        File::create(&disk).unwrap().set_len(64 * MIB).unwrap();
        if !partition(program, arguments, &disk, script) {
            continue;
        }
        let listed = by_info(&scratch, &disk);
        assert_eq!(listed, by_sfdisk(&disk), "{program} {script}");
        assert!(listed.len() > 1, "{program} {script}");
    }
}

/// As in Linux, a GPT counts only if an MBR protects it. An older GPT may be left where a program
/// wrote an MBR.
#[test]
fn an_mbr_is_read_in_spite_of_a_gpt_that_it_does_not_protect() {
    let scratch = ScratchImage::empty();
    let disk = scratch.path("disk-");
    File::create(&disk).unwrap().set_len(64 * MIB).unwrap();
    if !partition("sfdisk", &["-q"], &disk, "label: gpt\n,4M\n,8M\n") {
        return;
    }
    let stale = fs::read(&disk).unwrap();
    if !partition("sfdisk", &["-q", "--wipe=always"], &disk, "label: dos\n,16M\n,3M\n,2M\n") {
        return;
    }
    // Both headers and the entries of the GPT again.
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&stale[512..34 * 512], 512).unwrap();
    let end = stale.len() - 33 * 512;
    file.write_all_at(&stale[end..], end as u64).unwrap();
    let listed = by_info(&scratch, &disk);
    assert_eq!((listed.len(), &listed), (3, &by_sfdisk(&disk)));
    // Without any MBR there is no table.
    file.write_all_at(&[0; 512], 0).unwrap();
    let error = scratch.fails(&["ls", &format!("{}?partition=1", disk.display())]);
    assert!(error.contains("no partition table"), "{error}");
}

/// On a block device with sectors of 4096 bytes, and in the image of such a disk.
#[test]
fn tables_may_count_in_sectors_of_4096_bytes() {
    let scratch = ScratchImage::empty();
    for label in ["gpt", "dos"] {
        let image = scratch.path(label);
        File::create(&image).unwrap().set_len(64 * MIB).unwrap();
        let attach = ["--find", "--show", "--sector-size", "4096"];
        let Some(attached) = tool(Command::new("/usr/sbin/losetup").args(attach).arg(&image)) else { return };
        if !attached.status.success() {
            return testkit::skipped("no loop devices with sectors of 4096 bytes");
        }
        let device = String::from_utf8_lossy(&attached.stdout).trim().to_owned();
        let script = format!("label: {label}\n,8M\n,20M\n");
        let mut sfdisk = Command::new("/usr/sbin/sfdisk");
        let script_file = scratch.path("script");
        fs::write(&script_file, script).unwrap();
        sfdisk.args(["-q", "--no-reread", "--no-tell-kernel"]).arg(&device);
        let made = tool(sfdisk.stdin(File::open(script_file).unwrap()));
        let made = made.is_some_and(|made| made.status.success());
        let lists = made.then(|| (by_info(&scratch, Path::new(&device)), by_sfdisk(Path::new(&device))));
        if made {
            scratch.ok(&["mkfs", "-q", &format!("{device}?partition=2")]);
            assert!(scratch.ok(&["ls", &format!("{device}?partition=2")]).contains("lost+found"));
        }
        tool(Command::new("/usr/sbin/losetup").arg("--detach").arg(&device));
        let Some((ours, theirs)) = lists else { return testkit::skipped("no sfdisk") };
        assert_eq!(ours, theirs, "{label}");
        if label == "gpt" {
            assert_eq!(by_info(&scratch, &image), theirs, "the image");
        }
    }
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
