//! Crashes while threads and queues write in parallel: into preallocated blocks, into holes, and at
//! the end of a file. The device was full of stale bytes. Whatever is lost, synced data is whole,
//! and reads return only written data and zeros.
//!
//! Run with `cargo test -p parext4 --profile stress --test crash parallel`; see `sequence.rs` for
//! the environment.

use std::sync::Arc;
use std::sync::Mutex;

use parext4::device::{AlignedBuf, RecordingDevice};
use parext4::{
    Completion, Device, DirectFile, File, FileSize, IoFlags, IoQueue, IoRequest, MemDevice, ResearchOptions,
    SplitAt, Volume,
};

use testkit::crash_states::{CrashState, for_each_crash_state};
use testkit::history::Clock;
use testkit::rng::Rng;
use testkit::sector::{SECTOR, Seen, Stamp, fill, fill_append, identify, identify_all};
use testkit::settings;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, assert_recovers, untimed};

/// e2fsck checks one of this many consecutive crash states.
const SAMPLE: usize = 40;
const THREADS: u64 = 4;
const OPERATIONS: u64 = 30;
/// Sectors that one operation has to itself, in each of the two files that are written in place.
const REGION: u64 = 40;
/// Regions of one thread, which is also the maximum of its operations in flight.
const REGIONS: u64 = 8;
const PATHS: [&str; 3] = ["/ahead", "/holes", "/appended"];
const APPENDED: usize = 2;

/// A completed write or append, in sectors.
#[derive(Clone, Copy, Debug)]
struct Written {
    file: usize,
    first: u64,
    end: u64,
    stamp: Stamp,
    over: u64,
}

/// A completed sync.
#[derive(Clone, Copy, Debug)]
struct Synced {
    file: usize,
    began: u64,
    /// Events recorded when it returned.
    events: usize,
}

#[derive(Debug, Default)]
struct Log {
    written: Vec<Written>,
    synced: Vec<Synced>,
}

struct Run {
    base: MemDevice,
    device: Arc<RecordingDevice>,
    files: Vec<DirectFile>,
    /// The same file through the page cache, if the run covers that.
    buffered: Vec<File>,
    clock: Clock,
    log: Mutex<Log>,
    seed: u64,
}

/// The kind of one operation.
#[derive(Clone, Copy, Debug)]
enum What {
    Write { file: usize, first: u64, end: u64, stamp: Stamp },
    Append { sectors: u64, stamp: Stamp },
    Sync { file: usize, began: u64 },
}

impl Run {
    /// Records the `result` of an operation.
    fn over(&self, what: What, result: u64) {
        let mut log = self.log.lock().unwrap();
        let over = self.clock.tick();
        match what {
            What::Write { file, first, end, stamp } => {
                log.written.push(Written { file, first, end, stamp, over });
            }
            What::Append { sectors, stamp } => {
                let first = result / SECTOR as u64;
                let stamp = Stamp { origin: first, ..stamp };
                log.written.push(Written { file: APPENDED, first, end: first + sectors, stamp, over });
            }
            What::Sync { file, began } => {
                log.synced.push(Synced { file, began, events: self.device.events() });
            }
        }
    }

    /// Returns the next operation of a thread, which may write in `region`.
    fn choose(&self, rng: &mut Rng, thread: u64, region: u64, sequence: u64) -> (What, Vec<u8>) {
        let stamp = Stamp { file: 0, writer: u32::try_from(thread).unwrap(), sequence, origin: 0 };
        match rng.below(10) {
            0 => {
                let file = usize::try_from(rng.below(3)).unwrap();
                (What::Sync { file, began: self.clock.tick() }, Vec::new())
            }
            1 | 2 => {
                let sectors = rng.log_uniform(16);
                let stamp = Stamp { file: file_number(APPENDED), ..stamp };
                let mut bytes = vec![0; usize::try_from(sectors).unwrap() * SECTOR];
                fill_append(&mut bytes, stamp);
                (What::Append { sectors, stamp }, bytes)
            }
            _ => {
                let file = usize::try_from(region % 2).unwrap();
                let stamp = Stamp { file: file_number(file), ..stamp };
                let (skip, sectors) = (rng.below(REGION), rng.log_uniform(REGION));
                // Whole blocks half of the time.
                let align = if rng.chance(50) { 8 } else { 1 };
                let start = (region * THREADS + thread) * REGION;
                let first = start + skip / align * align;
                let end = (first + sectors.next_multiple_of(align)).min(start + REGION);
                let mut bytes = vec![0; usize::try_from(end - first).unwrap() * SECTOR];
                fill(&mut bytes, first, stamp);
                (What::Write { file, first, end, stamp }, bytes)
            }
        }
    }

