//! Journals of volumes with blocks above 4 KiB, which Linux mounts only if its pages are as large, or from 6.19 on. So e2fsprogs
//! stand in for the kernel: e2fsck replays what parext4 has logged, and debugfs writes logs.

use std::process::Command;
use std::sync::Arc;

use parext4::{Device, NewInode, Volume};
use testkit::volume::{assert_clean, recover, untimed};
use testkit::{Image, tool};

use super::change::{Changes, populate};
use super::snapshot::{Detail, of_volume};

const SIZES: [&str; 4] = ["8192", "16384", "32768", "65536"];

/// Makes a volume of 192 MiB; blocks of 64 KiB need 128 MiB for a journal.
fn make(block_size: &str, options: &[&str]) -> Option<Image> {
    Image::mke2fs(192, &[&["-b", block_size], options].concat())
}

#[test]
fn a_journal_is_replayed_by_e2fsck_and_here_with_the_same_result() {
    if !rustix::process::geteuid().is_root() {
        return testkit::skipped("only root makes device files");
    }
    let source = tempfile::tempdir().unwrap();
    populate(source.path());
    let tree = source.path().to_str().unwrap();
    for (block_size, nth) in SIZES.into_iter().zip(0..) {
        let features = ["64bit,metadata_csum", "^64bit,^metadata_csum,orphan_file"][nth % 2];
        let Some(image) = make(block_size, &["-O", features, "-N", "1024", "-d", tree]) else { return };
        let device = Arc::new(image.load());
        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
        Changes::new(200 + nth as u64, true).make(&volume);
        let root = volume.root().unwrap();
        let orphan = root.create(b"orphan", &NewInode::new()).unwrap();
        volume.write("/orphan", vec![9; 300_000]).unwrap();
        root.unlink(b"orphan").unwrap();
        volume.sync().unwrap();
        let wanted = of_volume(&volume, Detail::All);
        let crashed = Arc::new(device.fork());
        drop((orphan, root, volume));

        let what = format!("blocks of {block_size}");
        let by_e2fsck = Image::of(&crashed);
        assert!(tool(Command::new("e2fsck").arg("-fy").arg(by_e2fsck.path())).is_some());
        by_e2fsck.fsck();
        assert_eq!(of_volume(&by_e2fsck.open(), Detail::All), wanted, "{what}, replayed by e2fsck");
        recover(&crashed);
        assert_clean(&crashed, &what);
        let volume = Volume::open_device(crashed, &untimed()).unwrap();
        assert_eq!(of_volume(&volume, Detail::All), wanted, "{what}, replayed here");
    }
}

/// debugfs logs new contents of a block, and revokes another block that an earlier transaction has logged.
#[test]
fn a_journal_that_debugfs_wrote_is_replayed() {
    for block_size in SIZES {
        for open in ["jo", "jo -c -v 3"] {
            let Some(image) = make(block_size, &[]) else { return };
            let len = block_size.parse::<usize>().unwrap();
            let contents = tempfile::NamedTempFile::new().unwrap();
            // The first four bytes look like the first bytes of a block of the journal, so the log has them escaped.
            let new = [&[0xc0, 0x3b, 0x39, 0x98][..], &vec![5; 2 * len - 4]].concat();
            std::fs::write(contents.path(), &new).unwrap();
            let volume = image.open();
            volume.write("/file", vec![1; 3 * len]).unwrap();
            volume.close().unwrap();
            let block = |nth: u32| image.debugfs(&format!("bmap /file {nth}")).trim().parse::<u32>().unwrap();
            let (first, last) = (block(0), block(2));
            let path = contents.path().display();
            let script = tempfile::NamedTempFile::new().unwrap();
            let requests =
                format!("{open}\njw -b {first},{last} {path}\njw -r {last}\njw -b {} {path}\njc\n", block(1));
            std::fs::write(script.path(), requests).unwrap();
            let ran = tool(Command::new("debugfs").args(["-w", "-f"]).arg(script.path()).arg(image.path()));
            assert!(ran.is_some_and(|ran| ran.status.success()));
            let volume = image.open();
            let found = volume.read("/file").unwrap();
            let what = format!("blocks of {block_size}, {open}");
            assert!(found[..len] == new[..len] && found[len..2 * len] == new[..len], "{what}");
            assert!(found[2 * len..] == vec![1; len], "{what}: a revoked block was replayed");
            volume.close().unwrap();
            image.fsck();
        }
    }
}
