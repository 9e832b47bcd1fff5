//! Full volumes: many threads fill a volume until no operation succeeds. Every call that fails
//! leaves it consistent, preallocated blocks can still be written, and deleting all files frees all
//! space.
//!
//! Run with `cargo test -p parext4 --profile stress --test space full`; see `tests/stress` for the
//! environment.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parext4::{DirectFile, Error, FileSize, MemDevice, Volume};
use parking_lot::{RwLock, RwLockReadGuard};

use testkit::rng::Rng;
use testkit::sector::{SECTOR, Seen, Stamp, fill_append, filled, identify_all};
use testkit::volume::{DirectFiles as _, Shape, assert_clean, assert_recovers, recover, untimed};
use testkit::watchdog::Watchdog;
use testkit::{settings, tool};

const THREADS: usize = 8;
/// Sectors of the largest request.
const LARGEST: u64 = 256;
/// Preallocated bytes, twice: below the size, and past it.
const AHEAD: u64 = 1 << 20;

/// The ways to use up space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Append,
    WriteSparse,
    Allocate,
    AllocateBehindTheEnd,
    MakeDirectory,
    CreateFile,
}

const WAYS: [Way; 6] = [
    Way::Append,
    Way::WriteSparse,
    Way::Allocate,
    Way::AllocateBehindTheEnd,
    Way::MakeDirectory,
    Way::CreateFile,
];

/// One thread: its directory, its files, and the data that it wrote.
struct Filler<'a> {
    volume: &'a Volume,
    thread: u32,
    directory: String,
    rng: Rng,
    count: u64,
    appended: DirectFile,
    sparse: DirectFile,
    allocated: DirectFile,
    /// First sector and stamp of each write that succeeded, with its length, by file.
    written: Vec<(bool, u64, u64, Stamp)>,
}

impl<'a> Filler<'a> {
    fn new(volume: &'a Volume, thread: usize, seed: u64) -> Self {
        let directory = format!("/fill/{thread}");
        volume.create_dir(&directory, 0o755).expect("mkdir");
        let create = |name: &str| volume.create_direct(format!("{directory}/{name}")).expect("create");
        let (appended, sparse, allocated) = (create("appended"), create("sparse"), create("allocated"));
        Self {
            volume,
            thread: u32::try_from(thread).unwrap(),
            directory,
            rng: Rng::new(seed, thread as u64),
            count: 0,
            appended,
            sparse,
            allocated,
            written: Vec::new(),
        }
    }

    /// Uses up space in every way, until each fails even for one sector. Between operations the
    /// checker may pass the `gate`.
    fn fill(&mut self, gate: &RwLock<()>, watchdog: &Watchdog) {
        let mut ways = WAYS.to_vec();
        let mut largest = LARGEST;
        while !ways.is_empty() {
            let _open: RwLockReadGuard<'_, ()> = gate.read();
            let nth = usize::try_from(self.rng.below(ways.len() as u64)).unwrap();
            let sectors = self.rng.log_uniform(largest);
            let thread = self.thread as usize;
            match watchdog.watch(thread, || self.take(ways[nth], sectors)) {
                Ok(()) => {}
                Err(Error::NoSpace | Error::NoInodes) if sectors > 1 => largest = (largest / 2).max(1),
                Err(Error::NoSpace | Error::NoInodes) => drop(ways.swap_remove(nth)),
                Err(error) => panic!("{:?} of {sectors} sectors: {error}", ways[nth]),
            }
        }
    }

    fn take(&mut self, way: Way, sectors: u64) -> Result<(), Error> {
        self.count += 1;
        let stamp = Stamp { file: 1, writer: self.thread, sequence: self.count, origin: 0 };
        match way {
            Way::Append => self.append(sectors, stamp),
            Way::WriteSparse => self.write_sparse(sectors, stamp),
            Way::Allocate => {
                let size = self.allocated.size();
                let result = self.allocated.allocate(size..size + sectors * SECTOR as u64, FileSize::Extend);
                assert!(
                    result.is_ok() || self.allocated.size() == size,
                    "a failed allocation changed the size"
                );
                result
            }
            Way::AllocateBehindTheEnd => {
                let place = (1 << 30) + self.count * LARGEST * SECTOR as u64;
                self.allocated.allocate(place..place + sectors * SECTOR as u64, FileSize::Keep)
            }
            Way::MakeDirectory => {
                self.volume.create_dir(format!("{}/d{}", self.directory, self.count), 0o755).map(drop)
            }
            Way::CreateFile => {
                self.volume.create_direct(format!("{}/f{}", self.directory, self.count)).map(drop)
            }
        }
    }

    fn append(&mut self, sectors: u64, stamp: Stamp) -> Result<(), Error> {
        let size = self.appended.size();
        let mut bytes = vec![0; usize::try_from(sectors).unwrap() * SECTOR];
        fill_append(&mut bytes, stamp);
        match self.appended.append(&bytes) {
            Ok(place) => {
                assert_eq!(place, size, "an append went elsewhere than to the end");
                let first = place / SECTOR as u64;
                self.written.push((true, first, sectors, Stamp { origin: first, ..stamp }));
                Ok(())
            }
            Err(error) => {
                assert_eq!(self.appended.size(), size, "a failed append changed the size");
                Err(error)
            }
        }
    }

