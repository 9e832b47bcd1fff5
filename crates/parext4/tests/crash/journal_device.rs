//! Crashes of a volume whose journal is on a device of its own: each device loses writes since its
//! own last flush. And devices that are not the journal of the volume.

use std::io::{self, IoSlice};
use std::process::Command;
use std::sync::{Arc, Mutex};

use parext4::device::forward_device;
use parext4::mkfs::{ExternalJournal, mkfs_journal_device};
use parext4::{Device, Error, MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs, replay_journal};
use parext4_format::jbd2::JournalSuperblock;

use testkit::rng::Rng;
use testkit::tool;
use testkit::volume::untimed;

const JOURNAL_BLOCKS: u64 = 1200;
const UUID: [u8; 16] = *b"the journal's ID";

/// A format of a volume and its journal.
#[derive(Clone, Copy, Debug)]
struct Format {
    block_size: u32,
    features: &'static str,
}

const DEFAULT: Format = Format { block_size: 4096, features: "" };
/// The journal's superblock is in block 1 or 2, tags have 32 or 64 bits, and there are checksums of
/// each kind or none.
const FORMATS: [Format; 4] = [
    DEFAULT,
    Format { block_size: 1024, features: "^64bit,^metadata_csum" },
    Format { block_size: 2048, features: "^extent,^64bit" },
    Format { block_size: 1024, features: "orphan_file,^metadata_csum,uninit_bg" },
];

impl Format {
    fn options(self) -> MkfsOptions {
        MkfsOptions::new().block_size(self.block_size).features(self.features).expect("features")
    }

    /// Makes a journal on a device, whose old contents it overwrites.
    fn make_journal(self, device: &MemDevice) {
        mkfs_journal_device(device, &self.options().uuid(UUID)).unwrap();
    }

    /// Makes a volume whose journal is on the device `journal`.
    fn make_volume(self, journal: &Arc<MemDevice>) -> MemDevice {
        let volume = MemDevice::new(16 << 20);
        let journal = ExternalJournal { device: Arc::clone(journal) as _, number: 0 };
        mkfs(&volume, &self.options().device_is_zero(true).external_journal(journal)).unwrap();
        volume
    }

    /// Makes a volume and its journal device.
    fn make(self) -> [MemDevice; 2] {
        let journal = Arc::new(MemDevice::new(JOURNAL_BLOCKS * u64::from(self.block_size)));
        self.make_journal(&journal);
        [self.make_volume(&journal), journal.fork()]
    }

    /// Returns the byte offset of the journal's superblock on its device.
    fn superblock(self) -> usize {
        self.block_size.max(2048) as usize
    }

    /// Changes the journal's superblock.
    fn change(self, journal: &MemDevice, change: impl FnOnce(&mut JournalSuperblock)) -> MemDevice {
        let mut bytes = journal.snapshot();
        let block = &mut bytes[self.superblock()..][..1024];
        let mut superblock = JournalSuperblock::parse(block).unwrap();
        change(&mut superblock);
        superblock.encode(block);
        MemDevice::from_bytes(bytes)
    }
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

/// Returns both devices after a crash that left the first `end` events, of which each device lost
/// some since its last flush.
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
    for (nth, format) in FORMATS.into_iter().enumerate() {
        // The order of writes and flushes is the same in all formats, so one of them has most of
        // the states.
        let step = if testkit::settings::all() { 1 } else { [3, 11][nth.min(1)] };
        crashes_of(format, step);
    }
}

