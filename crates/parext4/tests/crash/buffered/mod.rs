//! Crashes while files are written through the page cache and by direct I/O, truncated, and
//! collapsed and extended, while background threads write back and read ahead. The device was full
//! of stale bytes. Whatever is lost, synced data is whole, every size is one that the file had, and
//! reads return only written data and zeros.
//!
//! Run with `cargo test -p parext4 --profile stress --test crash buffered`. `PAREXT4_STRESS_ALL=1`
//! has e2fsck check every state, runs more operations and tries more states of each.

mod history;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parext4::device::RecordingDevice;
use parext4::{Device, DirectFile, File, MemDevice, Volume};

use history::{History, contents};
use testkit::crash_states::{CrashState, for_each_crash_state};
use testkit::ops::file_ops::CRASHES;
use testkit::ops::{Content, FileHandles, FileOp, Outcome, Shape as FileShape, Way};
use testkit::rng::Rng;
use testkit::sector::{SECTOR, Stamp};
use testkit::settings;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, assert_recovers, untimed};

/// Number of files. Each has a thread that changes it and one that reads it.
const FILES: u32 = 2;
/// e2fsck checks one of this many consecutive crash states.
const SAMPLE: usize = 40;

fn path(file: u32) -> String {
    format!("/file-{file}")
}

/// A file that one thread changes, and the history that the thread records.
struct Driven<'a> {
    device: &'a RecordingDevice,
    file: u32,
    on: FileHandles,
    history: History,
    /// Bytes in a block.
    block: u64,
}

impl Driven<'_> {
    fn run(&mut self, rng: &mut Rng, operations: u32) {
        for _ in 0..operations {
            let shape = FileShape { size: self.size(), block: self.block };
            self.step(CRASHES.random(rng, &shape));
            // Lets the background threads run.
            if rng.chance(30) {
                std::thread::sleep(Duration::from_micros(rng.below(3000)));
            }
        }
        self.step(FileOp::SyncAll { way: Way::Buffered });
    }

    fn size(&self) -> u64 {
        self.history.size() * SECTOR as u64
    }

    fn step(&mut self, op: FileOp) {
        let stamp = Stamp { file: self.file, writer: 0, sequence: self.history.next(), origin: 0 };
        let before = self.size();
        self.history.begin(op, self.device.events());
        let outcome = self.on.run(op, Content::Stamp(stamp)).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        self.history.end(op, self.device.events());
        if let Outcome::Appended(at) = outcome {
            assert_eq!(at, before, "where an append went");
        }
        assert_eq!(self.on.direct.size(), self.size(), "the size after {op:?}");
    }

    /// Compares the file with its history.
    fn check(&self) {
        let seen = whole(&self.on.direct, self.file).unwrap();
        assert_eq!(seen, self.history.contents(), "file {}", self.file);
    }
}

