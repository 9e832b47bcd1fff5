//! The three policies: which operations share a file under each, and that contents are correct.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use parext4::device::{SimDevice, SimProfile};
use parext4::{
    Admissions, Device, DirectFile, FileSize, MemDevice, Policy, Reason, ResearchOptions, Stats, Volume,
};

use testkit::rng::Rng;
use testkit::sector::{SECTOR, Seen, Stamp, fill_append, filled, identify_all};
use testkit::settings;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};

const BLOCK: u64 = 4096;
const SECTORS_PER_BLOCK: u64 = BLOCK / SECTOR as u64;

fn open(device: Arc<dyn Device>, policy: Policy, explain: bool) -> Volume {
    Volume::open_device(device, &untimed().explain(explain).research(ResearchOptions::new().policy(policy)))
        .unwrap()
}

/// Counts by reason: shared, exclusive.
fn admissions(stats: &Stats) -> BTreeMap<String, (u64, u64)> {
    let of = |reason: Reason| {
        let Admissions { shared, exclusive, .. } = stats.admissions(reason);
        (format!("{reason:?}"), (shared, exclusive))
    };
    Reason::ALL.into_iter().map(of).filter(|(_, counts)| *counts != (0, 0)).collect()
}

/// Runs one operation of each row of the table, in one thread.
fn one_of_each(file: &DirectFile) {
    let block = |number: u64| number * BLOCK;
    let write =
        |offset: u64, len: u64| file.write_all_at(&vec![7; usize::try_from(len).unwrap()], offset).unwrap();
    file.set_len(block(64)).unwrap();
    file.allocate(0..block(16), FileSize::Keep).unwrap();
    write(block(0), block(4)); // unwritten, aligned
    write(block(0), block(1)); // written, aligned
    write(block(1) + 512, 1024); // written, unaligned
    write(block(8) + 512, 1024); // unwritten, unaligned
    write(block(3), block(2)); // two states
    write(block(20), block(1)); // hole
    write(block(22) + 512, 512); // hole, unaligned
    write(block(64), 512); // extends
    file.append(&[7; 4096]).unwrap(); // extends
    file.read_at(&mut [0; 4096], 0).unwrap();
}

#[test]
fn the_counters_match_the_table() {
    for policy in Policy::ALL {
        let device = Arc::new(Shape::new(16, 4096, true).make());
        let volume = open(Arc::clone(&device) as _, policy, false);
        let file = volume.create_direct("/file").unwrap();
        one_of_each(&file);
        let stats = file.stats();
        let want: &[(&str, u64, u64)] = match policy {
            Policy::Exclusive => &[
                ("Read", 1, 0),
                ("Overwrite", 1, 0),
                ("WholeBlocks", 0, 1),
                ("InitialisesBlock", 0, 2),
                ("Extends", 0, 2),
                ("FillsHole", 0, 1),
                ("ManyExtents", 0, 1),
                ("Unaligned", 0, 1),
                ("SetsSize", 0, 1),
                ("Allocates", 0, 1),
            ],
            Policy::SharedOverwrite => &[
                ("Read", 1, 0),
                ("Overwrite", 2, 0),
                ("WholeBlocks", 1, 0),
                ("InitialisesBlock", 0, 2),
                ("Extends", 0, 2),
                ("FillsHole", 0, 1),
                ("ManyExtents", 0, 1),
                ("SetsSize", 0, 1),
                ("Allocates", 0, 1),
            ],
            Policy::Range => &[
                ("Read", 1, 0),
                ("Overwrite", 0, 2),
                ("WholeBlocks", 0, 2),
                // The append begins in the block in which the preceding write ended.
                ("InitialisesBlock", 0, 4),
                ("FillsHole", 0, 1),
                ("SetsSize", 0, 1),
                ("Allocates", 0, 1),
            ],
            _ => panic!("{policy} is not in the table"),
        };
        let want = want.iter().map(|&(reason, s, e)| (reason.to_owned(), (s, e))).collect::<BTreeMap<_, _>>();
        assert_eq!(admissions(&stats), want, "{policy}");
        let drains = match policy {
            Policy::Exclusive => 7,
            Policy::SharedOverwrite => 6,
            _ => 0,
        };
        assert_eq!((stats.drains, stats.waits), (drains, 0), "{policy}");
        let whole_file = if policy.locks_whole_file() { stats.admitted().total() } else { 0 };
        assert_eq!(stats.whole_file().total(), whole_file);
        // 4 blocks; 1; 1 of two; 1; 1; 1; 1 for the append, whose other part was written.
        assert_eq!((stats.conversions, stats.blocks_converted), (7, 10), "{policy}");
        let pads = (BLOCK - 1024) + (BLOCK - 512) + (BLOCK - 512) + (BLOCK - 512);
        assert_eq!(stats.bytes_zeroed, pads, "{policy}");
        assert_eq!(volume.stats(), stats, "no other file was used");
        drop(file);
        volume.close().unwrap();
        assert_clean(&device, policy.name());
    }
}

