//! Images that are damaged where every command begins: what is missing is named, and what helps.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use testkit::command::{ScratchImage, run, text};
use testkit::nbd::{FakeServer, Kind, Offer, Reply};
use testkit::{Image, tool};

/// Commands that open an image, and the exit status of each for one that is no volume.
const COMMANDS: [(&str, i32); 3] = [("info", 1), ("ls", 1), ("check", 8)];

#[test]
fn a_truncated_image_is_padded_by_the_command_that_is_named() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024"]) else { return };
    let name = text(&image.path());
    File::options().write(true).open(&name).unwrap().set_len(15 << 20).unwrap();
    let padding = format!("\"truncate -s 16777216 {name}\"");
    for (command, status) in [("info", 1), ("ls", 1), ("check", 1)] {
        let output = run(&[command, &name]);
        let printed = testkit::tool::text(&output);
        assert_eq!(output.status.code(), Some(status), "{printed}");
        assert!(printed.contains("the last 1048576 bytes are missing"), "{command}: {printed}");
        assert!(printed.contains(&padding) && !printed.contains("run e2fsck"), "{command}: {printed}");
    }
    assert!(Command::new("truncate").args(["-s", "16777216", &name]).status().unwrap().success());
    assert!(run(&["ls", &name]).status.success());
}

#[test]
fn backups_of_a_missing_superblock_are_named_for_e2fsck() {
    for (options, block_size, mib) in
        [(&["-b", "1024"][..], 1024, 32), (&["-b", "4096", "-g", "2048"], 4096, 32)]
    {
        let Some(image) = Image::mke2fs(mib, options) else { return };
        let name = text(&image.path());
        let file = File::options().write(true).open(&name).unwrap();
        for damage in [&[0; 3072][..], &[0xff; 16]] {
            let sound = fs::read(&name).unwrap();
            file.write_all_at(damage, if damage[0] == 0 { 0 } else { 1024 + 32 }).unwrap();
            for (command, status) in COMMANDS {
                let output = run(&[command, &name]);
                let printed = testkit::tool::text(&output);
                if command == "check" && damage[0] != 0 {
                    continue;
                }
                assert_eq!(output.status.code(), Some(status), "{printed}");
                let first = if block_size == 1024 { 8193 } else { 2048 };
                let repair = format!("\"e2fsck -b {first} -B {block_size} {name}\"");
                assert!(printed.contains(&repair), "{command}: {printed}");
                assert!(printed.contains(&format!("begin at blocks {first}, ")), "{command}: {printed}");
            }
            let repair = [
                "-fy",
                "-b",
                if block_size == 1024 { "8193" } else { "2048" },
                "-B",
                &block_size.to_string(),
            ]
            .map(str::to_owned);
            if tool(Command::new("/usr/sbin/e2fsck").args(repair).arg(&name)).is_some() {
                assert!(run(&["ls", &name]).status.success());
            }
            file.write_all_at(&sound, 0).unwrap();
        }
    }
}

#[test]
fn an_image_without_a_volume_is_no_finding() {
    let scratch = ScratchImage::empty();
    let image = scratch.path("other.img");
    for bytes in [vec![0; 1 << 20], vec![0xa5; 1 << 20], Vec::new()] {
        fs::write(&image, bytes).unwrap();
        let output = run(&["check", &text(&image)]);
        assert_eq!(output.status.code(), Some(8));
        assert!(testkit::tool::text(&output).contains("not an ext4 volume"));
    }
}

/// Serves an image whose sector at `bad` cannot be read.
fn serve_worn(image: &[u8], bad: u64) -> FakeServer {
    let server = FakeServer::start(image.len() as u64, Offer::default());
    server.disk(|disk| disk.write(0, image)).unwrap();
    server.rule(move |seen| {
        let is_hit = (seen.offset..seen.offset + u64::from(seen.len)).contains(&bad);
        if seen.kind == Kind::Read && is_hit { Reply::Refuse(5, "worn out", None) } else { Reply::Answer }
    });
    server
}

