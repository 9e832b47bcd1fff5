//! Sixteen threads on one file, with all operations of a file. Every read must be explained.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parext4::device::AlignedBuf;
use parext4::server::{PageFault, ServerFile};
use parext4::{
    Device, DeviceOptions, DirectFile, Error, File, FileDevice, FileSize, MemDevice, Policy, ResearchOptions,
    SplitAt, Volume, VolumeOptions,
};

use super::queued::Queued;

use testkit::device::{HookedDevice, SplitRequests};
use testkit::history::{Clock, Effect, Log};
use testkit::linearizability::{Overwrites, explain};
use testkit::rng::Rng;
use testkit::sector::{SECTOR, Seen, Stamp, fill, fill_append, identify_all};
use testkit::volume::{DirectFiles as _, Shape, assert_clean, assert_clean_file};
use testkit::watchdog::Watchdog;
use testkit::{settings, skip_allowed, slowest};

const THREADS: usize = 16;
/// Writes and sizes stay below this many sectors; appends may go beyond.
pub(crate) const SPAN: u64 = (4 << 20) / SECTOR as u64;
/// The longest request in sectors: 1 MiB.
pub(crate) const LONGEST: u64 = (1 << 20) / SECTOR as u64;
/// Half of the requests begin below this sector, so that many overlap.
pub(crate) const HOT: u64 = 96;
/// Duration of a round, and the limit of operations of each thread in it. After a round its history
/// is checked.
pub(crate) const ROUND: Duration = Duration::from_millis(500);
pub(crate) const ROUND_OPERATIONS: u32 = 100;

/// The number of the file in its sectors.
pub(crate) const FILE: u32 = 1;

pub(crate) struct Run<'a> {
    pub volume: &'a Volume,
    pub file: &'a DirectFile,
    pub clock: Clock,
    pub watchdog: Watchdog,
    pub seed: u64,
    policy: Policy,
    /// Whether every other thread has a queue.
    queues: bool,
    /// Whether the file is mapped by extents.
    pub extents: bool,
    /// The same file through the page cache, for some operations of every thread.
    buffered: Option<File>,
    /// The next sequence number of every thread.
    sequences: Vec<AtomicU64>,
}

/// One thread in one round.
struct Worker<'a> {
    run: &'a Run<'a>,
    thread: usize,
    rng: Rng,
    /// Whether this round sets sizes. Without them, the rules for appends are stricter.
    cuts: bool,
    buffer: AlignedBuf,
    log: Log,
}

