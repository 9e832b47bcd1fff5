//! Opening, keeping and closing protected volumes.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parext4::mmp::{MmpUse, OwnerEvidence};
use parext4::{Device, Error, MemDevice, Volume, VolumeOptions, needs_recovery};
use parext4_device::{FaultDevice, FaultKind, FaultPlan, RecordingDevice, Sharing, forward_device};
use parext4_format::GroupNo;
use parext4_format::group_desc::GroupDesc;
use parext4_format::mmp::{SEQUENCE_CLEAN, SEQUENCE_FSCK};
use parext4_format::superblock::Superblock;
use testkit::poll::until;
use testkit::volume::assert_clean;

use super::scale::*;

fn open(device: &Arc<impl Device + 'static>) -> Result<Volume, Error> {
    Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &options())
}

fn busy(opened: Result<Volume, Error>) -> String {
    match opened {
        Err(Error::Busy(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// Leaves the volume as a crash of its owner does.
fn crash(volume: Volume) {
    volume.abort().unwrap();
    drop(volume);
}

#[test]
fn an_open_volume_shows_its_owner_until_it_is_closed() {
    let device = Arc::new(volume());
    let began = Instant::now();
    let volume = open(&device).unwrap();
    assert!(began.elapsed() < SECOND * WAIT, "a clean volume is opened at once");
    let first = state(&*device);
    assert_eq!((first.usage, first.device.as_str()), (MmpUse::InUse, "parext4"));
    assert!(!first.node.is_empty());
    assert!(until(|| state(&*device).sequence > first.sequence + 2), "the owner updates its block");
    volume.write("/file", "text").unwrap();
    volume.close().unwrap();
    assert_eq!(state(&*device).usage, MmpUse::Clean);
    assert_clean(&device, "closed");
    assert_eq!(open(&device).unwrap().read("/file").unwrap(), b"text");
}

#[test]
fn a_volume_that_is_open_is_refused() {
    let device = Arc::new(volume());
    let owner = open(&device).unwrap();
    let why = busy(open(&device));
    let node = state(&*device).node;
    assert!(why.contains("another machine has the volume open") && why.contains(&node), "{why}");
    owner.write("/still", "open").unwrap();
    owner.close().unwrap();
}

#[test]
fn a_volume_that_was_not_closed_is_opened_after_its_owner_was_silent() {
    let device = Arc::new(volume());
    let owner = open(&device).unwrap();
    owner.create_dir("/dir", 0o755).unwrap();
    crash(owner);
    let began = Instant::now();
    let next = open(&device).unwrap();
    assert!(began.elapsed() >= SECOND * 2 * WAIT, "{:?}", began.elapsed());
    assert!(next.exists("/dir").unwrap());
    next.close().unwrap();
    assert_clean(&device, "after a crash");
}

#[test]
fn a_recovery_protects_the_volume() {
    let device = Arc::new(volume());
    let owner = open(&device).unwrap();
    owner.create_dir("/dir", 0o755).unwrap();
    owner.sync().unwrap();
    let device_of = || Arc::clone(&device) as Arc<dyn Device>;
    assert!(matches!(options().replay_journal(device_of()), Err(Error::Busy(_))));
    crash(owner);
    assert!(options().replay_journal(device_of()).unwrap().transactions > 0);
    assert_eq!(state(&*device).usage, MmpUse::Clean);
    assert!(!needs_recovery(&*device).unwrap());
}

#[test]
fn what_e2fsck_has_is_refused_at_once() {
    let device = Arc::new(volume());
    write_as_other(&*device, SEQUENCE_FSCK);
    let why = busy(open(&device));
    assert!(why.contains("e2fsck") && why.contains("other-node"), "{why}");
    assert_eq!(state(&*device).usage, MmpUse::Fsck);
}

#[test]
fn a_fence_replaces_the_waits() {
    let device = Arc::new(Fencing(Arc::new(volume())));
    write_as_other(&*device, 7);
    let began = Instant::now();
    let volume = open(&device).unwrap();
    assert!(began.elapsed() < SECOND * WAIT);
    assert!(until(|| state(&*device).sequence != 7));
    volume.close().unwrap();
    assert_eq!(state(&*device).usage, MmpUse::Clean);
}

#[test]
fn a_lock_that_was_free_fences_no_owner() {
    let device = Arc::new(Shared(Arc::new(volume()), Sharing::Fenced));
    write_as_other(&*device, 7);
    let began = Instant::now();
    let volume = open(&device).unwrap();
    assert!(began.elapsed() >= SECOND * 2 * WAIT, "{:?}", began.elapsed());
    volume.close().unwrap();
    let began = Instant::now();
    open(&device).unwrap().close().unwrap();
    assert!(began.elapsed() < SECOND * WAIT, "two machines cannot have the lock at the same time");
}

#[test]
fn an_owner_that_finds_another_number_stops_and_writes_nothing_more() {
    for (sequence, named) in
        [(7, "node other-node"), (SEQUENCE_CLEAN, "cleared"), (SEQUENCE_FSCK, "other-node")]
    {
        let mem = Arc::new(volume());
        let recorded = Arc::new(RecordingDevice::new(Arc::clone(&mem) as Arc<dyn Device>));
        let owner = open(&recorded).unwrap();
        owner.write("/before", "text").unwrap();
        owner.sync().unwrap();
        owner.write("/dirty", vec![1; 1 << 20]).unwrap();
        assert!(until(|| {
            let has_stopped = owner.stopped().is_some();
            // Again, in case the owner has just read its block and writes the next one over this
            // one.
            if !has_stopped {
                write_as_other(&*mem, sequence);
            }
            has_stopped
        }));
        let written = recorded.events();
        let why = owner.stopped().unwrap();
        assert!(why.contains(named) && why.contains("other-node"), "{why}");
        assert!(owner.write("/after", "text").is_err());
        assert!(owner.sync().is_err());
        assert_eq!(owner.read("/before").unwrap(), b"text", "reads continue");
        assert!(owner.close().is_err());
        assert_eq!(recorded.events(), written, "nothing was written");
        assert_eq!(state(&*mem).sequence, sequence);
    }
}

#[test]
fn a_block_that_is_overwritten_stops_its_owner() {
    let device = Arc::new(volume());
    let owner = open(&device).unwrap();
    overwrite(&*device);
    assert!(until(|| owner.stopped().is_some_and(|why| why.contains("overwritten"))));
    assert!(owner.close().is_err());
    assert!(open(&device).is_err());
}

#[test]
fn a_reader_of_a_live_volume_sees_it_without_its_journal() {
    let device = Arc::new(volume());
    let owner = open(&device).unwrap();
    owner.create_dir("/dir", 0o755).unwrap();
    owner.sync().unwrap();
    let read_only = options().read_only(true);
    let reader = || Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &read_only).unwrap();
    let live = reader();
    let state = live.info().live.expect("the owner");
    assert!(state.warn_reader().contains("snapshot"));
    assert!(!live.exists("/dir").unwrap(), "the directory is only in the journal");
    assert!(live.mmp().unwrap().is_some_and(|now| now.usage == MmpUse::InUse));
    drop(live);
    crash(owner);
    let after = reader();
    assert!(after.info().live.is_none());
    assert!(after.exists("/dir").unwrap(), "replayed in memory");
    assert_eq!(super::scale::state(&*device).usage, MmpUse::InUse, "a reader claims nothing");
}

#[test]
fn a_reader_that_judges_by_the_time_does_not_wait() {
    let device = Arc::new(volume());
    let owner = open(&device).unwrap();
    owner.create_dir("/dir", 0o755).unwrap();
    owner.sync().unwrap();
    // Waits would take longer than the test may.
    let mmp = short().second(Duration::from_hours(1)).judge_by_time(true);
    let read_only = options().read_only(true).mmp(mmp);
    let reader = || Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &read_only).unwrap();
    let live = reader();
    assert!(live.info().live.is_some_and(|owner| owner.warn_reader().contains("read again")));
    assert!(!live.exists("/dir").unwrap(), "the directory is only in the journal");
    drop(live);
    crash(owner);
    assert!(reader().info().live.is_some(), "the last update was just now");
    // An update of the year 2000.
    write_as_other(&*device, 7);
    let after = reader();
    assert!(after.info().live.is_none());
    assert!(after.exists("/dir").unwrap(), "replayed in memory");
}

#[test]
fn a_damaged_block_does_not_prevent_reading() {
    let device = Arc::new(volume());
    let (offset, len) = place(&*device);
    device.write_at(offset, &[IoSlice::new(&vec![0; len])]).unwrap();
    let read_only = options().read_only(true);
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &read_only).unwrap();
    assert!(volume.exists("/lost+found").unwrap() && volume.info().live.is_none());
    assert!(matches!(volume.mmp(), Err(Error::Corrupt(_))));
    assert!(matches!(open(&device), Err(Error::Corrupt(_))));
}

#[test]
fn a_reader_of_a_snapshot_does_not_wait() {
    let device = Arc::new(Shared(Arc::new(volume()), Sharing::Immutable));
    write_as_other(&*device, 7);
    let options = options().read_only(true).mmp(short().second(Duration::from_secs(1)));
    let began = Instant::now();
    let volume = Volume::open_device(device, &options).unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "the block asks for {WAIT} seconds");
    assert!(volume.info().live.is_none());
}

