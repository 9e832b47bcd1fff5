//! Crashes while a volume recovers, and volumes whose superblock and log disagree whether recovery
//! is needed.
//!
//! Every transaction here takes three blocks of the log: a descriptor, the block of one inode, a
//! commit block. So each new transaction ends where an old one begins, and recovery replays
//! whatever it takes for the successor.

use std::io::IoSlice;
use std::process::Command;
use std::sync::Arc;

use parext4::device::RecordingDevice;
use parext4::{Device, MemDevice, SetAttributes, Volume, replay_in_memory, replay_journal};
use parext4_format::features::Incompat;
use parext4_format::jbd2::JournalSuperblock;
use parext4_format::superblock::Superblock;

use testkit::crash_states::{CrashState, for_each_crash_state};
use testkit::rng::Rng;
use testkit::volume::{DirectFiles as _, Shape, journal_offset, untimed};
use testkit::{Image, tool};

const FILE: &str = "/file";
/// Transactions in the log that change the file, and older ones, which change inodes in every other
/// block of the inode table.
const OLD: u16 = 6;
const OTHERS: u16 = 4;
/// Inodes in a block.
const INODES: u16 = 16;
/// The modes of the file that old transactions set, and the mode that a transaction after the
/// recovery sets.
const OLD_MODE: u16 = 0o600;
const NEW_MODE: u16 = 0o777;

fn open(device: &Arc<MemDevice>) -> Volume {
    Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &untimed()).expect("the volume opens")
}

/// Sets the mode of the file, in a transaction of its own.
fn set_mode(volume: &Volume, mode: u16) {
    set_mode_of(volume, FILE, mode);
}

fn set_mode_of(volume: &Volume, path: &str, mode: u16) {
    let set = SetAttributes::new().permissions(mode);
    volume.direct_file(path).unwrap().inode_ref().set_attributes(&set).expect("set_attributes");
    volume.sync().expect("sync");
}

fn mode(volume: &Volume) -> u16 {
    volume.metadata(FILE).unwrap().permissions
}

/// Makes a volume that crashed with [`OTHERS`] and [`OLD`] transactions in its log.
fn crashed() -> MemDevice {
    let device = Arc::new(Shape::new(16, 4096, true).make());
    let volume = open(&device);
    volume.create_direct(FILE).expect("create");
    let other = |nth| format!("/other{nth}");
    (0..2 * OTHERS * INODES).for_each(|nth| drop(volume.create_direct(other(nth)).expect("create")));
    volume.close().expect("close");
    let volume = open(&device);
    (0..OTHERS).for_each(|nth| set_mode_of(&volume, &other((2 * nth + 2) * INODES - 1), OLD_MODE));
    (0..OLD).for_each(|nth| set_mode(&volume, OLD_MODE + nth));
    device.fork()
}

/// Returns the volume without the flag that asks for recovery.
fn without_flag(device: &MemDevice) -> MemDevice {
    let mut image = device.snapshot();
    let mut superblock = Superblock::parse(&image[1024..2048]).unwrap();
    superblock.set_incompat(superblock.incompat() - Incompat::RECOVER);
    superblock.encode(&mut image[1024..2048]);
    MemDevice::from_bytes(image)
}

/// Returns true if the superblock asks for recovery or the log is empty. In any other state e2fsck
/// asks what to do.
fn flag_and_log_agree(device: &MemDevice) -> bool {
    let image = device.snapshot();
    let superblock = Superblock::parse(&image[1024..2048]).unwrap();
    let journal = &image[usize::try_from(journal_offset(device)).unwrap()..];
    superblock.incompat().contains(Incompat::RECOVER)
        || JournalSuperblock::parse(journal).unwrap().start() == 0
}

/// Opens a crash state, syncs a change, runs [`for_each_crash_state`], and returns the contents of
/// the device.
fn change_and_crash(image: &MemDevice) -> MemDevice {
    let device = Arc::new(image.fork());
    let volume = open(&device);
    set_mode(&volume, NEW_MODE);
    device.fork()
}

/// Asserts that parext4 finds the synced change, and with `ask_peers` e2fsck and the kernel, too.
fn assert_changed(image: &MemDevice, ask_peers: bool, what: &str) {
    let found = mode(&open(&Arc::new(image.fork())));
    assert_eq!(found, NEW_MODE, "{what}: {found:o} was recovered");
    if ask_peers {
        assert_changed_for_e2fsck(image, what);
        assert_changed_for_kernel(image, what);
    }
}

