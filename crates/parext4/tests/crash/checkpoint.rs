//! Checkpoints concurrent with commits: syncs do not wait for them while the log has room, and a
//! crash at any moment loses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use parext4::device::{Event, RecordingDevice};
use parext4::error::Corruption;
use parext4::server::ServerVolume;
use parext4::{Device, Error, MemDevice, OpenOptions, SetAttributes, Volume};
use parext4_format::jbd2::JournalSuperblock;
use parext4_format::superblock::Superblock;

use testkit::crash_states::{CrashState, for_each_crash_state};
use testkit::device::GatedDevice;
use testkit::rng::Rng;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, assert_recovers, journal_offset, untimed};

/// Blocks of the log.
const SHAPE: Shape = Shape::new(16, 4096, true);
const BLOCK: u64 = 4096;
const FILES: u16 = 8;
/// Transactions of three blocks each: more than the log holds, so it wraps around.
const CHANGES: u16 = 500;

/// Options to create a file whose mode is 0.
const EMPTY_FILE: OpenOptions = OpenOptions::read_write().create_new(true).mode(0);

fn open(device: Arc<dyn Device>) -> Volume {
    Volume::open_device(device, &untimed()).expect("the volume opens")
}

fn path(file: u16) -> String {
    format!("/{file}")
}

/// Makes a volume with files whose modes are 0.
fn prepare() -> MemDevice {
    let device = Arc::new(SHAPE.make());
    let volume = open(Arc::clone(&device) as Arc<_>);
    (0..FILES).for_each(|file| drop(volume.open_direct(path(file), &EMPTY_FILE).expect("create")));
    volume.close().expect("close");
    device.fork()
}

/// Durably sets the mode of a file in a transaction of its own.
fn set_mode(volume: &Volume, file: u16, mode: u16) {
    let file = volume.direct_file(path(file)).expect("open_file");
    let set = SetAttributes::new().permissions(mode);
    file.inode_ref().set_attributes(&set).expect("set_attributes");
    file.sync_all().expect("sync_all");
}

fn mode(volume: &Volume, file: u16) -> u16 {
    volume.metadata(path(file)).expect("metadata").permissions
}

#[test]
fn a_sync_waits_for_no_checkpoint() {
    let memory = Arc::new(prepare());
    let journal = journal_offset(&memory);
    let device =
        Arc::new(GatedDevice::with_exempt(Arc::clone(&memory) as _, journal..journal + 1024 * BLOCK));
    let volume = open(Arc::clone(&device) as _);
    // In memory, since the gate blocks reads, too.
    (0..FILES).for_each(|file| assert_eq!(mode(&volume, file), 0));
    device.shut();
    let synced = Arc::new(AtomicU16::new(0));
    let thread = {
        let (volume, synced) = (volume.clone(), Arc::clone(&synced));
        std::thread::spawn(move || {
            for change in 1..=CHANGES {
                set_mode(&volume, change % FILES, change);
                synced.store(change, Ordering::Relaxed);
            }
        })
    };
    // More than half of the log, all of which may be checkpointed.
    let deadline = Instant::now() + Duration::from_secs(30);
    while synced.load(Ordering::Relaxed) < 300 {
        if Instant::now() > deadline {
            // Lets the test end.
            device.open();
            panic!("syncs wait for the checkpoint after {synced:?}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    device.wait_for(1);
    // With a full log, syncs wait.
    std::thread::sleep(Duration::from_millis(20));
    assert!(!thread.is_finished());
    device.open();
    thread.join().expect("the syncs");
    volume.close().expect("close");
    assert_clean(&memory, "after the checkpoint");
    let volume = open(memory);
    (0..FILES).for_each(|file| assert_eq!(mode(&volume, file), CHANGES - (CHANGES - file) % FILES));
}

/// A checkpoint round that runs when the volume stops still writes both superblocks in place.
#[test]
fn errors_are_recorded_after_the_round_under_way() {
    let memory = Arc::new(prepare());
    let device = Arc::new(GatedDevice::new(Arc::clone(&memory) as _));
    let volume = open(Arc::clone(&device) as _);
    // Changes the counters of the superblock, so that its block, the first, needs a checkpoint.
    volume.open_direct("/more", &EMPTY_FILE).expect("create");
    device.catch_write_at(0);
    // More than half of the log.
    (1..=200).for_each(|change| set_mode(&volume, change % FILES, change));
    device.wait_for(1);
    volume.stop(&Error::from(Corruption::new("found by a test")));
    let closing = std::thread::spawn(move || drop(volume));
    // Long enough to write the record if closing does not wait for the round.
    std::thread::sleep(Duration::from_millis(200));
    device.open();
    closing.join().expect("closing");
    let superblock = Superblock::parse(&memory.snapshot()[1024..2048]).expect("the superblock");
    assert_eq!(superblock.error_count(), 1);
    let journal = usize::try_from(journal_offset(&memory)).unwrap();
    let journal =
        JournalSuperblock::parse(&memory.snapshot()[journal..][..4096]).expect("the journal's superblock");
    assert_ne!(journal.errno(), 0);
}

#[test]
fn crashes_beside_checkpoints() {
    let base = prepare();
    let journal = journal_offset(&base);
    let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let volume = open(Arc::clone(&device) as Arc<dyn Device>);
    let marks: Vec<usize> = (1..=CHANGES)
        .map(|change| {
            set_mode(&volume, change % FILES, change);
            device.events()
        })
        .collect();
    let moves = |event: &&Event| matches!(event, Event::Write { offset, .. } if *offset == journal);
    assert!(device.log().iter().filter(moves).count() >= 3, "nothing came home");

    let mut count = 0;
    for_each_crash_state(&device, &base, &mut Rng::new(1, 1), |CrashState { epoch, image, what }| {
        count += 1;
        if count % 12 != 0 {
            return;
        }
        let image = Arc::new(image);
        if count % 480 == 0 {
            assert_recovers(&image, &what);
        }
        let durable = u16::try_from(marks.partition_point(|&events| events <= epoch.start)).unwrap();
        let volume = open(image);
        for file in 0..FILES {
            let least = durable - durable.min((durable + FILES - file) % FILES);
            let found = mode(&volume, file);
            assert!(found >= least, "{what}: file {file} has mode {found}, not {least}");
        }
    });
    assert!(count > 2000, "only {count} states");
}