#[test]
fn a_reader_does_not_wait_for_as_long_as_an_image_asks() {
    let device = Arc::new(volume());
    write_block(&*device, 7, u16::MAX);
    let second = SECOND / 10;
    let options = options().read_only(true).mmp(short().second(second));
    let began = Instant::now();
    let volume = Volume::open_device(device, &options).unwrap();
    assert!(began.elapsed() < second * 300, "the block asks for 660 seconds");
    assert!(volume.info().live.is_some(), "the owner may live");
}

#[test]
fn of_two_machines_that_open_a_clean_volume_one_gets_it() {
    for sharing in [Sharing::Unfenced, Sharing::Unknown] {
        one_of_two_gets_the_volume(sharing);
    }
}

fn one_of_two_gets_the_volume(sharing: Sharing) {
    let device = Arc::new(Shared(Arc::new(volume()), sharing));
    // Longer than a thread that read a clean block may take until it writes its own.
    let options = options().mmp(short().second(10 * SECOND));
    let open = || Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &options);
    let began = Instant::now();
    let opened: Vec<_> = thread::scope(|scope| {
        let openers: Vec<_> = (0..2).map(|_| scope.spawn(open)).collect();
        openers.into_iter().map(|opener| opener.join().unwrap()).collect()
    });
    assert_eq!(opened.iter().filter(|opened| opened.is_ok()).count(), 1, "{sharing:?}: {opened:?}");
    assert!(began.elapsed() >= 10 * SECOND, "{sharing:?}: {:?}", began.elapsed());
}