    /// Returns true if an operation goes through the page cache.
    fn buffers(&self, rng: &mut Rng) -> bool {
        !self.buffered.is_empty() && rng.chance(70)
    }

    fn call(&self, thread: u64, rng: &mut Rng) {
        for sequence in 1..=OPERATIONS {
            let region = rng.below(REGIONS);
            let (what, bytes) = self.choose(rng, thread, region, sequence);
            let result = match what {
                What::Write { file, first, .. } if self.buffers(rng) => {
                    self.buffered[file].write_all_at(&bytes, first * SECTOR as u64).map(|()| 0)
                }
                What::Write { file, first, .. } => {
                    self.files[file].write_all_at(&bytes, first * SECTOR as u64).map(|()| 0)
                }
                What::Append { .. } if self.buffers(rng) => self.buffered[APPENDED].append(&bytes),
                What::Append { .. } => self.files[APPENDED].append(&bytes),
                What::Sync { file, .. } if self.buffers(rng) => self.buffered[file].sync_data().map(|()| 0),
                What::Sync { file, .. } if sequence % 2 == 0 => self.files[file].sync_all().map(|()| 0),
                What::Sync { file, .. } => self.files[file].sync_data().map(|()| 0),
            };
            self.over(what, result.expect("a call"));
        }
    }

    /// Like [`call`](Self::call), with an operation in each region.
    fn queue(&self, mut queue: IoQueue, thread: u64, rng: &mut Rng) {
        let mut begun: Vec<Option<What>> = vec![None; usize::try_from(REGIONS).unwrap()];
        let mut done = Vec::new();
        for sequence in 1..=OPERATIONS {
            let free = begun.iter().position(Option::is_none).expect("a free region");
            let (what, bytes) = self.choose(rng, thread, free as u64, sequence);
            begun[free] = Some(what);
            let (file, request) = request(what, &bytes);
            let flags = IoFlags::new().nowait(rng.chance(10));
            queue.submit(&self.files[file], request, free as u64, flags);
            let full = queue.in_flight() == begun.len();
            let waits = full || rng.chance(20);
            let harvested = if waits { queue.harvest(&mut done) } else { queue.try_harvest(&mut done) };
            harvested.expect("harvest");
            self.harvested(&mut begun, &mut done);
        }
        while queue.in_flight() > 0 {
            queue.harvest(&mut done).expect("harvest");
            self.harvested(&mut begun, &mut done);
        }
    }

    fn harvested(&self, begun: &mut [Option<What>], done: &mut Vec<Completion>) {
        for completion in done.drain(..) {
            let what = begun[usize::try_from(completion.token).unwrap()].take().expect("in flight");
            match completion.result {
                Ok(result) => self.over(what, result),
                Err(parext4::Error::WouldBlock(_)) => {}
                Err(error) => panic!("{what:?}: {error}"),
            }
        }
    }

    /// Returns the data that must be on the device if all events before `durable` are.
    fn durable(&self, durable: usize) -> Vec<Written> {
        let log = self.log.lock().unwrap();
        let synced = |written: &Written| {
            log.synced
                .iter()
                .any(|sync| sync.file == written.file && sync.events <= durable && written.over < sync.began)
        };
        log.written.iter().copied().filter(synced).collect()
    }