    fn write_sparse(&mut self, sectors: u64, stamp: Stamp) -> Result<(), Error> {
        let size = self.sparse.size();
        // Every write has a range of its own, in random order.
        let first = (self.count.reverse_bits() >> 46) * LARGEST * 2 + self.rng.below(8);
        let result = self.sparse.write_all_at(&filled(first, sectors, stamp), first * SECTOR as u64);
        match result {
            Ok(()) => self.written.push((false, first, sectors, stamp)),
            Err(_) => assert_eq!(self.sparse.size(), size, "a failed write changed the size"),
        }
        result
    }

    /// Asserts that all written data is there.
    fn verify(&self) {
        for &(appended, first, sectors, stamp) in &self.written {
            let file = if appended { &self.appended } else { &self.sparse };
            let mut bytes = vec![0; usize::try_from(sectors).unwrap() * SECTOR];
            let read = file.read_at(&mut bytes, first * SECTOR as u64).expect("read_at");
            let seen = identify_all(&bytes[..read], 1, first).expect("sectors that were written");
            assert_eq!(seen.len() as u64, sectors);
            assert!(seen.iter().all(|&seen| seen == Seen::Data(stamp)), "{stamp:?} reads as {seen:?}");
        }
    }
}

/// Checks the volume at the gate: synced, but not closed.
fn check(device: &MemDevice, shape: Shape, when: &str) {
    if shape.journal {
        assert_recovers(device, when);
    }
    let copy = Arc::new(device.fork());
    recover(&copy);
    assert_clean(&copy, when);
}

/// Fills the volume from all threads, and checks it at random moments while they wait.
fn fill<'a>(volume: &'a Volume, device: &MemDevice, shape: Shape, name: &str, seed: u64) -> Vec<Filler<'a>> {
    let mut fillers: Vec<_> = (0..THREADS).map(|thread| Filler::new(volume, thread, seed)).collect();
    let (gate, running) = (RwLock::new(()), AtomicUsize::new(THREADS));
    let watchdog = Watchdog::start(name, seed, THREADS);
    std::thread::scope(|scope| {
        for filler in &mut fillers {
            let (gate, running, watchdog) = (&gate, &running, &watchdog);
            scope.spawn(move || {
                let _leaving = scopeguard(running);
                filler.fill(gate, watchdog);
            });
        }
        let mut wait = Duration::from_millis(10);
        while running.load(Ordering::Acquire) > 0 {
            std::thread::sleep(wait);
            wait = (2 * wait).min(Duration::from_millis(640));
            let closed = gate.write();
            volume.sync().expect("sync");
            let copy = device.fork();
            drop(closed);
            check(&copy, shape, &format!("{name}, seed {seed}, while it fills"));
        }
    });
    fillers
}

/// Decrements the number of threads when dropped.
fn scopeguard(running: &AtomicUsize) -> impl Drop + '_ {
    struct Leaving<'a>(&'a AtomicUsize);
    impl Drop for Leaving<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Release);
        }
    }
    Leaving(running)
}

/// Writes all preallocated blocks, in pieces of all sizes and in random order.
fn write_ahead(file: &DirectFile, rng: &mut Rng) {
    let sectors = AHEAD / SECTOR as u64;
    let mut pieces = Vec::new();
    let mut first = 0;
    while first < sectors {
        let end = sectors.min(first + rng.log_uniform(32));
        pieces.push((first, end));
        first = end;
    }
    for last in (1..pieces.len()).rev() {
        pieces.swap(last, usize::try_from(rng.below(last as u64 + 1)).unwrap());
    }
    for (first, end) in pieces {
        let stamp = Stamp { file: 2, writer: 0, sequence: first, origin: 0 };
        let bytes = filled(first, end - first, stamp);
        file.write_all_at(&bytes, first * SECTOR as u64).expect("a write into preallocated blocks");
    }
    let mut bytes = vec![0; usize::try_from(AHEAD).unwrap()];
    assert_eq!(file.read_at(&mut bytes, 0).expect("read_at"), bytes.len());
    let seen = identify_all(&bytes, 2, 0).expect("sectors that were written");
    assert!(seen.iter().all(|seen| matches!(seen, Seen::Data(_))), "preallocated blocks are not written");
}

fn remove_all(volume: &Volume, directory: &str) {
    for item in volume.read_dir(directory).expect("read_dir") {
        let item = item.expect("an entry");
        match item.file_type() {
            parext4::FileType::Directory => volume.remove_dir(item.path()).expect("remove_dir"),
            _ => volume.remove_file(item.path()).expect("remove_file"),
        }
    }
    volume.remove_dir(directory).expect("remove_dir");
}

