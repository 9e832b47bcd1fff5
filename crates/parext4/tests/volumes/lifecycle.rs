//! Failed operations, closing volumes, and handles that outlive their volume.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use parext4::device::{FaultDevice, FaultKind, FaultPlan};
use parext4::error::Corruption;
use parext4::server::{ServerDirectFile, ServerInode, ServerVolume};
use parext4::{
    AlignedBuf, Error, FileSize, IoFlags, IoRequest, MemDevice, MkfsOptions, RenameMode, SetAttributes,
    Timestamp, Volume, VolumeOptions, mkfs, needs_recovery,
};
use testkit::device::GatedDevice;
use testkit::volume::{DirectFiles as _, assert_no_findings};
use testkit::watchdog::Watchdog;

fn fresh(size: u64) -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(MemDevice::new(size));
    mkfs(&*device, &MkfsOptions::new()).unwrap();
    let volume = open(&device);
    (device, volume)
}

fn open(device: &Arc<MemDevice>) -> Volume {
    let options = VolumeOptions::new().commit_interval(None);
    Volume::open_device(Arc::clone(device) as _, &options).unwrap()
}

#[test]
fn a_failed_write_does_not_move_appends() {
    let (_device, volume) = fresh(16 << 20);
    let file = volume.create_direct("/allocated").unwrap();
    assert!(matches!(file.allocate(0..1 << 30, FileSize::Extend), Err(Error::NoSpace)));
    assert_eq!(file.append(&[1; 4096]).unwrap(), 0);
    let file = volume.create_direct("/written").unwrap();
    assert!(matches!(file.write_all_at(&vec![1; (20 << 20) + 100], 0), Err(Error::NoSpace)));
    assert_eq!(file.append(&[1; 512]).unwrap(), 0);
}

#[test]
fn dropping_a_volume_closes_it_with_all_its_times() {
    let (device, volume) = fresh(16 << 20);
    let file = volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    volume.sync().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    // An overwrite: its times wait for a transaction, which never begins.
    file.write_all_at(&[2; 4096], 0).unwrap();
    let mtime = file.inode_ref().metadata().mtime;
    drop((file, volume));
    assert_eq!(open(&device).metadata("/file").unwrap().mtime, mtime);
}

#[test]
fn of_two_times_the_later_set_wins() {
    let (device, volume) = fresh(16 << 20);
    let file = volume.create_direct("/file").unwrap();
    let times =
        |file: &parext4::DirectFile| (file.inode_ref().metadata().mtime, file.inode_ref().metadata().ctime);
    let far = Timestamp { seconds: 5_000_000_000, nanoseconds: 1 };
    for _ in 0..2 {
        // First a write that allocates, then one whose time waits for a commit.
        file.write_all_at(&[1; 4096], 0).unwrap();
        assert!(times(&file).0 < far, "a write sets the time even if it was in the future");
        let set = SetAttributes::new().mtime(far);
        file.inode_ref().set_attributes(&set).unwrap();
        assert_eq!(times(&file).0, far);
        volume.sync().unwrap();
        assert_eq!(times(&file).0, far);
    }
    file.write_all_at(&[2; 4096], 0).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    volume.hard_link("/file", "/link").unwrap();
    let (mtime, ctime) = times(&file);
    assert!(mtime < ctime, "a new name changes the inode, not its data");
    drop((file, volume));
    let file = open(&device).direct_file("/link").unwrap();
    assert_eq!(times(&file), (mtime, ctime));
}