const THREADS: usize = 8;
/// Blocks that belong to one thread, interleaved with the other threads' blocks, and blocks that
/// all threads write.
const OWN: u64 = 24;
const SHARED: u64 = 16;
const FILE: u32 = 1;

/// The final contents of one thread's sectors of the file, and its appends.
struct Worker<'a> {
    file: &'a DirectFile,
    thread: u64,
    rng: Rng,
    sequence: u64,
    /// Whether it sets the size, to truncate appended data.
    cuts: bool,
    model: BTreeMap<u64, Stamp>,
    appends: BTreeMap<u64, Stamp>,
}

impl Worker<'_> {
    fn work(mut self, operations: u32) -> (BTreeMap<u64, Stamp>, BTreeMap<u64, Stamp>) {
        for _ in 0..operations {
            self.sequence += 1;
            match self.rng.below(100) {
                0..30 => self.write_own(),
                30..50 => self.read_own(),
                50..70 => self.write_shared(),
                70..80 => self.read_shared(),
                80..90 => self.append(),
                90..96 => self.allocate(),
                _ if self.cuts => {
                    self.file.set_len(fixed_size() + self.rng.below(64) * SECTOR as u64).unwrap();
                }
                _ => self.file.sync_data().unwrap(),
            }
        }
        (self.model, self.appends)
    }

    fn stamp(&self) -> Stamp {
        Stamp { file: FILE, writer: u32::try_from(self.thread).unwrap(), sequence: self.sequence, origin: 0 }
    }

    /// Returns a sector of one of the thread's blocks, and a number of sectors, at most to the end
    /// of the block.
    fn own_place(&mut self) -> (u64, u64) {
        let block = SHARED + self.rng.below(OWN) * THREADS as u64 + self.thread;
        let whole = self.rng.chance(50);
        let within = if whole { 0 } else { self.rng.below(SECTORS_PER_BLOCK) };
        let most = SECTORS_PER_BLOCK - within;
        let sectors = if whole { most } else { 1 + self.rng.below(most) };
        (block * SECTORS_PER_BLOCK + within, sectors)
    }

    fn shared_place(&mut self) -> (u64, u64) {
        let first = self.rng.below((SHARED - 2) * SECTORS_PER_BLOCK);
        let first = if self.rng.chance(50) { first - first % SECTORS_PER_BLOCK } else { first };
        (first, 1 + self.rng.below(2 * SECTORS_PER_BLOCK))
    }

    fn write_own(&mut self) {
        let ((first, sectors), stamp) = (self.own_place(), self.stamp());
        self.file.write_all_at(&filled(first, sectors, stamp), first * SECTOR as u64).unwrap();
        self.model.extend((first..first + sectors).map(|sector| (sector, stamp)));
    }

    fn read_own(&mut self) {
        let (first, sectors) = self.own_place();
        let seen = read(self.file, first, sectors);
        for (sector, seen) in (first..).zip(seen) {
            let want = self.model.get(&sector).map_or(Seen::Zero, |stamp| Seen::Data(*stamp));
            assert_eq!(seen, want, "sector {sector} of thread {}", self.thread);
        }
    }

    fn write_shared(&mut self) {
        let ((first, sectors), stamp) = (self.shared_place(), self.stamp());
        self.file.write_all_at(&filled(first, sectors, stamp), first * SECTOR as u64).unwrap();
    }

    /// Asserts that each sector holds data that was written there.
    fn read_shared(&mut self) {
        let (first, sectors) = self.shared_place();
        read(self.file, first, sectors);
    }

    fn append(&mut self) {
        let mut bytes = vec![0; SECTOR * usize::try_from(1 + self.rng.below(12)).unwrap()];
        let stamp = self.stamp();
        fill_append(&mut bytes, stamp);
        let first = self.file.append(&bytes).unwrap() / SECTOR as u64;
        let stamp = Stamp { origin: first, ..stamp };
        let end = first + (bytes.len() / SECTOR) as u64;
        self.appends.extend((first..end).map(|sector| (sector, stamp)));
    }

    fn allocate(&mut self) {
        let (first, sectors) = self.own_place();
        self.file
            .allocate(first * SECTOR as u64..first * SECTOR as u64 + sectors * SECTOR as u64, FileSize::Keep)
            .unwrap();
    }
}