impl Worker<'_> {
    fn work(mut self) -> Log {
        let deadline = Instant::now() + ROUND;
        for _ in 0..ROUND_OPERATIONS {
            if Instant::now() >= deadline {
                break;
            }
            let (run, thread) = (self.run, self.thread);
            run.watchdog.watch(thread, || self.operation());
        }
        self.log
    }

    /// Returns the file through the page cache, if this operation uses it.
    fn buffered(&mut self) -> Option<&File> {
        self.run.buffered.as_ref().filter(|_| self.rng.chance(60))
    }

    fn operation(&mut self) {
        let file = self.run.file;
        if self.rng.chance(10)
            && let Some(buffered) = self.buffered()
        {
            return slowest::fsync(|| buffered.sync_range(0..offset(HOT))).expect("sync_range");
        }
        if self.rng.chance(4) {
            return self.fault();
        }
        match self.rng.below(100) {
            0..36 => self.read(),
            36..68 => self.write(),
            68..80 => self.append(),
            80..83 => self.allocate(),
            83..86 => self.zero(),
            86..91 if self.cuts => self.set_len(),
            91..95 => slowest::fsync(|| file.sync_all()).expect("sync_all"),
            95..98 => slowest::fsync(|| file.sync_data()).expect("sync_data"),
            _ => slowest::fsync(|| self.run.volume.sync()).expect("sync"),
        }
    }

    /// Reads a page into the cache, and may make it dirty. Past the end there is no page.
    fn fault(&mut self) {
        let (at, write) = (offset(place(&mut self.rng).0), self.rng.chance(50));
        if let Some(buffered) = self.buffered() {
            match buffered.fault(at, if write { PageFault::Store } else { PageFault::Load }) {
                Ok(()) | Err(Error::Invalid(_)) => {}
                Err(error) => panic!("fault: {error}"),
            }
        }
    }

    fn read(&mut self) {
        let (first, wanted) = place(&mut self.rng);
        let len = bytes(wanted - first);
        // Most memory of users is not aligned.
        let skew = if self.rng.chance(30) { 8 } else { 0 };
        let run = self.run;
        let mut buffered = self.buffered().and(run.buffered.as_ref());
        if run.policy == Policy::SharedOverwrite {
            // Under that policy reads share the file with writes, and may find half a sector.
            buffered = None;
        }
        self.log.way = way(buffered);
        let start = self.run.clock.tick();
        let buffer = &mut self.buffer[skew..skew + len];
        let read = match buffered {
            Some(file) => file.read_at(buffer, offset(first)),
            None => self.run.file.read_at(buffer, offset(first)),
        };
        let read = read.expect("read_at");
        let end = self.run.clock.tick();
        let seen = &self.buffer[skew..skew + read];
        self.log
            .saw((start, end), FILE, (first, wanted), seen)
            .unwrap_or_else(|e| panic!("seed {}: a read of sectors {first}..{wanted}: {e}", self.run.seed));
    }

    fn write(&mut self) {
        let (first, end) = place(&mut self.rng);
        let stamp = self.run.stamp(self.thread);
        let len = bytes(end - first);
        fill(&mut self.buffer[..len], first, stamp);
        let run = self.run;
        let buffered = self.buffered().and(run.buffered.as_ref());
        let (one, other) = self.buffer[..len].split_at(len / 3);
        self.log.way = way(buffered);
        let start = run.clock.tick();
        let written = match buffered {
            Some(file) => {
                file.write_all_vectored_at(&[IoSlice::new(one), IoSlice::new(other)], offset(first))
            }
            None => run.file.write_all_at(&self.buffer[..len], offset(first)),
        };
        written.expect("write_at");
        let effect = Effect::Write { first, end, stamp, append: false };
        self.log.changed(start, self.run.clock.tick(), effect);
    }

    fn append(&mut self) {
        let sectors = self.rng.log_uniform(LONGEST / 16);
        let stamp = self.run.stamp(self.thread);
        let run = self.run;
        let buffered = self.buffered().and(run.buffered.as_ref());
        let buffer = &mut self.buffer[..bytes(sectors)];
        fill_append(buffer, stamp);
        self.log.way = way(buffered);
        let start = run.clock.tick();
        let place = match buffered {
            Some(file) => file.append(buffer),
            None => run.file.append(buffer),
        };
        let place = place.expect("append");
        let now = self.run.clock.tick();
        let first = place / SECTOR as u64;
        let stamp = Stamp { origin: first, ..stamp };
        self.log.changed(start, now, Effect::Write { first, end: first + sectors, stamp, append: true });
    }

    fn allocate(&mut self) {
        let (first, end) = place(&mut self.rng);
        let keep_size = self.rng.chance(50);
        let start = self.run.clock.tick();
        let allocated = self.run.file.allocate(offset(first)..offset(end), FileSize::kept_if(keep_size));
        if !self.run.extents {
            assert!(matches!(allocated, Err(Error::Unsupported(_))), "{allocated:?}");
            return;
        }
        allocated.expect("allocate");
        if !keep_size {
            self.log.changed(start, self.run.clock.tick(), Effect::Allocate { end });
        }
    }

    /// Punches a hole or zeroes a range.
    fn zero(&mut self) {
        let (first, end) = place(&mut self.rng);
        let (at, len) = (offset(first), offset(end - first));
        let (punches, grows) = (self.rng.chance(60) || !self.run.extents, self.rng.chance(30));
        self.log.way = if punches { "punching" } else { "zeroing" };
        let start = self.run.clock.tick();
        let file = self.run.file;
        let done = if punches {
            file.punch_hole(at..at + len)
        } else {
            file.zero_range(at..at + len, FileSize::kept_if(!grows))
        };
        done.expect("punch_hole or zero_range");
        let effect = Effect::Zero { first, end, grows: grows && !punches };
        self.log.changed(start, self.run.clock.tick(), effect);
    }

    fn set_len(&mut self) {
        let size = self.rng.below(SPAN);
        let start = self.run.clock.tick();
        self.run.file.set_len(offset(size)).expect("set_len");
        self.log.changed(start, self.run.clock.tick(), Effect::SetLen { size });
    }
}