#[test]
fn a_file_that_keeps_times_writes_without_a_date() {
    let (_device, volume) = fresh(16 << 20);
    let dated = volume.create_direct("/file").unwrap();
    let file = dated.keeping_times();
    let far = Timestamp { seconds: 5_000_000_000, nanoseconds: 1 };
    let set = SetAttributes::new().mtime(far);
    file.inode_ref().set_attributes(&set).unwrap();
    // Allocated, overwritten, converted, in memory, and by a queue that also writes with a given
    // time.
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.write_all_at(&[2; 4096], 0).unwrap();
    file.allocate(4096..8192, FileSize::Extend).unwrap();
    file.inode_ref().set_attributes(&set).unwrap();
    file.write_all_at(&[3; 2048], 4096).unwrap();
    let buffered = file.buffered().unwrap();
    buffered.write_all_at(b"in memory", 9000).unwrap();
    buffered.sync_all().unwrap();
    let mut queue = volume.io_queue(2);
    let mut write = |file| {
        let buf = AlignedBuf::from_slice(&[4; 512]);
        queue.submit(file, IoRequest::Write { buf, len: 512, offset: 0 }, 0, IoFlags::new());
        let mut done = Vec::new();
        queue.harvest(&mut done).unwrap();
        assert!(done.iter().all(|completion| completion.result.is_ok()));
    };
    write(&file);
    assert_eq!(file.inode_ref().metadata().mtime, far);
    write(&dated);
    assert!(file.inode_ref().metadata().mtime < far);
    file.inode_ref().set_attributes(&set).unwrap();
    file.inode_ref().touch_modified().unwrap();
    assert!(file.inode_ref().metadata().mtime < far);
}

#[test]
fn nothing_works_on_a_closed_volume() {
    let (_device, volume) = fresh(16 << 20);
    let file = volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    let other = volume.clone();
    volume.close().unwrap();
    let stopped = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Stopped(_))), "{result:?}");
    stopped(file.read_at(&mut [0; 512], 0).map(drop));
    stopped(file.write_all_at(&[1; 512], 0));
    stopped(file.append(&[1; 512]).map(drop));
    stopped(file.set_len(0));
    stopped(file.sync_all());
    stopped(other.create_direct("/another").map(drop));
    stopped(other.metadata("/file").map(drop));
    stopped(other.sync());
    other.close().unwrap();
}

#[test]
fn synced_data_survives_a_close_at_any_moment() {
    let (base, volume) = fresh(16 << 20);
    volume.close().unwrap();
    for round in 0..200 {
        let device = Arc::new(base.fork());
        let volume = open(&device);
        let start = Barrier::new(4);
        let synced: Vec<u64> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|nth| {
                    let (volume, start) = (volume.clone(), &start);
                    scope.spawn(move || {
                        let file = volume.create_direct(format!("/{nth}")).unwrap();
                        start.wait();
                        (0..)
                            .take_while(|_| file.append(&[1; 4096]).is_ok() && file.sync_data().is_ok())
                            .count()
                    })
                })
                .collect();
            start.wait();
            std::thread::sleep(Duration::from_micros(round % 50 * 20));
            volume.clone().close().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap() as u64).collect()
        });
        drop(volume);
        let volume = open(&device);
        for (nth, synced) in synced.into_iter().enumerate() {
            let size = volume.metadata(format!("/{nth}")).unwrap().size;
            assert!(size >= synced * 4096, "{size} bytes of {synced} synced blocks");
        }
    }
}

/// Renames files over each other, exchanges them and moves a directory, from `start` until the
/// volume is closed.
fn rename_until_closed(volume: &Volume, thread: usize, start: &Barrier) {
    let path = |dir: usize, name: &str| format!("/{thread}{dir}/{name}");
    for dir in 0..2 {
        volume.create_dir(format!("/{thread}{dir}"), 0o755).unwrap();
    }
    volume.write(path(0, "b"), "b").unwrap();
    volume.create_dir(path(0, "dir"), 0o755).unwrap();
    start.wait();
    let turn = |from: usize, to: usize| {
        volume.write(path(from, "a"), "a")?;
        volume.rename(path(from, "dir"), path(to, "dir"))?;
        let dir = volume.resolve(path(from, ""))?;
        dir.rename(b"a", &dir, b"b", RenameMode::Exchange)?;
        volume.rename(path(from, "a"), path(from, "b"))?;
        volume.rename(path(from, "b"), path(to, "b"))
    };
    let error = (0..).find_map(|nth| turn(nth % 2, 1 - nth % 2).err());
    assert!(matches!(error, Some(Error::Stopped(_))), "{error:?}");
}