    /// Checks one file of a recovered volume.
    fn check_file(&self, number: usize, file: &DirectFile, durable: &[Written]) -> Result<(), String> {
        let mut bytes = vec![0; usize::try_from(file.size()).unwrap()];
        file.read_at(&mut bytes, 0).map_err(|e| e.to_string())?;
        let seen = identify_all(&bytes, file_number(number), 0)?;
        for written in durable.iter().filter(|written| written.file == number) {
            for sector in written.first..written.end {
                let now = seen.get(usize::try_from(sector).unwrap());
                // One operation at a time writes a region, so its data is the durable version or a
                // newer one.
                let is_there = match now {
                    Some(Seen::Data(stamp)) if number == APPENDED => *stamp == written.stamp,
                    Some(Seen::Data(stamp)) => stamp.sequence >= written.stamp.sequence,
                    _ => false,
                };
                if !is_there {
                    return Err(format!("sector {sector} is {now:?}, but {written:?} was synced"));
                }
            }
        }
        // Past the end there are only zeros, too.
        let size = file.size();
        file.set_len(size + 8192).map_err(|e| e.to_string())?;
        let mut behind = vec![1; 8192];
        file.read_at(&mut behind, size).map_err(|e| e.to_string())?;
        for (sector, bytes) in behind.chunks(SECTOR).enumerate() {
            if identify(bytes, file_number(number), 0) != Ok(Seen::Zero) {
                return Err(format!("stale bytes {sector} sectors past the end"));
            }
        }
        Ok(())
    }

    fn check_image(&self, image: &Arc<MemDevice>, durable: &[Written], with_e2fsck: bool, what: &str) {
        if with_e2fsck {
            assert_recovers(image, what);
        }
        let volume = Volume::open_device(Arc::clone(image) as Arc<dyn Device>, &untimed());
        let volume = volume.unwrap_or_else(|e| panic!("{what}: {e}"));
        for (number, path) in PATHS.into_iter().enumerate() {
            let file = volume.direct_file(path).unwrap_or_else(|e| panic!("{what}: {path}: {e}"));
            self.check_file(number, &file, durable).unwrap_or_else(|e| panic!("{what}: {path}: {e}"));
        }
        volume.close().unwrap_or_else(|e| panic!("{what}: {e}"));
        if with_e2fsck {
            assert_clean(image, what);
        }
    }
}

fn file_number(file: usize) -> u32 {
    1 + u32::try_from(file).unwrap()
}

fn request(what: What, bytes: &[u8]) -> (usize, IoRequest) {
    let (buf, len) = (AlignedBuf::from_slice(bytes), bytes.len());
    match what {
        What::Write { file, first, .. } => {
            (file, IoRequest::Write { buf, len, offset: first * SECTOR as u64 })
        }
        What::Append { .. } => (APPENDED, IoRequest::Append { buf, len }),
        What::Sync { file, .. } => (file, IoRequest::SyncData),
    }
}

/// Makes the files: one preallocated if there are extents, one of holes, one with preallocated
/// blocks past its end.
fn files(volume: &Volume, extents: bool) -> Vec<DirectFile> {
    let files: Vec<DirectFile> = PATHS.map(|path| volume.create_direct(path).expect("create")).into();
    let len = REGION * REGIONS * THREADS * SECTOR as u64;
    if extents {
        files[0].allocate(0..len, FileSize::Extend).expect("allocate");
    }
    files[1].set_len(len).expect("set_len");
    let stamp = Stamp { file: file_number(APPENDED), writer: 99, sequence: 0, origin: 0 };
    for _ in 0..40 {
        let mut bytes = vec![0; 4096];
        fill_append(&mut bytes, stamp);
        files[APPENDED].append(&bytes).expect("append");
    }
    volume.sync().expect("sync");
    files
}