/// How a thread reads or writes.
fn way(buffered: Option<&File>) -> &'static str {
    if buffered.is_some() { "buffered" } else { "direct" }
}

/// Returns the first sector and the end of a request.
pub(crate) fn place(rng: &mut Rng) -> (u64, u64) {
    let first = if rng.chance(50) { rng.below(HOT) } else { rng.below(SPAN) };
    (first, first + rng.log_uniform(LONGEST))
}

pub(crate) fn bytes(sectors: u64) -> usize {
    usize::try_from(sectors).unwrap() * SECTOR
}

pub(crate) fn offset(sectors: u64) -> u64 {
    sectors * SECTOR as u64
}

impl Run<'_> {
    /// Returns the next stamp of a thread.
    pub(crate) fn stamp(&self, thread: usize) -> Stamp {
        let sequence = self.sequences[thread].fetch_add(1, Ordering::Relaxed);
        Stamp { file: FILE, writer: u32::try_from(thread).unwrap(), sequence, origin: 0 }
    }

    /// Runs rounds for the configured time, and returns the final contents of the file.
    fn rounds(&self) -> Vec<Seen> {
        let deadline = Instant::now() + settings::seconds(if self.queues { 1.5 } else { 4.0 });
        let mut contents = Vec::new();
        let mut round = 0;
        while Instant::now() < deadline {
            round += 1;
            let mut log = std::thread::scope(|scope| {
                let spawn = |thread: usize| scope.spawn(move || self.work(thread, round));
                let threads: Vec<_> = (0..THREADS).map(spawn).collect();
                let mut all = Log::default();
                threads.into_iter().for_each(|thread| all.append(thread.join().expect("a worker failed")));
                all
            });
            contents = self.end_round(&mut log, &contents);
        }
        contents
    }

    fn work(&self, thread: usize, round: u64) -> Log {
        let rng = Rng::new(self.seed, round * THREADS as u64 + thread as u64);
        let cuts = !round.is_multiple_of(3);
        if self.queues && thread % 2 == 1 {
            Queued::new(self, thread, rng, cuts).work()
        } else {
            self.worker(thread, rng, cuts).work()
        }
    }

    fn worker(&self, thread: usize, rng: Rng, cuts: bool) -> Worker<'_> {
        Worker {
            run: self,
            thread,
            rng,
            cuts,
            buffer: AlignedBuf::zeroed(bytes(LONGEST) + SECTOR),
            log: Log::default(),
        }
    }

    /// Reads the whole file and explains the round, which began with `base`.
    fn end_round(&self, log: &mut Log, base: &[Seen]) -> Vec<Seen> {
        let size = self.file.size();
        let start = self.clock.tick();
        let bytes = read_all(self.file, size);
        let wanted = size / SECTOR as u64 + 1;
        log.saw((start, self.clock.tick()), FILE, (0, wanted), &bytes)
            .and_then(|()| explain(base, log, overwrites(self.policy)))
            .unwrap_or_else(|e| panic!("seed {}: {e}", self.seed));
        identify_all(&bytes, FILE, 0).expect("identified before")
    }
}

/// Returns how overwrites take effect under a policy.
pub(crate) fn overwrites(policy: Policy) -> Overwrites {
    if policy.locks_whole_file() { Overwrites::BySector } else { Overwrites::Whole }
}

/// Reads the file, and checks that there is nothing past its size.
fn read_all(file: &DirectFile, size: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(size).unwrap() + SECTOR];
    let read = file.read_at(&mut bytes, 0).expect("read_at");
    bytes.truncate(read);
    bytes
}

/// How the volume is opened, whether every other thread has a queue, and whether some operations go
/// through the page cache.
#[derive(Clone, Copy, Default)]
struct Ways {
    policy: Policy,
    split_at: SplitAt,
    queues: bool,
    buffered: bool,
}

