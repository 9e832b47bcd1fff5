//! Bitmaps that cannot be read: the operation that needs one fails before it has changed anything,
//! and the volume goes on.

use std::sync::Arc;

use parext4::device::{FaultDevice, FaultKind, FaultPlan};
use parext4::server::ServerVolume;
use parext4::{Device, FileSize, MemDevice, MkfsOptions, OpenOptions, Result, Volume, XattrMode, mkfs};
use testkit::volume::{DirectFiles as _, Shape, assert_no_findings, untimed};

fn base() -> MemDevice {
    let memory = Arc::new(Shape::new(16, 1024, true).make());
    let volume = Volume::open_device(Arc::clone(&memory) as Arc<dyn Device>, &untimed()).unwrap();
    volume.write("/file", vec![1; 100 << 10]).unwrap();
    volume.create_dir("/dir", 0o755).unwrap();
    // As many extents as an inode holds, so that a split needs a block.
    let parts = volume.create_direct("/parts").unwrap();
    (0..4).for_each(|nth| parts.write_all_at(&[1; 8 << 10], nth * (20 << 10)).unwrap());
    drop(parts);
    volume.close().unwrap();
    memory.fork()
}

/// Makes each read of `change` fail, alone, on a volume of which nothing is in memory.
fn fail_each_read(what: &str, change: impl Fn(&Volume) -> Result<()>) {
    let (base, mut failures) = (base(), 0);
    for nth in 1.. {
        let memory = Arc::new(base.fork());
        let device = Arc::new(FaultDevice::new(Arc::clone(&memory) as _, FaultPlan::default()));
        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
        device.arm(FaultPlan::at(nth).kind(FaultKind::Reads));
        let changed = change(&volume);
        assert!(volume.stopped().is_none(), "{what}, read {nth}: {changed:?}, {:?}", volume.stopped());
        if let Err(error) = &changed {
            failures += 1;
            change(&volume).unwrap_or_else(|again| panic!("{what}, read {nth}: {error}, then {again}"));
        }
        let was_hit = device.failed().is_some();
        volume.close().unwrap();
        assert_no_findings(&*memory, &format!("{what}, read {nth}"));
        if !was_hit {
            changed.unwrap();
            break;
        }
    }
    assert!(failures > 1, "{what}: {failures} reads failed");
}

#[test]
fn a_write_whose_bitmap_cannot_be_read_leaves_the_volume_usable() {
    fail_each_read("direct write", |volume| volume.direct_file("/file")?.write_all_at(&[2; 4096], 200 << 10));
    fail_each_read("buffered write", |volume| {
        let file = volume.open_file("/file", &OpenOptions::read_write())?;
        file.write_all_at(&[2; 5000], 200 << 10)?;
        file.sync_all()
    });
    fail_each_read("allocation", |volume| {
        volume.direct_file("/file")?.allocate(200 << 10..(200 << 10) + 4096, FileSize::Keep)
    });
}

#[test]
fn a_removal_whose_bitmap_cannot_be_read_leaves_the_volume_usable() {
    fail_each_read("remove a file", |volume| volume.remove_file("/file"));
    fail_each_read("remove a directory", |volume| volume.remove_dir("/dir"));
    fail_each_read("truncate", |volume| volume.direct_file("/file")?.set_len(50 << 10));
    fail_each_read("punch", |volume| volume.direct_file("/file")?.punch_hole(20 << 10..40 << 10));
    fail_each_read("collapse", |volume| volume.direct_file("/file")?.collapse_range(20 << 10..40 << 10));
}

#[test]
fn a_split_whose_bitmap_cannot_be_read_leaves_the_volume_usable() {
    fail_each_read("zero a range", |volume| {
        volume.direct_file("/parts")?.zero_range(22 << 10..24 << 10, FileSize::Keep)
    });
    fail_each_read("zero parts of blocks", |volume| {
        volume.direct_file("/parts")?.zero_range((22 << 10) + 100..(22 << 10) + 3100, FileSize::Keep)
    });
    fail_each_read("punch", |volume| volume.direct_file("/parts")?.punch_hole(22 << 10..24 << 10));
}