/// Records some rounds of changes, and checks the state after every `step` events.
fn crashes_of(format: Format, step: usize) {
    let base = format.make();
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
        volume.create_dir(format!("/dir{round}"), 0o755).unwrap();
        if round % 5 == 4 {
            volume.remove_file(format!("/file{}", round - 2)).unwrap();
        }
        volume.sync().unwrap();
        synced.push(log.lock().unwrap().len());
    }
    volume.close().unwrap();
    let events = log.lock().unwrap().len();
    let mut rng = Rng::new(1, 1);
    for (count, end) in (0..=events).step_by(step).enumerate() {
        let what = format!("{format:?}: a crash after {end} events");
        let state = crash(&base, &log, end, &mut rng).map(Arc::new);
        let devices = state.each_ref().map(|device| Arc::clone(device) as Arc<dyn Device>);
        let volume = open(&devices);
        for (round, _) in synced.iter().enumerate().filter(|(_, at)| **at <= end) {
            assert!(volume.exists(format!("/dir{round}")).unwrap(), "{what}: /dir{round} is lost");
            match volume.read(format!("/file{round}")) {
                Ok(found) => {
                    assert!(
                        found == vec![round as u8 + 1; 20_000],
                        "{what}: /file{round} has other contents"
                    );
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

/// Makes a directory in each of some transactions, `/dir0` and so on, and stops without a
/// checkpoint.
fn crash_after(devices: [MemDevice; 2], dirs: u32) -> [Arc<MemDevice>; 2] {
    let devices = devices.map(Arc::new);
    let volume = open(&devices.each_ref().map(|device| Arc::clone(device) as _));
    for nth in 0..dirs {
        volume.create_dir(format!("/dir{nth}"), 0o755).unwrap();
        volume.sync().unwrap();
    }
    volume.abort().unwrap();
    devices
}

/// Returns the error of an open of a volume.
fn error(volume: &Arc<dyn Device>, options: &VolumeOptions) -> String {
    match Volume::open_device(Arc::clone(volume), options) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("the volume opens"),
    }
}

#[test]
fn only_the_journal_of_the_volume_is_used() {
    let [volume, journal] = DEFAULT.make();
    let cut = MemDevice::from_bytes(journal.snapshot()[..1 << 20].to_vec());
    let of = |users: &[[u8; 16]]| DEFAULT.change(&journal, |superblock| superblock.set_users(users));
    let user = journal_superblock(&journal).users().next().unwrap();
    let mut other = journal.snapshot();
    other[1024 + 0x68] ^= 1;
    let small_blocks = Format { block_size: 1024, ..DEFAULT };
    let volume = Arc::new(volume) as Arc<dyn Device>;
    for (device, expected) in [
        (of(&[[1; 16]]), "not the journal of the volume"),
        (of(&[]), "not the journal of the volume"),
        (of(&[user, [1; 16]]), "a journal that 2 volumes share"),
        (MemDevice::from_bytes(other), "its UUID is"),
        (MemDevice::new(1 << 20), "no superblock"),
        (MemDevice::new(1024), "too small"),
        (cut, "1200 blocks, but it has only 1048576 bytes"),
        (small_blocks.make()[1].fork(), "blocks of 1024 bytes, the volume's have 4096"),
        (DEFAULT.make()[0].fork(), "a file system, not a journal"),
    ] {
        let found = error(&volume, &untimed().journal_device(Arc::new(device) as Arc<dyn Device>));
        assert!(found.contains(expected), "{expected}: {found}");
    }
    let inside = Arc::new(MemDevice::new(16 << 20));
    mkfs(&*inside, &MkfsOptions::new()).unwrap();
    let journal = Arc::new(journal) as Arc<dyn Device>;
    assert!(matches!(Volume::open_device(inside, &options(&journal)), Err(Error::Invalid(_))));
}

fn journal_superblock(journal: &MemDevice) -> JournalSuperblock {
    JournalSuperblock::parse(&journal.snapshot()[DEFAULT.superblock()..][..1024]).unwrap()
}

/// The identifier of the journals that the tests make.
const JOURNAL: &str = "74686520-6a6f-7572-6e61-6c2773204944";

/// A clean volume is read without its journal; after a crash, the journal is needed to read, too.
#[test]
fn a_volume_whose_journal_is_missing_is_read_if_it_is_clean() {
    let [volume, journal] = DEFAULT.make().map(|device| Arc::new(device) as Arc<dyn Device>);
    let missing = error(&volume, &untimed());
    assert!(missing.contains(JOURNAL), "{missing}");
    assert!(!missing.contains("--journal"), "an option of the command: {missing}");
    assert!(replay_journal(Arc::clone(&volume)).is_ok(), "there is nothing to replay");
    let read_only = Volume::open_device(Arc::clone(&volume), &VolumeOptions::new().read_only(true)).unwrap();
    assert!(read_only.exists("/").unwrap());
    drop(read_only);

    let opened = open(&[Arc::clone(&volume), Arc::clone(&journal)]);
    opened.create_dir("/dir", 0o755).unwrap();
    opened.abort().unwrap();
    drop(opened);
    assert!(error(&volume, &VolumeOptions::new().read_only(true)).contains(JOURNAL));
    assert!(replay_journal(Arc::clone(&volume)).is_err());
    let with_journal = options(&journal).read_only(true);
    assert!(Volume::open_device(Arc::clone(&volume), &with_journal).unwrap().exists("/dir").unwrap());
    assert!(options(&journal).replay_journal(Arc::clone(&volume)).unwrap().transactions > 0);
    assert!(open(&[volume, journal]).exists("/dir").unwrap());
}

/// The device was the journal of another volume, whose transactions have the numbers that the next
/// ones of the new volume get.
#[test]
fn a_journal_that_is_made_again_replays_no_transaction_of_the_earlier_volume() {
    for format in FORMATS {
        let [_, journal] = crash_after(format.make(), 9);
        format.make_journal(&journal);
        let volume = format.make_volume(&journal);
        let state = crash_after([volume, journal.fork()], 3);
        let volume = open(&state.each_ref().map(|device| Arc::clone(device) as _));
        for nth in 0..9 {
            assert_eq!(volume.exists(format!("/dir{nth}")).unwrap(), nth < 3, "{format:?}: /dir{nth}");
        }
        volume.close().unwrap();
        assert_clean(&state.map(|device| device.fork()), &format!("{format:?}"));
    }
}

/// The log of another volume lies after the superblock of the volume's own journal. With checksums,
/// whose seed is the UUID of the journal, no transaction of it is replayed.
#[test]
fn transactions_of_another_volume_are_not_replayed() {
    let [volume, journal] = crash_after(DEFAULT.make(), 3);
    let [_, other] = DEFAULT.make();
    // The UUID in the superblock on the device and the UUID of the log are different fields.
    let other = DEFAULT.change(&other, |superblock| superblock.set_uuid(&[9; 16]));
    let another = DEFAULT.make()[0].fork();
    let user = superblock_uuid(&another);
    let other = DEFAULT.change(&other, |superblock| superblock.set_users(&[user]));
    let [_, other] = crash_after([another, other], 9);
    let log = DEFAULT.superblock() + DEFAULT.block_size as usize;
    let mut mixed = journal.snapshot()[..log].to_vec();
    mixed.extend_from_slice(&other.snapshot()[log..]);
    let state = [volume.fork(), MemDevice::from_bytes(mixed)].map(Arc::new);
    match Volume::open_device(
        Arc::clone(&state[0]) as _,
        &options(&(Arc::clone(&state[1]) as Arc<dyn Device>)),
    ) {
        Ok(volume) => {
            assert!(!volume.exists("/dir4").unwrap(), "a transaction of the other volume was replayed");
            volume.close().unwrap();
            assert_clean(&state.map(|device| device.fork()), "the log of another volume");
        }
        Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{error}"),
    }
}

fn superblock_uuid(volume: &MemDevice) -> [u8; 16] {
    volume.snapshot()[1024 + 0x68..][..16].try_into().unwrap()
}

/// Arbitrary bytes in the superblocks and in the log: the volume opens or not, and is used, without
/// a panic.
#[test]
fn a_damaged_journal_device_causes_no_panic() {
    for (format, seed) in FORMATS.into_iter().zip(1..) {
        let state = crash_after(format.make(), 5);
        let (volume, journal) = (state[0].fork(), state[1].snapshot());
        let superblock = format.superblock();
        for round in 0..60 {
            let mut rng = Rng::new(seed, round);
            let mut bytes = journal.clone();
            let block = format.block_size as usize;
            for _ in 0..=rng.below(3) {
                // The superblock of the device, that of the journal, or one of the first blocks of
                // the log.
                let (start, len) = [(1024, 0x200), (superblock, 0x110), (superblock + block, 12 * block)]
                    [usize::try_from(rng.below(3)).unwrap()];
                let at = start + usize::try_from(rng.below(len as u64 / 4)).unwrap() * 4;
                let value = match rng.below(4) {
                    0 => u32::MAX,
                    1 => u32::try_from(rng.below(1 << 32)).unwrap(),
                    _ => u32::try_from(rng.below(1300)).unwrap(),
                };
                bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
            }
            if rng.chance(50) {
                // The damage is covered by the checksum.
                let block = &mut bytes[superblock..][..1024];
                if let Ok(sealed) = JournalSuperblock::parse(block) {
                    sealed.encode(block);
                }
            }
            for read_only in [true, false] {
                let journal = Arc::new(MemDevice::from_bytes(bytes.clone())) as Arc<dyn Device>;
                let device = Arc::new(volume.fork());
                let opened = Volume::open_device(device, &options(&journal).read_only(read_only));
                let Ok(opened) = opened else { continue };
                let _ = opened.write("/new", [1; 5000]).and_then(|()| opened.sync());
                let _ = opened.close();
            }
        }
    }
}