#[test]
fn names_are_whole_after_a_close_at_any_moment() {
    let (base, volume) = fresh(16 << 20);
    volume.close().unwrap();
    for round in 0..200 {
        let device = Arc::new(base.fork());
        let volume = open(&device);
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (volume, start) = (volume.clone(), &start);
                scope.spawn(move || rename_until_closed(&volume, thread, start));
            }
            start.wait();
            std::thread::sleep(Duration::from_micros(round % 50 * 20));
            volume.clone().close().unwrap();
        });
        drop(volume);
        assert_no_findings(&*device, "closed while names change");
    }
}

#[test]
fn a_close_beside_another_one_waits_for_it() {
    let (base, volume) = fresh(16 << 20);
    volume.close().unwrap();
    for _ in 0..50 {
        let device = Arc::new(base.fork());
        let volume = open(&device);
        volume.write("/file", vec![1; 1 << 20]).unwrap();
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (volume, device, start) = (volume.clone(), &device, &start);
                scope.spawn(move || {
                    start.wait();
                    volume.close().unwrap();
                    assert!(!needs_recovery(&MemDevice::from_bytes(device.snapshot())).unwrap());
                });
            }
        });
    }
}

#[test]
fn a_close_after_one_that_failed_fails() {
    let (base, volume) = fresh(16 << 20);
    volume.close().unwrap();
    let device = Arc::new(FaultDevice::new(base, FaultPlan::default()));
    let volume = Volume::open_device(Arc::clone(&device) as _, &VolumeOptions::new()).unwrap();
    volume.write("/file", "text").unwrap();
    device.arm(FaultPlan::at(1).kind(FaultKind::Writes).sticky(true));
    let (first, second) = (volume.clone().close(), volume.clone().close());
    assert!(first.is_err() && matches!(second, Err(Error::Stopped(_))), "{first:?}, {second:?}");
}

/// A close that cannot be made does not wait, and does not keep other calls from the volume.
#[test]
fn a_close_beside_a_queue_changes_nothing() {
    let (base, volume) = fresh(16 << 20);
    volume.close().unwrap();
    let device = Arc::new(GatedDevice::new(base));
    let volume = Volume::open_device(Arc::clone(&device) as _, &VolumeOptions::new()).unwrap();
    let file = volume.create_direct("/file").unwrap();
    let _queue = volume.io_queue(1);
    let watchdog = Watchdog::start("a_close_beside_a_queue_changes_nothing", 0, 1);
    device.catch_writes(1);
    std::thread::scope(|scope| {
        scope.spawn(|| file.append(&[1; 4096]).unwrap());
        device.wait_for(1);
        let closed = watchdog.watch(0, || volume.clone().close());
        assert!(matches!(closed, Err(Error::Busy(_))), "{closed:?}");
        assert!(volume.exists("/file").unwrap());
        device.open();
    });
    assert_eq!(file.size(), 4096);
}

#[test]
fn a_journal_is_left_alone_on_request() {
    let (device, volume) = fresh(16 << 20);
    volume.create_direct("/file").unwrap();
    volume.sync().unwrap();
    // As after a crash: the file is in the journal only.
    let crashed = Arc::new(MemDevice::from_bytes(device.snapshot()));
    let open = |recover| {
        let options = VolumeOptions::new().read_only(true).recover(recover);
        Volume::open_device(Arc::clone(&crashed) as _, &options).unwrap()
    };
    assert!(matches!(open(false).metadata("/file"), Err(Error::NotFound(_))));
    open(true).metadata("/file").unwrap();
    let options = VolumeOptions::new().recover(false);
    assert!(matches!(Volume::open_device(Arc::clone(&crashed) as _, &options), Err(Error::Invalid(_))));
}

#[test]
fn a_volume_that_was_stopped_can_be_read() {
    let (_device, volume) = fresh(16 << 20);
    let file = volume.create_direct("/file").unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.stopped(), None);
    assert!(volume.commits() > 0);
    volume.stop(&Error::from(Corruption::new("as a test says")));
    assert_eq!(volume.stopped().unwrap(), "corrupt volume: as a test says");
    assert!(matches!(file.write_all_at(&[2; 4096], 0), Err(Error::Stopped(_))));
    assert!(matches!(volume.create_direct("/other"), Err(Error::Stopped(_))));
    let mut seen = [0; 4096];
    file.read_at(&mut seen, 0).unwrap();
    assert_eq!(seen, [1; 4096]);
}