#[test]
fn a_creation_whose_bitmap_cannot_be_read_leaves_the_volume_usable() {
    fail_each_read("make a directory", |volume| volume.create_dir("/dir/new", 0o755).map(drop));
    fail_each_read("make a link", |volume| volume.symlink("/dir/new", "x".repeat(200)).map(drop));
    fail_each_read("set an attribute", |volume| {
        volume.resolve("/file")?.set_xattr(b"user.a", &[7; 500], XattrMode::Any)
    });
}

/// The dirty block is not the first of its cluster, so the claim that its write-back returns begins
/// before the hole (H29).
#[test]
fn a_cluster_stays_reserved_while_its_bitmap_cannot_be_read() {
    for features in ["bigalloc", "bigalloc,quota"] {
        let shape = Shape { features, ..Shape::new(16, 1024, true).with_clusters(8) };
        let (base, mut failures) = (Arc::new(shape.make()), 0);
        let volume = Volume::open_device(Arc::clone(&base) as Arc<dyn Device>, &untimed()).unwrap();
        volume.write("/file", b"").unwrap();
        volume.close().unwrap();
        for nth in 1.. {
            let memory = Arc::new(base.fork());
            let device = Arc::new(FaultDevice::new(Arc::clone(&memory) as _, FaultPlan::default()));
            let options = untimed().write_back_interval(None);
            let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
            let file = volume.open_file("/file", &OpenOptions::read_write()).unwrap();
            file.write_all_at(&[2; 1024], 4 << 10).unwrap();
            let before = volume.open_resources();
            assert!(before.delayed_blocks > 0 && (before.reserved_quota > 0) == features.contains("quota"));
            device.arm(FaultPlan::at(nth).kind(FaultKind::Reads));
            let synced = file.sync_data();
            let what = format!("{features}, read {nth}: {synced:?}");
            if synced.is_err() {
                failures += 1;
                assert_eq!(volume.open_resources(), before, "{what}");
                file.sync_data().unwrap();
            }
            let (was_hit, after) = (device.failed().is_some(), volume.open_resources());
            assert_eq!((after.delayed_blocks, after.reserved_quota), (0, 0), "{what}");
            drop(file);
            volume.close().unwrap();
            assert_no_findings(&*memory, &what);
            if !was_hit {
                synced.unwrap();
                break;
            }
        }
        assert!(failures > 0, "{features}: no read failed");
    }
}

/// A punch drops the pages after its last transaction. If a later one fails, the pages over the
/// blocks that were freed are still there, and the dirty ones have no space reserved (H29).
#[test]
fn a_punch_that_fails_after_its_first_transaction_stops_the_volume() {
    const LEN: u64 = 84 << 20;
    let base = Arc::new(MemDevice::new(128 << 20));
    // More groups than one transaction changes.
    let options = MkfsOptions::new().block_size(1024).blocks_per_group(256).journal_blocks(1024);
    mkfs(&*base, &options.device_is_zero(true)).unwrap();
    let volume = Volume::open_device(Arc::clone(&base) as Arc<dyn Device>, &untimed()).unwrap();
    volume.create_direct("/file").unwrap().allocate(0..LEN, FileSize::Extend).unwrap();
    volume.close().unwrap();
    for nth in 1.. {
        let memory = Arc::new(base.fork());
        let device = Arc::new(FaultDevice::new(Arc::clone(&memory) as _, FaultPlan::default()));
        let options = untimed().write_back_interval(None);
        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
        let file = volume.open_file("/file", &OpenOptions::read_write()).unwrap();
        file.write_all_at(&[2; 4096], LEN - 4096).unwrap();
        let before = file.metadata().sectors;
        device.arm(FaultPlan::at(nth).kind(FaultKind::Reads));
        let punched = file.punch_hole(0..LEN);
        if device.failed().is_none() {
            punched.unwrap();
            assert!(nth > 100, "too few bitmaps for several transactions");
            break;
        }
        punched.unwrap_err();
        if volume.stopped().is_none() {
            assert_eq!(file.metadata().sectors, before, "read {nth}");
            file.sync_all().unwrap();
            drop(file);
            volume.close().unwrap();
            assert_no_findings(&*memory, &format!("read {nth}"));
        }
    }
}