fn assert_changed_for_e2fsck(image: &MemDevice, what: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    image.save(file.path()).unwrap();
    if tool(Command::new("e2fsck").arg("-fy").arg(file.path())).is_none() {
        return;
    }
    let Some(stat) = tool(Command::new("debugfs").args(["-R", "stat /file"]).arg(file.path())) else {
        return;
    };
    let stat = String::from_utf8_lossy(&stat.stdout).into_owned();
    assert!(stat.contains("Mode:  0777"), "{what}: e2fsck recovers {stat}");
}

fn assert_changed_for_kernel(image: &MemDevice, what: &str) {
    let copy = Image::of(image);
    copy.with_kernel(|root| {
        use std::os::unix::fs::PermissionsExt;
        let found = std::fs::metadata(root.join("file")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, u32::from(NEW_MODE), "{what}: the kernel recovers {found:o}");
    });
}

/// Checks every crash state while `work` recovers the volume: later recoveries find a change synced
/// after that recovery or after the next one.
fn check_crashes(base: &MemDevice, work: impl FnOnce(&Arc<RecordingDevice>)) {
    let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    work(&device);
    let mut count = 0;
    for_each_crash_state(&device, base, &mut Rng::new(1, 1), |CrashState { image, what, .. }| {
        count += 1;
        assert!(flag_and_log_agree(&image), "{what}: there is a log, and no flag");
        assert_changed(&change_and_crash(&image), count % 24 == 1, &what);
    });
    assert!(count > 10, "only {count} states");
}

/// The journal is emptied before the superblock says that no recovery is needed.
#[test]
fn crashes_while_the_journal_is_replayed() {
    check_crashes(&crashed(), |device| {
        let done = replay_journal(Arc::clone(device) as Arc<dyn Device>).unwrap();
        assert_eq!(done.transactions, u32::from(OTHERS + OLD));
        assert_eq!(done.blocks, u64::from(OTHERS + 1), "each block is written once");
    });
}

#[test]
fn crashes_while_a_volume_opens_and_closes() {
    check_crashes(&crashed(), |device| {
        let volume = Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &untimed()).expect("open");
        assert_eq!(mode(&volume), OLD_MODE + OLD - 1);
        volume.close().expect("close");
    });
}

/// A log is old if the superblock does not ask for recovery. None of it may be replayed, neither
/// after the transactions that follow, nor if the crash comes before the log is emptied.
#[test]
fn an_old_log_is_not_replayed() {
    let base = without_flag(&crashed());
    let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).expect("open");
    let before = mode(&volume);
    set_mode(&volume, NEW_MODE);
    let synced = device.events();
    volume.close().expect("close");
    let mut count = 0;
    for_each_crash_state(&device, &base, &mut Rng::new(1, 1), |CrashState { epoch, image, what }| {
        count += 1;
        if epoch.start >= synced {
            assert_changed(&image, count % 24 == 1, &what);
        }
        let found = mode(&open(&Arc::new(image.fork())));
        assert!(found == before || found == NEW_MODE, "{what}: {found:o} is from the old log");
        assert_changed(&change_and_crash(&image), false, &what);
    });
    // e2fsck and the kernel agree once the log is in use again.
    assert_changed(&change_and_crash(&base), true, "the old log");
}

/// A volume that was closed does not need its journal, so it is checked and replayed like a volume
/// without one.
#[test]
fn a_journal_that_needs_no_recovery_is_not_read_by_a_replay() {
    let device = Arc::new(Shape::new(16, 4096, true).make());
    let mut block = vec![0; 4096];
    block[..8].fill(0xff);
    device.write_at(journal_offset(&device), &[IoSlice::new(&block)]).unwrap();
    let device: Arc<dyn Device> = device;
    assert_eq!(replay_journal(Arc::clone(&device)).unwrap().transactions, 0);
    let (view, replayed) = replay_in_memory(Arc::clone(&device)).unwrap();
    assert!(Arc::ptr_eq(&view, &device) && replayed.transactions == 0);
}

/// Transactions that were synced after the damaged one would be lost.
#[test]
fn a_damaged_commit_block_is_refused() {
    for transaction in [0, usize::from(OLD) / 2, usize::from(OLD) - 1] {
        let mut image = crashed().snapshot();
        let log = usize::try_from(journal_offset(&MemDevice::from_bytes(image.clone()))).unwrap();
        // The time of the commit, in nanoseconds.
        image[log + (1 + 3 * transaction + 2) * 4096 + 0x38] ^= 1;
        let device: Arc<dyn Device> = Arc::new(MemDevice::from_bytes(image));
        let refused = replay_journal(Arc::clone(&device)).unwrap_err();
        assert!(refused.to_string().contains("bad checksum"), "{refused}");
        assert!(replay_in_memory(device).is_err());
    }
}