/// Runs one configuration on a device of zeros, then compares the contents after a new open.
fn run(name: &str, device: &Arc<dyn Device>, shape: Shape, ways: Ways) {
    let seed = settings::seed(name);
    shape.make_on(device);
    let Ways { policy, split_at, queues, buffered } = ways;
    // A cache so small that pages are evicted and written back all the time.
    let write_back_interval = Some(Duration::from_millis(20));
    let options = VolumeOptions::new()
        .cache_bytes(1 << 20)
        .write_back_interval(write_back_interval)
        .research(ResearchOptions::new().policy(policy).split_at(split_at));
    let volume = Volume::open_device(Arc::clone(device), &options).expect("open");
    let file = volume.create_direct("/file").expect("create");
    let run = Run {
        volume: &volume,
        file: &file,
        clock: Clock::default(),
        watchdog: Watchdog::start(name, seed, THREADS),
        seed,
        policy,
        queues,
        extents: shape.has_extents(),
        buffered: buffered.then(|| file.buffered().expect("buffered")),
        sequences: (0..THREADS).map(|_| AtomicU64::new(1)).collect(),
    };
    let contents = run.rounds();
    drop(run);
    drop(file);
    volume.close().expect("close");

    let volume =
        Volume::open_device(Arc::clone(device), &VolumeOptions::new().read_only(true)).expect("open again");
    let file = volume.direct_file("/file").expect("open_file");
    let again = identify_all(&read_all(&file, file.size()), FILE, 0);
    assert!(again.as_ref() == Ok(&contents), "seed {seed}: another open finds other contents");
}

fn in_memory(name: &str, block_size: u32, journal: bool, chopped: bool) {
    with(name, Ways::default(), block_size, journal, chopped);
}

fn with_policy(name: &str, policy: Policy, block_size: u32, journal: bool, chopped: bool) {
    with(name, Ways { policy, ..Ways::default() }, block_size, journal, chopped);
}

fn with_queues(name: &str, policy: Policy, split_at: SplitAt, block_size: u32, journal: bool, chopped: bool) {
    with(name, Ways { policy, split_at, queues: true, buffered: false }, block_size, journal, chopped);
}

fn with_pages(name: &str, policy: Policy, queues: bool, block_size: u32, journal: bool, chopped: bool) {
    let ways = Ways { policy, queues, buffered: true, ..Ways::default() };
    with(name, ways, block_size, journal, chopped);
}

fn with(name: &str, ways: Ways, block_size: u32, journal: bool, chopped: bool) {
    with_shape(name, ways, Shape::new(64, block_size, journal), chopped);
}

fn without_extents(name: &str, queues: bool, buffered: bool, block_size: u32, journal: bool) {
    let shape = Shape::new(64, block_size, journal).without_extents();
    with_shape(name, Ways { queues, buffered, ..Ways::default() }, shape, true);
}

fn with_clusters(name: &str, queues: bool, buffered: bool, block_size: u32, clusters: u32) {
    let shape = Shape::new(64, block_size, true).with_clusters(clusters);
    with_shape(name, Ways { queues, buffered, ..Ways::default() }, shape, true);
}

fn with_shape(name: &str, ways: Ways, shape: Shape, chopped: bool) {
    let memory = Arc::new(MemDevice::new(shape.mib << 20));
    let mut device: Arc<dyn Device> = Arc::clone(&memory) as _;
    if chopped {
        device = Arc::new(HookedDevice::new(device, SplitRequests::new(u64::from(shape.block_size))));
    }
    run(name, &device, shape, ways);
    assert_clean(&memory, name);
}

fn in_a_file(name: &str, queues: bool, block_size: u32, journal: bool) {
    let shape = Shape::new(64, block_size, journal);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("image");
    let device = FileDevice::open(&path, &DeviceOptions::new().create(shape.mib << 20)).unwrap();
    if !device.is_direct() {
        skip_allowed("O_DIRECT: the directory of the test images does not support it");
    }
    run(name, &(Arc::new(device) as _), shape, Ways { queues, ..Ways::default() });
    assert_clean_file(&path, name);
}

/// On an image of a Ceph cluster.
fn on_rbd(name: &str, queues: bool, buffered: bool) {
    let Some(cluster) = testkit::ceph::start(&Default::default()) else { return };
    let shape = Shape::new(64, 4096, true);
    let options = DeviceOptions::new().create(shape.mib << 20);
    let device = testkit::open_device(cluster.url("stress"), &options).expect("open the image");
    run(name, &device, shape, Ways { queues, buffered, ..Ways::default() });
    drop(device);
    let export = cluster.dir().join("export");
    cluster.rbd(&["export".as_ref(), "stress".as_ref(), export.as_os_str()]).expect("export");
    assert_clean_file(&export, name);
}