/// The end of the threads' blocks.
fn fixed_size() -> u64 {
    (SHARED + OWN * THREADS as u64) * BLOCK
}

fn read(file: &DirectFile, first: u64, sectors: u64) -> Vec<Seen> {
    let mut bytes = vec![0; usize::try_from(sectors).unwrap() * SECTOR];
    let len = file.read_at(&mut bytes, first * SECTOR as u64).unwrap();
    identify_all(&bytes[..len], FILE, first).unwrap()
}

fn many_threads(policy: Policy, cuts: bool) {
    let name = format!("many_threads, {policy}, cuts {cuts}");
    let seed = settings::seed(&name);
    let device = Arc::new(Shape::new(64, 4096, true).make());
    let volume = open(Arc::clone(&device) as _, policy, true);
    let file = volume.create_direct("/file").unwrap();
    file.set_len(fixed_size()).unwrap();
    let found = Mutex::new((BTreeMap::new(), BTreeMap::new()));
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (file, found) = (&file, &found);
            scope.spawn(move || {
                let rng = Rng::new(seed, thread);
                let (model, appends) = (BTreeMap::new(), BTreeMap::new());
                let worker = Worker { file, thread, rng, sequence: 0, cuts, model, appends };
                let (mut model, mut appends) = worker.work(400);
                let mut found = found.lock().unwrap();
                found.0.append(&mut model);
                found.1.append(&mut appends);
            });
        }
    });
    let (model, appends) = found.into_inner().unwrap();
    check_stats(&volume, policy);
    drop(file);
    volume.close().unwrap();

    let volume = open(Arc::clone(&device) as _, policy, false);
    let file = volume.direct_file("/file").unwrap();
    let seen = read(&file, 0, fixed_size() / SECTOR as u64);
    for (sector, stamp) in model {
        assert_eq!(seen[usize::try_from(sector).unwrap()], Seen::Data(stamp), "sector {sector}");
    }
    // All data in the tail was appended there.
    let (first, end) = (fixed_size() / SECTOR as u64, file.size() / SECTOR as u64);
    for (sector, seen) in (first..).zip(read(&file, first, 1 + end - first)) {
        let appended = appends.get(&sector).map(|stamp| Seen::Data(*stamp));
        assert!(cuts || Some(seen) == appended, "sector {sector} holds {seen:?}, not {appended:?}");
    }
    assert!(cuts || end - first == appends.len() as u64, "an append is lost");
    drop(file);
    volume.close().unwrap();
    assert_clean(&device, &name);
}

