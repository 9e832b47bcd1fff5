//! What a mount notes in the superblock: the same as the kernel.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;

use testkit::command::text;
use testkit::fuse_mount::{FuseMount, tool};
use testkit::kernel_mount::KernelMount;
use testkit::settings;

/// Bytes written to each volume.
const WRITTEN: usize = 3 << 20;

/// Returns the fields of a superblock as dumpe2fs prints them, by name.
fn fields(image: &Path) -> Option<BTreeMap<String, String>> {
    let text = tool(Command::new("dumpe2fs").arg("-h").arg(image))?;
    let field =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    Some(text.lines().filter_map(field).collect())
}

/// Returns a number of bytes such as `97 kB`.
fn bytes(value: &str) -> u64 {
    let (number, unit) = value.split_once(' ').unwrap();
    number.parse::<u64>().unwrap() << if unit == "kB" { 10 } else { 20 }
}

#[test]
fn the_superblock_is_kept_as_by_the_kernel() {
    const SAME: &[&str] = &[
        "Mount count",
        "Maximum mount count",
        "Last checked",
        "Check interval",
        "Filesystem state",
        "Filesystem features",
        "Filesystem flags",
        "Filesystem revision #",
    ];
    if settings::server().is_some() {
        return;
    }
    for mkfs in [&["-O", "^metadata_csum"][..], &["--no-journal"]] {
        let Some(fuse) = FuseMount::new(mkfs) else { return };
        let image = fuse.scratch().image();
        if tool(Command::new("tune2fs").args(["-c", "7", "-C", "7", "-o", "bsdgroups"]).arg(&image)).is_none()
        {
            return;
        }
        let Some(kernel) = KernelMount::with_copy_of(&image, "rw") else { return };
        let log = fuse.scratch().path("server.log");
        fuse.mount(&format!("log={},stripe=16", text(&log)));
        for dir in [fuse.dir(), &kernel.path()] {
            chown(dir, None, Some(7)).unwrap();
            std::fs::write(dir.join("file"), vec![5; WRITTEN]).unwrap();
            assert_eq!(std::fs::metadata(dir.join("file")).unwrap().gid(), 7, "by the default of the volume");
        }
        fuse.umount();
        kernel.umount();
        let said = std::fs::read_to_string(&log).unwrap();
        assert!(said.contains("the maximal number of mounts is reached"), "{said}");
        assert!(said.contains("\"stripe=16\" has no effect: it tunes"), "{said}");

        let [ours, theirs] = [&image, &kernel.image()].map(|image| fields(image).unwrap());
        for field in SAME {
            assert_eq!(ours.get(*field), theirs.get(*field), "{mkfs:?}: {field}");
        }
        assert_eq!(ours["Mount count"], "8");
        assert_eq!(
            (&ours["Last mounted on"], &theirs["Last mounted on"]),
            (&text(fuse.dir()), &text(&kernel.path()))
        );
        for side in [&ours, &theirs] {
            assert_ne!(side["Last mount time"], "n/a");
            let lifetime = bytes(&side["Lifetime writes"]);
            assert!((WRITTEN as u64..WRITTEN as u64 + (4 << 20)).contains(&lifetime), "{lifetime} bytes");
        }
        fuse.scratch().fsck();
    }
}