#[test]
fn info_names_a_sector_that_cannot_be_read_and_goes_on() {
    const BAD: u64 = 159_744;
    let Some(image) = Image::mke2fs(32, &["-b", "4096", "-O", "^has_journal"]) else { return };
    let server = serve_worn(&fs::read(image.path()).unwrap(), BAD);
    let output = run(&["info", &server.url("")]);
    let printed = testkit::tool::text(&output);
    assert!(output.status.success() && printed.contains("blocks    8192 of 4096 bytes"), "{printed}");
    assert!(printed.contains(&format!("512 bytes from byte {BAD} cannot be read")), "{printed}");
}

#[test]
fn info_shows_what_is_left_of_a_volume_that_cannot_be_opened() {
    const SECTOR: u64 = 512;
    let Some(image) = Image::mke2fs(24, &["-b", "1024", "-L", "kept", "-O", "^has_journal"]) else { return };
    let place = image.debugfs("imap <2>");
    let (block, offset) = place.split_once("located at block ").unwrap().1.split_once(", offset 0x").unwrap();
    let root = block.parse::<u64>().unwrap() * 1024 + u64::from_str_radix(offset.trim(), 16).unwrap();
    let root = root / SECTOR * SECTOR;
    let bytes = fs::read(image.path()).unwrap();
    for (sector, structure, backup) in [
        (1024, Some("superblock"), Some(8193)),
        (1536, Some("superblock"), Some(8193)),
        (2048, Some("group descriptors"), None),
        (root, Some("root directory's inode"), None),
        // Beside the superblock: the volume can be opened.
        (0, None, None),
        (512, None, None),
        (3072, None, None),
    ] {
        let server = serve_worn(&bytes, sector);
        let output = run(&["info", &server.url("")]);
        let (said, shown) =
            (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        let all = format!("{sector}: {said}{shown}");
        assert_eq!(output.status.code(), Some(i32::from(structure.is_some())), "{all}");
        let named = structure.map_or(String::new(), |structure| format!("{structure}: "));
        let warning = format!("{named}512 bytes from byte {sector} cannot be read: ");
        assert_eq!(said.matches(&warning).count(), 1, "{all}");
        assert!(shown.contains("label     kept") && shown.contains("inodes"), "{all}");
        let from = backup.map(|block| format!("from block {block},"));
        assert!(from.is_none_or(|from| shown.contains(&from)), "{all}");
        assert_eq!(shown.contains("  backup "), backup.is_some(), "{all}");
        let output = run(&["info", "--json", &server.url("")]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&json["label"], &json["backup"]), (&"kept".into(), &backup.into()), "{json}");
    }
}

/// The table is read once, not for each partition.
#[test]
fn the_reads_of_info_follow_the_number_of_partitions() {
    const LOGICAL: u64 = 60;
    let mut disk = vec![0; 4 << 20];
    let mut entry = |at: usize, kind: u8, start: u64, sectors: u64| {
        disk[at + 4] = kind;
        disk[at + 8..at + 12].copy_from_slice(&u32::try_from(start).unwrap().to_le_bytes());
        disk[at + 12..at + 16].copy_from_slice(&u32::try_from(sectors).unwrap().to_le_bytes());
    };
    entry(446, 0x0f, 100, 8000);
    for n in 0..LOGICAL {
        let table = usize::try_from(100 + n * 8).unwrap() * 512 + 446;
        entry(table, 0x83, 1, 4);
        if n + 1 < LOGICAL {
            entry(table + 16, 0x0f, (n + 1) * 8, 8);
        }
    }
    for table in std::iter::once(0).chain((0..LOGICAL).map(|n| 100 + n * 8)) {
        let end = usize::try_from(table).unwrap() * 512 + 510;
        disk[end..end + 2].copy_from_slice(&[0x55, 0xaa]);
    }
    let server = FakeServer::start(disk.len() as u64, Offer::default());
    server.disk(|served| served.write(0, &disk)).unwrap();
    let output = run(&["info", &server.url("")]);
    assert!(testkit::tool::text(&output).contains("with 60 partitions"), "{output:?}");
    let reads = server.take_log().iter().filter(|seen| seen.kind == Kind::Read).count() as u64;
    // One for each table of the chain and one for each partition, and at most 59 for the disk.
    assert!(reads < LOGICAL * 3, "{reads}");
}