/// Space of removed files is available at once, though their blocks may only be reused after a
/// commit.
fn refill(volume: &Volume) {
    let full = volume.space();
    remove_all(volume, "/fill/0");
    let space = volume.space();
    // Data leaves the last 2 % to metadata, which may have used a part of them while the volume was
    // full.
    let usable = space.free_blocks.saturating_sub(space.blocks / 50);
    let gained = usable.min(space.free_blocks - full.free_blocks) * u64::from(space.block_size);
    let file = volume.create_direct("/fill/refill").expect("create");
    let bytes = vec![1; 64 << 10];
    while file.size() + bytes.len() as u64 <= gained / 2 {
        file.append(&bytes).expect("an append into the space of removed files");
    }
}

/// Returns the free blocks and inodes that dumpe2fs finds.
fn dumpe2fs(device: &MemDevice) -> Option<(u64, u32)> {
    let file = tempfile::NamedTempFile::new().unwrap();
    device.save(file.path()).unwrap();
    let output = tool(Command::new("dumpe2fs").arg("-h").arg(file.path()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = |label: &str| text.lines().find_map(|line| line.strip_prefix(label)).map(str::trim);
    Some((value("Free blocks:")?.parse().ok()?, value("Free inodes:")?.parse().ok()?))
}

/// Fills and empties volumes until the test's duration has passed, at least once.
fn run(name: &str, shape: Shape) {
    let seed = settings::seed(name);
    let deadline = Instant::now() + settings::seconds(0.0);
    for round in 0.. {
        fill_and_empty(name, shape, seed.wrapping_add(round));
        if Instant::now() >= deadline {
            break;
        }
    }
}

/// Uses the inodes that were freed after the other threads had stopped: a thread with an inode but
/// without space for its name frees the inode. The root directory has space for these names.
fn take_last_inodes(volume: &Volume) -> Vec<String> {
    let mut paths = Vec::new();
    loop {
        let path = format!("/last-{}", paths.len());
        match volume.create_direct(&path) {
            Ok(_) => paths.push(path),
            Err(Error::NoInodes) => return paths,
            Err(error) => panic!("creating {path}: {error}"),
        }
    }
}

fn fill_and_empty(name: &str, shape: Shape, seed: u64) {
    let device = Arc::new(shape.make());
    let volume = Volume::open_device(Arc::clone(&device) as Arc<_>, &untimed()).expect("open");
    let before = volume.space();
    volume.create_dir("/fill", 0o755).expect("mkdir");
    let ahead = ["/fill/ahead", "/fill/behind"].map(|path| volume.create_direct(path).expect("create"));
    ahead[0].allocate(0..AHEAD, FileSize::Extend).expect("allocate");
    ahead[1].allocate(0..AHEAD, FileSize::Keep).expect("allocate");

    let fillers = fill(&volume, &device, shape, name, seed);
    let last = if shape.inode_ratio.is_some() { take_last_inodes(&volume) } else { Vec::new() };
    let full = volume.space();
    assert!(full.free_blocks < full.blocks / 20, "the volume is not full: {full:?}");
    assert!(shape.inode_ratio.is_none() || full.free_inodes == 0, "inodes are left: {full:?}");
    ahead.iter().for_each(|file| write_ahead(file, &mut Rng::new(seed, 1000)));
    fillers.iter().for_each(Filler::verify);
    volume.sync().expect("sync");
    check(&device.fork(), shape, &format!("{name}, seed {seed}, full"));

    drop((fillers, ahead));
    last.iter().for_each(|path| volume.remove_file(path).expect("remove"));
    refill(&volume);
    std::thread::scope(|scope| {
        for thread in 1..THREADS {
            let volume = &volume;
            scope.spawn(move || remove_all(volume, &format!("/fill/{thread}")));
        }
    });
    remove_all(&volume, "/fill");
    volume.sync().expect("sync");
    let after = volume.space();
    assert_eq!(after, before, "{name}, seed {seed}: not all space is free again");
    volume.close().expect("close");
    assert_clean(&device, name);
    if let Some(counted) = dumpe2fs(&device) {
        assert_eq!(counted, (before.free_blocks, before.free_inodes), "{name}, seed {seed}: dumpe2fs");
    }
}

#[test]
fn full_1k() {
    run("full_1k", Shape::new(16, 1024, true));
}

#[test]
fn full_clusters_of_4k() {
    run("full_clusters_of_4k", Shape::new(24, 1024, true).with_clusters(4));
}

#[test]
fn full_clusters_of_64k() {
    run("full_clusters_of_64k", Shape::new(128, 4096, true).with_clusters(16));
}

#[test]
fn full_4k() {
    run("full_4k", Shape::new(32, 4096, true));
}

#[test]
fn full_4k_larger() {
    run("full_4k_larger", Shape::new(96, 4096, true));
}

#[test]
fn out_of_inodes() {
    run("out_of_inodes", Shape { inode_ratio: Some(32 << 10), ..Shape::new(16, 1024, true) });
}

#[test]
fn full_1k_no_journal() {
    run("full_1k_no_journal", Shape::new(8, 1024, false));
}

#[test]
fn full_4k_no_journal() {
    run("full_4k_no_journal", Shape::new(16, 4096, false));
}
