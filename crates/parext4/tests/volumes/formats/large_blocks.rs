//! Journals of volumes with blocks above 4 KiB, which Linux mounts only if its pages are as large,
//! or from 6.19 on. So e2fsprogs stand in for the kernel: e2fsck replays what parext4 has logged,
//! and debugfs writes logs.

use std::process::Command;
use std::sync::Arc;

use parext4::mkfs::mkfs_journal_device;
use parext4::{Device, DeviceOptions, FileDevice, MkfsOptions, NewInode, Volume, XattrMode};
use testkit::volume::{DirectFiles as _, Shape, assert_clean, recover, untimed};
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

/// debugfs logs new contents of a block, and revokes another block that an earlier transaction has
/// logged.
#[test]
fn a_journal_that_debugfs_wrote_is_replayed() {
    for block_size in SIZES {
        for open in ["jo", "jo -c -v 3"] {
            let Some(image) = make(block_size, &[]) else { return };
            let len = block_size.parse::<usize>().unwrap();
            let contents = tempfile::NamedTempFile::new().unwrap();
            // The first four bytes look like the first bytes of a block of the journal, so the log
            // has them escaped.
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

/// Names for a root of a hash tree and hundreds of leaves, an attribute that fills its block, and
/// the last block that a file can have, in blocks of 64 KiB.
#[test]
fn the_limits_of_blocks_of_64_kib() {
    for features in ["large_dir", "^extent,^64bit,^metadata_csum"] {
        let shape = Shape { features, inode_ratio: Some(16 << 10), ..Shape::new(128, 65536, false) };
        let device = Arc::new(shape.make());
        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
        let root = volume.root().unwrap();
        let dir = root.mkdir(b"dir", &NewInode::new()).unwrap();
        for n in 0..4000 {
            dir.create(format!("{n:0>240}").as_bytes(), &NewInode::new()).unwrap();
        }
        let full = vec![7; 65536 - 32 - 20 - 4];
        dir.set_xattr(b"user.abc", &full, XattrMode::Create).unwrap();
        dir.set_xattr(b"user.abc", &[&full[..], &[7; 4]].concat(), XattrMode::Any).unwrap_err();
        let file = volume.create_direct("/file").unwrap();
        // In both formats the numbers of file blocks end before the tree does.
        let most = (1_u64 << 32) - 1;
        file.write_all_at(&[3; 512], (most << 16) - 512).unwrap();
        assert_eq!(file.size(), most << 16, "{features}");
        let buffered = file.buffered().unwrap();
        buffered.write_all_at(&[4; 600], ((most - 1) << 16) - 300).unwrap();
        buffered.write_all_at(&[5; 1], most << 16).unwrap_err();
        drop((file, buffered, dir, root));
        volume.close().unwrap();
        assert_clean(&device, features);

        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
        let dir = volume.root().unwrap().lookup(b"dir").unwrap();
        assert_eq!(dir.get_xattr(b"user.abc").unwrap(), Some(full));
        let file = volume.direct_file("/file").unwrap();
        let mut end = vec![0; 2 << 16];
        file.read_exact_at(&mut end, (most - 2) << 16).unwrap();
        let (before, last) = end.split_at(1 << 16);
        assert!(before[(1 << 16) - 300..] == [4; 300] && last[..300] == [4; 300]);
        assert!(
            last[300..(1 << 16) - 512].iter().all(|byte| *byte == 0) && last[(1 << 16) - 512..] == [3; 512]
        );
        for n in (0..4000).filter(|n| n % 7 != 0) {
            dir.unlink(format!("{n:0>240}").as_bytes()).unwrap();
        }
        drop((file, dir));
        volume.close().unwrap();
        assert_clean(&device, features);
        let image = Image::of(&device);
        let listed = image.debugfs("ls -p /dir");
        // debugfs also shows the unused entries at the start of blocks, with inode 0.
        let names = listed.lines().filter(|line| line.contains("/000") && !line.starts_with("/0/")).count();
        assert!(listed.is_empty() || names == 572, "{names} names");
    }
}

/// mke2fs uses a journal device that parext4 has made.
#[test]
fn a_journal_device_is_as_mke2fs_makes_it() {
    for block_size in [8192, 65536] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let create = DeviceOptions::new().create(1040 * u64::from(block_size));
        let device = FileDevice::open(&path, &create).unwrap();
        mkfs_journal_device(&device, &MkfsOptions::new().block_size(block_size).device_is_zero(true))
            .unwrap();
        drop(device);
        let Some(output) = tool(Command::new("dumpe2fs").arg("-h").arg(&path)) else { return };
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let has =
            |line: &str| shown.lines().any(|shown| shown.split_whitespace().eq(line.split_whitespace()));
        assert!(has(&format!("Block size: {block_size}")) && has("Block count: 1040"), "{shown}");
        assert!(has("Journal start: 0") && has("Filesystem features: journal_dev"), "{shown}");
    }
}
