//! Crashes of a volume whose journal is on a device of its own: each device loses writes since its own last flush. And devices
//! that are not the journal of the volume.

use std::io::{self, IoSlice};
use std::process::Command;
use std::sync::{Arc, Mutex};

use parext4::device::forward_device;
use parext4::{Device, Error, MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs, replay_journal};
use parext4_format::features::{Compat, Incompat};
use parext4_format::jbd2::JournalSuperblock;
use parext4_format::superblock::Superblock;

use testkit::rng::Rng;
use testkit::tool;
use testkit::volume::untimed;

const BLOCK: usize = 4096;
const JOURNAL_BLOCKS: u32 = 1200;
const UUID: [u8; 16] = *b"the journal's ID";

/// Makes a volume and its journal device.
fn make() -> [MemDevice; 2] {
    let volume = MemDevice::new(16 << 20);
    let options = MkfsOptions::new().block_size(4096).journal(false).device_is_zero(true);
    mkfs(&volume, &options).unwrap();
    let mut image = volume.snapshot();
    let mut superblock = Superblock::parse(&image[1024..2048]).unwrap();
    superblock.set_compat(superblock.compat() | Compat::HAS_JOURNAL);
    superblock.raw_mut().s_journal_uuid = UUID;
    superblock.encode(&mut image[1024..2048]);
    [MemDevice::from_bytes(image), MemDevice::from_bytes(journal_of(&superblock.uuid()))]
}

/// Returns the contents of a journal device, as mke2fs makes it, that a volume uses.
fn journal_of(user: &[u8; 16]) -> Vec<u8> {
    let mut image = vec![0; JOURNAL_BLOCKS as usize * BLOCK];
    for (at, value) in
        [(0x4, JOURNAL_BLOCKS), (0x18, 2), (0x38, 0xef53), (0x60, Incompat::JOURNAL_DEV.bits())]
    {
        image[1024 + at..][..4].copy_from_slice(&value.to_le_bytes());
    }
    image[1024 + 0x68..][..16].copy_from_slice(&UUID);
    JournalSuperblock::new(4096, JOURNAL_BLOCKS, 2, &UUID).encode(&mut image[BLOCK..]);
    image[BLOCK + 0x100..][..16].copy_from_slice(user);
    image
}

fn options(journal: &Arc<dyn Device>) -> VolumeOptions {
    untimed().journal_device(Arc::clone(journal))
}

fn open(devices: &[Arc<dyn Device>; 2]) -> Volume {
    Volume::open_device(Arc::clone(&devices[0]), &options(&devices[1])).expect("the volume opens")
}

/// Writes and flushes of both devices, in order. `None` is a flush.
type Log = Arc<Mutex<Vec<(usize, Option<(u64, Vec<u8>)>)>>>;

/// One of two devices that are recorded together.
#[derive(Debug)]
struct Part {
    inner: MemDevice,
    nth: usize,
    log: Log,
}