/// Asserts the properties of every run.
fn check_stats(volume: &Volume, policy: Policy) {
    let stats = volume.stats();
    let sharing = |reason: Reason| match policy {
        Policy::Range => reason == Reason::Read,
        Policy::Exclusive => matches!(reason, Reason::Read | Reason::Overwrite),
        Policy::SharedOverwrite => matches!(reason, Reason::Read | Reason::Overwrite | Reason::WholeBlocks),
        _ => panic!("{policy} has no rule"),
    };
    for reason in Reason::ALL {
        assert!(
            sharing(reason) || stats.admissions(reason).shared == 0,
            "{policy}: {reason:?} shared\n{stats}"
        );
    }
    assert!(stats.admitted().total() >= THREADS as u64 * 400 / 2, "{stats}");
    if policy.locks_whole_file() {
        assert_eq!(stats.whole_file(), stats.admitted());
        assert!(stats.drains > 0, "{stats}");
    } else {
        assert_eq!((stats.whole_file(), stats.drains), (Admissions::default(), 0), "{stats}");
    }
    let explained = volume.explain();
    assert_eq!(explained.iter().map(|wait| wait.times).sum::<u64>(), stats.waits);
    assert_eq!(explained.iter().map(|wait| wait.total).sum::<Duration>(), stats.waited);
    assert_eq!(explained.iter().map(|wait| wait.waited).max().unwrap_or_default(), stats.longest_wait);
    assert!(explained.iter().all(|wait| wait.whole_file == policy.locks_whole_file()));
}

#[test]
fn many_threads_exclusive() {
    [false, true].into_iter().for_each(|cuts| many_threads(Policy::Exclusive, cuts));
}

#[test]
fn many_threads_shared_overwrite() {
    [false, true].into_iter().for_each(|cuts| many_threads(Policy::SharedOverwrite, cuts));
}

#[test]
fn many_threads_range() {
    [false, true].into_iter().for_each(|cuts| many_threads(Policy::Range, cuts));
}

/// Makes a file whose writes are slow, while all other requests are fast.
fn slow(policy: Policy) -> (Volume, DirectFile) {
    let memory: Arc<MemDevice> = Arc::new(Shape::new(16, 4096, true).make());
    let profile = SimProfile::new(Duration::ZERO, 8).write_latency(Duration::from_millis(5));
    let volume = open(Arc::new(SimDevice::new(memory, profile)), policy, true);
    let file = volume.create_direct("/file").unwrap();
    (volume, file)
}

/// Writes both ranges at once, in fresh blocks, until one has waited for the other. Returns the
/// explanation of the wait.
fn wait_of(policy: Policy, places: [(u64, usize); 2]) -> String {
    for _ in 0..100 {
        let (volume, file) = slow(policy);
        file.set_len(1 << 20).unwrap();
        file.allocate(0..1 << 20, FileSize::Keep).unwrap();
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            for (offset, len) in places {
                let (file, start) = (&file, &start);
                scope.spawn(move || {
                    start.wait();
                    file.write_all_at(&vec![1; len], offset).unwrap();
                });
            }
        });
        assert_eq!(file.explain(), volume.explain());
        // A write that was to wait for the second one, which overtook it, knows no holder.
        if let Some(wait) = volume.explain().first().filter(|wait| wait.holder.is_some()) {
            return wait.to_string();
        }
    }
    panic!("two writes at once never met");
}

#[test]
fn a_wait_for_a_block_is_explained() {
    let said = wait_of(Policy::Range, [(12288, 1024), (14336, 1024)]);
    assert!(said.contains("its block was being initialised by a write of 1 KiB at 1"), "{said}");
}

#[test]
fn a_wait_for_the_file_is_explained() {
    for policy in [Policy::Exclusive, Policy::SharedOverwrite] {
        let said = wait_of(policy, [(512, 1024), (524_288, 1024)]);
        let why = "it initialises a block that it covers in part, for which it must hold the file exclusively; a write";
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn disjoint_blocks_do_not_meet_under_ranges() {
    let (volume, file) = slow(Policy::Range);
    file.set_len(1 << 20).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..4 {
                    file.write_all_at(&[1; 1024], (thread * 4 + round) * BLOCK + 512).unwrap();
                }
            });
        }
    });
    assert_eq!((volume.stats().waits, volume.explain()), (0, Vec::new()));
}