/// Reads the file repeatedly from its start, which causes read-ahead.
fn read_on(buffered: &File, file: u32, rng: &mut Rng, done: &AtomicBool) {
    let mut offset = 0;
    while !done.load(Ordering::Relaxed) {
        let mut bytes = vec![0; usize::try_from(rng.log_uniform(64)).unwrap() * SECTOR];
        let count = buffered.read_at(&mut bytes, offset).expect("read_at");
        contents(&bytes[..count], file).expect("a read during changes");
        offset = if count < bytes.len() { 0 } else { offset + count as u64 };
        if rng.chance(20) {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

fn whole(file: &DirectFile, number: u32) -> Result<Vec<history::Content>, String> {
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap()];
    file.read_at(&mut bytes, 0).map_err(|e| e.to_string())?;
    contents(&bytes, number)
}

fn handles(volume: &Volume, file: u32) -> FileHandles {
    FileHandles::new(volume, volume.direct_file(path(file)).expect("open_file")).expect("the handles")
}

/// Makes a device with a volume of empty files.
fn prepare(shape: Shape) -> MemDevice {
    let device = Arc::new(shape.make_poisoned());
    let volume = Volume::open_device(Arc::clone(&device) as Arc<_>, &untimed()).expect("open");
    (0..FILES).for_each(|file| drop(volume.create_direct(path(file)).expect("create")));
    volume.close().expect("close");
    device.fork()
}

/// Records a run. Returns the histories of its files.
fn record(device: &Arc<RecordingDevice>, block_size: u32, seed: u64) -> Vec<History> {
    // A cache smaller than the files, and a short write-back interval.
    let write_back_interval = Some(Duration::from_millis(2));
    let options = untimed().cache_bytes(256 << 10).write_back_interval(write_back_interval);
    let volume = Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &options).expect("open");
    let operations = if settings::all() { 250 } else { 70 };
    let block = u64::from(block_size);
    let done = AtomicBool::new(false);
    let histories = std::thread::scope(|scope| {
        let drive = |file: u32| {
            let (done, on) = (&done, handles(&volume, file));
            let reader = on.buffered.clone();
            scope.spawn(move || read_on(&reader, file, &mut Rng::new(seed, 200 + u64::from(file)), done));
            scope.spawn(move || {
                let mut driven = Driven { device, file, on, history: History::new(), block };
                driven.run(&mut Rng::new(seed, 100 + u64::from(file)), operations);
                driven
            })
        };
        let drivers: Vec<_> = (0..FILES).map(drive).collect();
        let ended: Vec<_> = drivers.into_iter().map(|driver| driver.join()).collect();
        done.store(true, Ordering::Relaxed);
        let driven = ended.into_iter().map(|ended| ended.expect("a thread that changes a file"));
        driven.inspect(Driven::check).map(|driven| driven.history).collect()
    });
    volume.close().expect("close");
    histories
}

fn check_file(
    file: &DirectFile,
    number: u32,
    history: &History,
    epoch: &std::ops::Range<usize>,
) -> Result<(), String> {
    history.check(&whole(file, number)?, epoch.start, epoch.end)?;
    // Past the end there are only zeros, too.
    let size = file.size();
    file.set_len(CRASHES.max_size.max(size) + 8192).map_err(|e| e.to_string())?;
    let behind = &whole(file, number)?[usize::try_from(size).unwrap() / SECTOR..];
    let rubbish = behind.iter().position(Option::is_some);
    rubbish.map_or(Ok(()), |at| Err(format!("data {at} sectors past the end")))
}

fn check_image(
    image: &Arc<MemDevice>,
    histories: &[History],
    crash: (&std::ops::Range<usize>, &str),
    fsck: bool,
) {
    let (epoch, what) = crash;
    if fsck {
        assert_recovers(image, what);
    }
    let volume = Volume::open_device(Arc::clone(image) as Arc<dyn Device>, &untimed());
    let volume = volume.unwrap_or_else(|e| panic!("{what}: {e}"));
    for (number, history) in (0..).zip(histories) {
        let file = volume.direct_file(path(number)).unwrap_or_else(|e| panic!("{what}: {e}"));
        check_file(&file, number, history, epoch).unwrap_or_else(|e| panic!("{what}: file {number}: {e}"));
    }
    volume.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    if fsck {
        assert_clean(image, what);
    }
}

fn crash(name: &str, shape: Shape) {
    let seed = settings::seed(name);
    let base = prepare(shape);
    let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let histories = record(&device, shape.block_size, seed);
    let mut count = 0;
    for_each_crash_state(&device, &base, &mut Rng::new(seed, 1), |CrashState { epoch, image, what }| {
        count += 1;
        let what = format!("seed {seed}, {what}");
        check_image(&Arc::new(image), &histories, (&epoch, &what), count % SAMPLE == 0 || settings::all());
    });
    eprintln!("{name}: {} events, {count} crashes", device.events());
}

#[test]
fn crashes_1k() {
    crash("crashes_1k", Shape::new(10, 1024, true));
}

#[test]
fn crashes_2k() {
    crash("crashes_2k", Shape::new(12, 2048, true));
}

#[test]
fn crashes_4k() {
    crash("crashes_4k", Shape::new(16, 4096, true));
}

#[test]
fn crashes_64k() {
    crash("crashes_64k", Shape::new(128, 65536, true));
}