/// Records a run, then checks the states after crashes.
fn crash(name: &str, shape: Shape, split_at: SplitAt, cached: bool) {
    let seed = settings::seed(name);
    let base = shape.make_poisoned();
    let prepared = Arc::new(base);
    let volume = Volume::open_device(Arc::clone(&prepared) as Arc<_>, &untimed()).expect("open");
    files(&volume, shape.has_extents());
    volume.close().expect("close");
    let base = prepared.fork();
    let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    // A cache so small that pages are written back all the time.
    let options = untimed()
        .cache_bytes(512 << 10)
        .write_back_interval(None)
        .research(ResearchOptions::new().split_at(split_at));
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &options).expect("open");
    let files: Vec<DirectFile> = PATHS.map(|path| volume.direct_file(path).expect("open_file")).into();
    let buffered = |file: &DirectFile| file.buffered().expect("buffered");
    let buffered = files.iter().filter(|_| cached).map(buffered).collect();
    let run = Run { base, device, files, buffered, clock: Clock::default(), log: Mutex::default(), seed };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (run, volume) = (&run, &volume);
            scope.spawn(move || {
                let mut rng = Rng::new(run.seed, 100 + thread);
                if thread % 2 == 0 {
                    run.call(thread, &mut rng);
                } else {
                    run.queue(volume.io_queue(8), thread, &mut rng);
                }
            });
        }
        // Ends transactions in the middle of the other threads' operations.
        for _ in 0..10 {
            std::thread::yield_now();
            volume.sync().expect("sync");
        }
    });
    // At least one thread must have made data durable.
    for (number, file) in run.files.iter().enumerate() {
        let began = run.clock.tick();
        file.sync_all().expect("sync_all");
        run.over(What::Sync { file: number, began }, 0);
    }
    let mut count = 0;
    for_each_crash_state(
        &run.device,
        &run.base,
        &mut Rng::new(seed, 1),
        |CrashState { epoch, image, what }| {
            count += 1;
            let what = format!("seed {seed}, {what}");
            let sampled = count % SAMPLE == 0 || settings::all();
            run.check_image(&Arc::new(image), &run.durable(epoch.start), sampled, &what);
        },
    );
    let written = run.log.lock().unwrap().written.len();
    assert_eq!(run.durable(usize::MAX).len(), written, "the last syncs cover everything");
    eprintln!("{name}: {} events, {written} writes, {count} crashes", run.device.events());
}

#[test]
fn crashes_1k() {
    crash("crashes_1k", Shape::new(10, 1024, true), SplitAt::Completion, false);
}

#[test]
fn crashes_1k_cut_before() {
    crash("crashes_1k_cut_before", Shape::new(10, 1024, true), SplitAt::Submission, false);
}

#[test]
fn crashes_4k() {
    crash("crashes_4k", Shape::new(16, 4096, true), SplitAt::Completion, false);
}

#[test]
fn crashes_16k() {
    crash("crashes_16k", Shape::new(40, 16384, true), SplitAt::Completion, false);
}

#[test]
fn crashes_64k_buffered() {
    crash("crashes_64k_buffered", Shape::new(128, 65536, true), SplitAt::Completion, true);
}

#[test]
fn crashes_4k_cut_before() {
    crash("crashes_4k_cut_before", Shape::new(16, 4096, true), SplitAt::Submission, false);
}

#[test]
fn crashes_1k_indirect() {
    let shape = Shape::new(10, 1024, true).without_extents();
    crash("crashes_1k_indirect", shape, SplitAt::Completion, true);
}

#[test]
fn crashes_of_clusters() {
    let shape = Shape::new(12, 1024, true).with_clusters(8);
    crash("crashes_of_clusters", shape, SplitAt::Completion, true);
}

#[test]
fn crashes_1k_buffered() {
    crash("crashes_1k_buffered", Shape::new(10, 1024, true), SplitAt::Completion, true);
}

#[test]
fn crashes_4k_buffered() {
    crash("crashes_4k_buffered", Shape::new(16, 4096, true), SplitAt::Completion, true);
}