/// A device whose first write waits until the test lets it go on.
#[derive(Debug)]
struct Held {
    inner: Arc<dyn Device>,
    arrived: AtomicBool,
    released: AtomicBool,
}

impl Held {
    fn new(inner: Arc<dyn Device>) -> Arc<Self> {
        Arc::new(Self { inner, arrived: AtomicBool::new(false), released: AtomicBool::new(false) })
    }

    fn has_arrived(&self) -> bool {
        until(|| self.arrived.load(Ordering::SeqCst))
    }

    fn release(&self) {
        self.released.store(true, Ordering::SeqCst);
    }
}

impl Device for Held {
    forward_device!(this => this.inner; size, sector_size, read_only, sharing, read_at, flush, discard);

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.arrived.store(true, Ordering::SeqCst);
        while !self.released.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        self.inner.write_at(offset, bufs)
    }
}

#[test]
fn a_machine_that_was_stopped_after_it_read_a_clean_block_waits_for_the_owner() {
    for sharing in [Sharing::Unfenced, Sharing::Unknown, Sharing::Local] {
        // The owner reads its block every five seconds, and its lease lasts for ten.
        let mem = Arc::new(volume_with_interval(5));
        let shared = Arc::new(Shared(Arc::clone(&mem) as Arc<dyn Device>, sharing));
        let held = Held::new(Arc::clone(&shared) as _);
        thread::scope(|scope| {
            let late = scope.spawn(|| open(&held));
            assert!(held.has_arrived());
            let owner = open(&shared).unwrap();
            thread::sleep(SECOND);
            held.release();
            let late = late.join().unwrap();
            let written = owner.write("/owner", "text").and_then(|()| owner.sync());
            assert!(
                late.is_err() || written.is_err(),
                "{sharing:?}: two machines write: {:?}, {:?}",
                late.is_ok(),
                written.is_ok()
            );
            let _ = owner.close();
            late.unwrap().close().unwrap();
        });
        assert_clean(&mem, "late");
    }
}