impl Device for Part {
    forward_device!(this => this.inner; size, sector_size, read_only, read_at);

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        // Under the lock, so that the order of the log is the order of the device.
        let mut log = self.log.lock().unwrap();
        let bytes = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        log.push((self.nth, Some((offset, bytes))));
        self.inner.write_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.log.lock().unwrap().push((self.nth, None));
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Returns both devices after a crash that left the first `end` events, of which each device lost some since its last flush.
fn crash(base: &[MemDevice; 2], log: &Log, end: usize, rng: &mut Rng) -> [MemDevice; 2] {
    let log = log.lock().unwrap();
    let state = base.each_ref().map(MemDevice::fork);
    let last_flush = |device| log[..end].iter().rposition(|(nth, event)| *nth == device && event.is_none());
    let durable = [0, 1].map(|device| last_flush(device).unwrap_or(0));
    let keep = [0, 50, 100][usize::try_from(rng.below(3)).unwrap()];
    for (index, (device, event)) in log[..end].iter().enumerate() {
        let Some((offset, bytes)) = event else { continue };
        if index < durable[*device] || rng.chance(keep) {
            state[*device].write_at(*offset, &[IoSlice::new(bytes)]).unwrap();
        }
    }
    state
}

fn assert_clean(devices: &[MemDevice; 2], what: &str) {
    let files = [0, 1].map(|_| tempfile::NamedTempFile::new().unwrap());
    devices.iter().zip(&files).for_each(|(device, file)| device.save(file.path()).unwrap());
    let mut command = Command::new("e2fsck");
    let Some(output) = tool(command.arg("-fn").arg("-j").arg(files[1].path()).arg(files[0].path())) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0), "{what}: {}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn crashes_with_two_devices() {
    let base = make();
    let log = Log::default();
    let part = |nth: usize| {
        Arc::new(Part { inner: base[nth].fork(), nth, log: Arc::clone(&log) }) as Arc<dyn Device>
    };
    let devices = [part(0), part(1)];
    let volume = open(&devices);
    // The number of events after which each round was durable.
    let mut synced = Vec::new();
    for round in 0..12_usize {
        // Some transactions convert blocks, so that data and metadata are on different devices.
        volume.write(format!("/file{round}"), vec![round as u8 + 1; 20_000]).unwrap();
        volume.mkdir(format!("/dir{round}"), 0o755).unwrap();
        if round % 5 == 4 {
            volume.remove_file(format!("/file{}", round - 2)).unwrap();
        }
        volume.sync().unwrap();
        synced.push(log.lock().unwrap().len());
    }
    volume.close().unwrap();
    let events = log.lock().unwrap().len();
    let mut rng = Rng::new(1, 1);
    let step = if testkit::settings::all() { 1 } else { 3 };
    for (count, end) in (0..=events).step_by(step).enumerate() {
        let what = format!("a crash after {end} events");
        let state = crash(&base, &log, end, &mut rng).map(Arc::new);
        let devices = state.each_ref().map(|device| Arc::clone(device) as Arc<dyn Device>);
        let volume = open(&devices);
        for (round, _) in synced.iter().enumerate().filter(|(_, at)| **at <= end) {
            assert!(volume.exists(format!("/dir{round}")).unwrap(), "{what}: /dir{round} is lost");
            match volume.read(format!("/file{round}")) {
                Ok(found) => {
                    assert!(found == vec![round as u8 + 1; 20_000], "{what}: /file{round} has other contents")
                }
                Err(_) => assert!(matches!(round, 2 | 7), "{what}: /file{round} is lost"),
            }
        }
        volume.close().unwrap();
        drop(devices);
        if count % 16 == 0 {
            assert_clean(&state.map(|device| device.fork()), &what);
        }
    }
}

#[test]
fn only_the_journal_of_the_volume_is_used() {
    let [volume, journal] = make().map(|device| Arc::new(device) as Arc<dyn Device>);
    let error = |options: &VolumeOptions| match Volume::open_device(Arc::clone(&volume), options) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("the volume opens"),
    };
    let missing = error(&untimed());
    assert!(missing.contains("74686520-6a6f-7572-6e61-6c2773204944"), "{missing}");
    assert!(missing.contains("--journal") && missing.contains("journal_path="), "{missing}");
    assert!(replay_journal(Arc::clone(&volume)).is_ok(), "there is nothing to replay");
    // A clean volume is read without its journal.
    let read_only = Volume::open_device(Arc::clone(&volume), &VolumeOptions::new().read_only(true)).unwrap();
    assert!(read_only.exists("/").unwrap());
    drop(read_only);

    let user = |user: &[u8; 16]| MemDevice::from_bytes(journal_of(user));
    let mut other = journal_of(&[1; 16]);
    other[1024 + 0x68] ^= 1;
    for (device, expected) in [
        (user(&[1; 16]), "not the journal of the volume"),
        (MemDevice::from_bytes(other), "its UUID is"),
        (MemDevice::new(1 << 20), "no superblock"),
        (make()[0].fork(), "a file system, not a journal"),
    ] {
        let found = error(&untimed().journal_device(Arc::new(device) as Arc<dyn Device>));
        assert!(found.contains(expected), "{expected}: {found}");
    }
    let inside = Arc::new(MemDevice::new(16 << 20));
    mkfs(&*inside, &MkfsOptions::new()).unwrap();
    assert!(matches!(Volume::open_device(inside, &options(&journal)), Err(Error::Invalid(_))));

    // After a crash, the journal is needed to read, too.
    let opened = open(&[Arc::clone(&volume), Arc::clone(&journal)]);
    opened.mkdir("/dir", 0o755).unwrap();
    opened.abort().unwrap();
    drop(opened);
    assert!(error(&VolumeOptions::new().read_only(true)).contains("--journal"));
    assert!(replay_journal(Arc::clone(&volume)).is_err());
    let with_journal = options(&journal).read_only(true);
    assert!(Volume::open_device(Arc::clone(&volume), &with_journal).unwrap().exists("/dir").unwrap());
    assert!(options(&journal).replay_journal(Arc::clone(&volume)).unwrap().transactions > 0);
    assert!(open(&[volume, journal]).exists("/dir").unwrap());
}
