//! Volumes whose journal is on a device of its own. Faults hit the requests of both devices; if a
//! device is gone, the other one still works.

use std::io::IoSlice;
use std::sync::Arc;

use parext4::mkfs::{ExternalJournal, mkfs_journal_device};
use parext4::{Device, EmptiedLog, MemDevice, MkfsOptions, Result, Volume, mkfs};
use testkit::fault_sweep::Devices;
use testkit::volume::{DirectFiles as _, untimed};

use super::{bytes, commit_often, create, workload};

const MIB: u64 = 8;
const JOURNAL_BLOCKS: u64 = 1100;
const UUID: [u8; 16] = *b"the journal's ID";

/// Returns a device full of old bytes.
fn poisoned(len: u64) -> MemDevice {
    let device = MemDevice::new(len);
    device.write_at(0, &[IoSlice::new(&vec![0xa5; len as usize])]).expect("memory can be written");
    device
}

/// Makes a volume and its journal with blocks of `block_size` bytes, and fills the volume.
fn volume(block_size: u32, fill: impl FnOnce(&Volume) -> Result<()>) -> Devices {
    let journal = Arc::new(poisoned(JOURNAL_BLOCKS * u64::from(block_size)));
    mkfs_journal_device(&*journal, &MkfsOptions::new().block_size(block_size).uuid(UUID)).expect("a journal");
    let volume = poisoned(MIB << 20);
    let external = ExternalJournal { device: Arc::clone(&journal) as _, number: 0 };
    let options = MkfsOptions::new().block_size(block_size).external_journal(external);
    mkfs(&volume, &options).expect("a volume");
    let devices = Devices { volume: Arc::new(volume), journal: Some(journal) };
    let opened = devices.open().expect("the volume opens");
    fill(&opened).expect("the volume is filled");
    opened.close().expect("the volume closes");
    devices
}

fn with_file(block_size: u32, len: usize) -> Devices {
    volume(block_size, |volume| {
        volume.write("/other", bytes(99, 5000))?;
        volume.create_direct("/file")?.write_all_at(&bytes(1, len), 0)
    })
}

/// Returns a volume as a crash left it: with a log to replay, and a removed file that was open.
fn crashed() -> Devices {
    let devices = with_file(1024, 30 << 10);
    let volume = devices.open().expect("the volume opens");
    let make = || {
        let removed = volume.create_direct("/removed")?;
        removed.write_all_at(&bytes(2, 1024), 4096)?;
        volume.create_dir("/dir", 0o755)?;
        volume.write("/dir/new", bytes(4, 3000))?;
        volume.sync()?;
        volume.remove_file("/removed")?;
        volume.sync()?;
        Ok::<_, parext4::Error>(removed)
    };
    let _removed = make().expect("a volume in use");
    devices.fork()
}

workload!(a_journal_on_a_device_of_its_own, with_file(1024, 30 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("overwrite", |_| file.write_all_at(&bytes(2, 8192), 4096))?;
    run.step("extend", |_| file.write_all_at(&bytes(3, 8192), 30 << 10))?;
    run.file_step("sync", "/file", |_| file.sync_all())?;
    let buffered = run.look("open buffered", |_| file.buffered())?;
    run.step("write buffered", |_| buffered.write_all_at(&bytes(4, 9000), 60_000))?;
    run.step("create", |volume| create(volume, "/new").map(drop))?;
    run.sync()?;
    run.step("rename", |volume| volume.rename("/new", "/newer"))?;
    run.step("punch", |_| file.punch_hole(8 << 10..14 << 10))?;
    run.file_step("sync the data", "/file", |_| file.sync_data())?;
    run.step("truncate", |_| file.set_len(10_000))?;
    drop((file, buffered));
    run.step("remove", |volume| volume.remove_file("/file"))?;
    run.sync()
});

workload!(recovery_from_a_journal_device, crashed(), untimed(), |run| {
    run.step("create", |volume| create(volume, "/created").map(drop))?;
    run.sync()
});

workload!(many_commits_on_a_journal_device, with_file(1024, 4096), untimed(), |run| { commit_often(run, 6) });

workload!(emptied_journal_devices, with_file(4096, 8192), untimed(), |run| {
    for (nth, emptied) in
        [EmptiedLog::Kept, EmptiedLog::Discarded, EmptiedLog::Zeroed].into_iter().enumerate()
    {
        let name = format!("/dir-{nth}");
        run.step("make", |volume| volume.create_dir(&name, 0o755).map(drop))?;
        run.durable_step("empty the journal", |volume| volume.empty_journal(emptied))?;
    }
    run.step("write", |volume| volume.direct_file("/file")?.write_all_at(&bytes(2, 4096), 0))?;
    run.sync()
});