/// An owner whose updates have become slow asks other machines to wait for longer, which a machine
/// that was stopped cannot see.
#[test]
fn a_late_machine_waits_for_every_owner_that_may_have_come_meanwhile() {
    const LATE: u32 = 8;
    for sequence in [SEQUENCE_CLEAN, 7] {
        let mem = Arc::new(volume());
        write_as_other(&*mem, sequence);
        let held = Held::new(Arc::new(Shared(Arc::clone(&mem) as Arc<dyn Device>, Sharing::Unfenced)));
        let options = options().mmp(short().evidence(OwnerEvidence::Forced));
        thread::scope(|scope| {
            let late = scope.spawn(|| Volume::open_device(Arc::clone(&held) as Arc<dyn Device>, &options));
            assert!(held.has_arrived());
            thread::sleep(LATE * SECOND);
            let released = Instant::now();
            held.release();
            let volume = late.join().unwrap().unwrap();
            // Twice the time that it was late by, and the wait that the block asks for then.
            assert!(released.elapsed() >= SECOND * (2 * 2 * LATE + 1), "{:?}", released.elapsed());
            volume.close().unwrap();
        });
        assert_clean(&mem, "late");
    }
}

#[test]
fn volumes_of_mke2fs_are_protected() {
    let Some(image) = testkit::Image::mke2fs(16, &["-O", "mmp", "-E", "mmp_update_interval=1"]) else {
        return;
    };
    let device = Arc::new(MemDevice::from_bytes(std::fs::read(image.path()).unwrap()));
    let owner = open(&device).unwrap();
    let why = busy(open(&device));
    assert!(why.contains("device parext4"), "{why}");
    owner.write("/file", "text").unwrap();
    owner.close().unwrap();
    assert_clean(&device, "made by mke2fs");
}

/// A flush of the owner's thread may be the one that reports the loss of the volume's writes.
#[test]
fn a_failed_flush_of_the_owner_stops_the_volume() {
    let device = Arc::new(FaultDevice::new(Arc::new(volume()), FaultPlan::default()));
    let owner = open(&device).unwrap();
    owner.create_dir("/dir", 0o755).unwrap();
    device.arm(FaultPlan::at(1).kind(FaultKind::Flushes));
    assert!(until(|| owner.stopped().is_some()), "the volume goes on");
    assert!(matches!(owner.sync(), Err(Error::Stopped(_))));
    drop(owner);
}

/// Returns options with short seconds.
fn options() -> VolumeOptions {
    VolumeOptions::new().mmp(short()).commit_interval(None)
}

/// A claim writes the block before anything else is read, so it would destroy sixteen inodes.
#[test]
fn a_block_of_protection_in_an_inode_table_is_refused_and_not_written() {
    const BLOCK: usize = 4096;
    let Some(image) = testkit::Image::mke2fs(16, &["-b", "4096", "-O", "mmp"]) else { return };
    let before = std::fs::read(image.path()).unwrap();
    let superblock = Superblock::parse(&before[1024..2048]).unwrap();
    let own = superblock.mmp_block().unwrap().unwrap().get() as usize;
    let at = superblock.gdt_block(0).get() as usize * BLOCK;
    let desc = GroupDesc::parse(&before[at..], &superblock, GroupNo(0)).unwrap();
    let inodes = desc.inode_table.get() as usize + 3;
    image.debugfs_write(&format!("set_super_value mmp_block {inodes}"));
    let mut bytes = std::fs::read(image.path()).unwrap();
    bytes.copy_within(own * BLOCK..(own + 1) * BLOCK, inodes * BLOCK);
    let device = Arc::new(MemDevice::from_bytes(bytes.clone()));
    let error = open(&device).unwrap_err();
    assert!(matches!(&error, Error::Corrupt(_)) && error.to_string().contains("s_mmp_block"), "{error}");
    assert!(device.snapshot() == bytes, "nothing was written");
}