macro_rules! configurations {
    ($($name:ident: $run:ident($($argument:expr),*);)*) => {$(
        #[test]
        fn $name() {
            $run(stringify!($name), $($argument),*);
        }
    )*};
}

configurations! {
    memory_1k: in_memory(1024, true, false);
    memory_2k: in_memory(2048, true, false);
    memory_4k: in_memory(4096, true, false);
    memory_16k: in_memory(16384, true, false);
    memory_1k_no_journal: in_memory(1024, false, false);
    memory_2k_no_journal: in_memory(2048, false, false);
    memory_4k_no_journal: in_memory(4096, false, false);
    chopped_1k: in_memory(1024, true, true);
    chopped_2k_no_journal: in_memory(2048, false, true);
    chopped_4k: in_memory(4096, true, true);
    chopped_64k_no_journal: in_memory(65536, false, true);
    exclusive_1k: with_policy(Policy::Exclusive, 1024, true, true);
    exclusive_4k_no_journal: with_policy(Policy::Exclusive, 4096, false, true);
    shared_overwrite_1k: with_policy(Policy::SharedOverwrite, 1024, true, true);
    shared_overwrite_4k: with_policy(Policy::SharedOverwrite, 4096, true, true);
    direct_1k: in_a_file(false, 1024, true);
    direct_2k: in_a_file(false, 2048, true);
    direct_4k: in_a_file(false, 4096, true);
    direct_1k_no_journal: in_a_file(false, 1024, false);
    direct_2k_no_journal: in_a_file(false, 2048, false);
    rbd: on_rbd(false, false);
    rbd_queues_and_pages: on_rbd(true, true);
    direct_32k: in_a_file(false, 32768, true);
    direct_4k_no_journal: in_a_file(false, 4096, false);
    buffered_1k: with_pages(Policy::Range, false, 1024, true, true);
    buffered_2k: with_pages(Policy::Range, true, 2048, true, false);
    buffered_4k: with_pages(Policy::Range, false, 4096, true, false);
    buffered_8k: with_pages(Policy::Range, false, 8192, true, true);
    buffered_64k_no_journal: with_pages(Policy::Range, true, 65536, false, false);
    buffered_4k_no_journal: with_pages(Policy::Range, true, 4096, false, true);
    buffered_exclusive_1k: with_pages(Policy::Exclusive, true, 1024, true, true);
    buffered_shared_overwrite_1k: with_pages(Policy::SharedOverwrite, true, 1024, true, true);
    buffered_shared_overwrite_4k: with_pages(Policy::SharedOverwrite, false, 4096, true, false);
    clusters_of_4_blocks: with_clusters(false, true, 1024, 4);
    clusters_of_16_blocks_queues_and_pages: with_clusters(true, true, 4096, 16);
    indirect_1k: without_extents(false, false, 1024, true);
    indirect_1k_queues_and_pages: without_extents(true, true, 1024, true);
    indirect_4k_no_journal: without_extents(true, true, 4096, false);
    indirect_64k_no_journal: without_extents(true, true, 65536, false);
    queued_1k: with_queues(Policy::Range, SplitAt::Completion, 1024, true, true);
    queued_1k_cut_before: with_queues(Policy::Range, SplitAt::Submission, 1024, true, true);
    queued_4k_no_journal: with_queues(Policy::Range, SplitAt::Submission, 4096, false, true);
    queued_memory_2k: with_queues(Policy::Range, SplitAt::Completion, 2048, true, false);
    queued_exclusive_1k: with_queues(Policy::Exclusive, SplitAt::Completion, 1024, true, true);
    queued_shared_overwrite_4k: with_queues(Policy::SharedOverwrite, SplitAt::Completion, 4096, true, true);
    queued_shared_overwrite_1k: with_queues(Policy::SharedOverwrite, SplitAt::Submission, 1024, true, true);
    queued_direct_1k: in_a_file(true, 1024, true);
    queued_direct_4k: in_a_file(true, 4096, true);
    queued_16k_cut_before: with_queues(Policy::Range, SplitAt::Submission, 16384, true, true);
}
