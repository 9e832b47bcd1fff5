//! Bursts of calls of all kinds on a file whose ranges move, concurrent with threads that read and
//! write before those ranges.
//!
//! A burst is so short that all orders of its calls can be tried: one order must explain the
//! results of all calls and the final contents of the file. The check accepts a moved range only at
//! its new offset.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use parext4::server::{PageFault, ServerFile};
use parext4::{Device, File, FileSize, Policy, ResearchOptions, Volume, VolumeOptions};

use super::calls::{Call, CompletedCall, FRONT, Model, Outcome, Way, describe, explained, tags};
use super::one_file::{FILE, ROUND, ROUND_OPERATIONS, bytes, offset, overwrites};
use testkit::device::{HookedDevice, SplitRequests};
use testkit::history::{Clock, Effect, Log};
use testkit::linearizability::explain;
use testkit::rng::Rng;
use testkit::sector::{Seen, Stamp, filled, identify_all};
use testkit::volume::{DirectFiles as _, Shape, assert_clean};
use testkit::watchdog::Watchdog;
use testkit::{settings, slowest};

/// Number of files. Each has threads for its bursts, and threads that read and write before the
/// burst's ranges.
const FILES: usize = 2;
const CALLERS: usize = 4;
/// Calls of one thread in a burst.
const CALLS: usize = 2;
const IN_FRONT: usize = 2;
const THREADS: usize = CALLERS + IN_FRONT;
/// Approximate maximum of the sectors of a file past the front.
const MOST: u64 = 1024;
const LONGEST: u64 = FRONT;

/// One of the files.
struct Bursts<'a> {
    file: File,
    policy: Policy,
    block: u64,
    seed: u64,
    clock: Clock,
    /// The number of the next write.
    number: AtomicU64,
    watchdog: &'a Watchdog,
    /// The thread's first slot in the front.
    slot: usize,
}

impl Bursts<'_> {
    /// Runs bursts past the front, and reads and writes before it. `model` and `base` are the
    /// contents before and after.
    fn round(&self, rng: &mut Rng, model: &mut Model, base: &mut Vec<Seen>) {
        let over = AtomicBool::new(false);
        let mut log = Log::default();
        std::thread::scope(|scope| {
            let over = &over;
            let in_front = |nth| {
                let rng = Rng::new(rng.next(), nth as u64);
                scope.spawn(move || self.in_front(nth, rng, over))
            };
            let threads: Vec<_> = (0..IN_FRONT).map(in_front).collect();
            let deadline = Instant::now() + ROUND;
            while Instant::now() < deadline {
                self.burst(rng, model);
            }
            over.store(true, Ordering::Relaxed);
            threads
                .into_iter()
                .for_each(|thread| log.append(thread.join().expect("a thread in front failed")));
        });
        let start = self.clock.tick();
        let front = self.read(0, FRONT, rng.chance(50));
        log.saw((start, self.clock.tick()), FILE, (0, FRONT), &front)
            .and_then(|()| explain(base, &log, overwrites(self.policy)))
            .unwrap_or_else(|e| panic!("seed {}: in front: {e}", self.seed));
        *base = identify_all(&front, FILE, 0).expect("identified before");
    }

    fn read(&self, first: u64, sectors: u64, buffered: bool) -> Vec<u8> {
        let mut data = vec![0; bytes(sectors)];
        let read = if buffered {
            self.file.read_at(&mut data, offset(first))
        } else {
            self.file.direct().read_at(&mut data, offset(first))
        };
        data.truncate(read.expect("read_at"));
        data
    }

    fn burst(&self, rng: &mut Rng, model: &mut Model) {
        let size = FRONT + model.len() as u64;
        let begin = Barrier::new(CALLERS);
        let made: Vec<Vec<CompletedCall>> = std::thread::scope(|scope| {
            let begin = &begin;
            let call = |nth: usize| {
                let calls: Vec<_> = (0..CALLS).map(|_| self.choose(rng, size)).collect();
                scope.spawn(move || {
                    begin.wait();
                    calls.into_iter().map(|call| self.make(nth, call)).collect()
                })
            };
            let threads: Vec<_> = (0..CALLERS).map(call).collect();
            threads.into_iter().map(|thread| thread.join().expect("a call failed")).collect()
        });
        let data = self.read(FRONT, 2 * MOST + size, rng.chance(50));
        let after = tags(&data, FRONT);
        let threads: Vec<_> = made.iter().map(Vec::as_slice).collect();
        assert!(
            explained(model, &threads, &after),
            "seed {}: no order of {made:?} leads from {} to {}",
            self.seed,
            describe(model),
            describe(&after)
        );
        *model = after;
    }

    fn make(&self, nth: usize, call: Call) -> CompletedCall {
        let start = self.clock.tick();
        let outcome = self.watchdog.watch(self.slot + nth, || call.make(&self.file));
        CompletedCall { call, start, end: self.clock.tick(), outcome }
    }

    /// Returns a call on a file of `size` sectors.
    fn choose(&self, rng: &mut Rng, size: u64) -> Call {
        let near = if rng.chance(50) { LONGEST } else { size - FRONT + LONGEST / 4 };
        let (first, sectors) = (FRONT + rng.below(near), rng.log_uniform(LONGEST));
        // Whole blocks.
        let (begin, blocks) = (first / self.block * self.block, sectors.next_multiple_of(self.block));
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (way, flag) = (self.way(rng), rng.chance(50));
        match rng.below(100) {
            0..20 => Call::Read { first, sectors, way: self.way_to_read(rng) },
            20..36 if way == Way::Untorn => {
                let sectors = self.block << rng.below(3);
                Call::Write { first: first / sectors * sectors, sectors, number, way }
            }
            20..36 => Call::Write { first, sectors, number, way },
            36..46 if size < MOST => Call::Append { sectors, number, way },
            46..51 => Call::SetLen { size: FRONT + rng.below((2 * (size - FRONT)).clamp(1, MOST)) },
            51..55 => Call::Allocate { first, sectors, keep_size: flag },
            55..60 => Call::Punch { first, sectors },
            60..65 => Call::Zero { first, sectors, keep_size: flag },
            65..77 if size < MOST => Call::Insert { first: begin, sectors: blocks },
            77..90 => Call::Collapse { first: begin, sectors: blocks },
            90..95 => Call::Fault { first, write: flag },
            _ => Call::Sync { first, sectors },
        }
    }

    /// Returns true under the policy in which direct overwrites share the file, and buffered reads
    /// share it with every write: neither takes effect at one moment.
    fn shares(&self) -> bool {
        self.policy == Policy::SharedOverwrite
    }

    fn way(&self, rng: &mut Rng) -> Way {
        match rng.below(4) {
            0 => Way::Buffered,
            1 => Way::Vectored,
            _ if self.shares() => Way::Buffered,
            2 => Way::Untorn,
            _ => Way::Direct,
        }
    }

    fn way_to_read(&self, rng: &mut Rng) -> Way {
        match rng.below(3) {
            _ if self.shares() => Way::Direct,
            0 => Way::Direct,
            1 => Way::Buffered,
            _ => Way::Vectored,
        }
    }

    /// Runs a thread that reads and writes before the bursts.
    fn in_front(&self, nth: usize, mut rng: Rng, over: &AtomicBool) -> Log {
        let mut log = Log::default();
        for _ in 0..ROUND_OPERATIONS {
            if over.load(Ordering::Relaxed) {
                break;
            }
            self.watchdog.watch(self.slot + CALLERS + nth, || self.one_in_front(nth, &mut rng, &mut log));
        }
        log
    }

    fn one_in_front(&self, nth: usize, rng: &mut Rng, log: &mut Log) {
        let first = rng.below(FRONT);
        let end = (first + rng.log_uniform(FRONT)).min(FRONT);
        let (at, len) = (offset(first), offset(end - first));
        let (file, buffered) = (self.file.direct(), rng.chance(60));
        let start = self.clock.tick();
        match rng.below(100) {
            0..40 => {
                let data = self.read(first, end - first, buffered && !self.shares());
                let saw = log.saw((start, self.clock.tick()), FILE, (first, end), &data);
                saw.unwrap_or_else(|e| panic!("seed {}: in front: {e}", self.seed));
            }
            40..80 => {
                let sequence = self.number.fetch_add(1, Ordering::Relaxed);
                let writer = u32::try_from(nth).unwrap() + 1;
                let stamp = Stamp { file: FILE, writer, sequence, origin: 0 };
                let data = filled(first, end - first, stamp);
                let written =
                    if buffered { self.file.write_all_at(&data, at) } else { file.write_all_at(&data, at) };
                written.expect("write_at");
                let effect = Effect::Write { first, end, stamp, append: false };
                log.changed(start, self.clock.tick(), effect);
            }
            80..88 => {
                let done = if buffered {
                    file.punch_hole(at..at + len)
                } else {
                    file.zero_range(at..at + len, FileSize::Keep)
                };
                done.expect("punch_hole or zero_range");
                let effect = Effect::Zero { first, end, grows: false };
                log.changed(start, self.clock.tick(), effect);
            }
            88..94 => {
                self.file
                    .fault(at, if buffered { PageFault::Store } else { PageFault::Load })
                    .expect("fault");
            }
            94..97 => slowest::fsync(|| self.file.sync_range(at..at + len)).expect("sync_range"),
            _ => slowest::fsync(|| self.file.sync_data()).expect("sync_data"),
        }
    }
}

/// Runs one configuration, then compares the contents after a new open.
fn run(name: &str, policy: Policy, block_size: u32, journal: bool, chopped: bool) {
    let seed = settings::seed(name);
    let memory = Arc::new(Shape::new(64, block_size, journal).make());
    let mut device: Arc<dyn Device> = Arc::clone(&memory) as _;
    if chopped {
        device = Arc::new(HookedDevice::new(device, SplitRequests::new(u64::from(block_size))));
    }
    // A cache so small that pages are evicted and written back all the time.
    let write_back_interval = Some(Duration::from_millis(20));
    let options = VolumeOptions::new()
        .cache_bytes(1 << 20)
        .write_back_interval(write_back_interval)
        .research(ResearchOptions::new().policy(policy));
    let volume = Volume::open_device(Arc::clone(&device), &options).expect("open");
    let watchdog = Watchdog::start(name, seed, FILES * THREADS);
    let models: Vec<Model> = std::thread::scope(|scope| {
        let (volume, watchdog) = (&volume, &watchdog);
        let one = |nth: usize| {
            scope.spawn(move || {
                let file = volume.create_direct(format!("/{nth}")).expect("create");
                file.set_len(offset(FRONT)).expect("set_len");
                let file = file.buffered().expect("buffered");
                let (clock, number, slot) = (Clock::default(), AtomicU64::new(1), nth * THREADS);
                let block = u64::from(block_size) / offset(1);
                let bursts = Bursts { file, policy, block, seed, clock, number, watchdog, slot };
                let (mut rng, deadline) =
                    (Rng::new(seed, nth as u64), Instant::now() + settings::seconds(3.0));
                let (mut model, mut base) =
                    (Model::new(), identify_all(&vec![0; bytes(FRONT)], FILE, 0).unwrap());
                while Instant::now() < deadline {
                    bursts.round(&mut rng, &mut model, &mut base);
                }
                model
            })
        };
        let threads: Vec<_> = (0..FILES).map(one).collect();
        threads.into_iter().map(|thread| thread.join().expect("a file failed")).collect()
    });
    volume.close().expect("close");

    let volume = Volume::open_device(device, &VolumeOptions::new().read_only(true)).expect("open again");
    for (nth, model) in models.iter().enumerate() {
        let file = volume.direct_file(format!("/{nth}")).expect("open_file");
        let read = Call::Read { first: FRONT, sectors: 3 * MOST, way: Way::Direct };
        let again = read.make(&file.buffered().expect("buffered"));
        assert!(
            again == Outcome::Saw(model.clone()),
            "seed {seed}: another open finds other contents in {nth}"
        );
    }
    drop(volume);
    assert_clean(&memory, name);
}

macro_rules! configurations {
    ($($name:ident: $policy:ident, $block_size:expr, $journal:expr, $chopped:expr;)*) => {$(
        #[test]
        fn $name() {
            run(stringify!($name), Policy::$policy, $block_size, $journal, $chopped);
        }
    )*};
}

configurations! {
    bursts_1k: Range, 1024, true, true;
    bursts_2k_no_journal: Range, 2048, false, true;
    bursts_4k: Range, 4096, true, false;
    bursts_exclusive_1k: Exclusive, 1024, true, true;
    bursts_exclusive_4k: Exclusive, 4096, true, false;
    bursts_shared_overwrite_1k: SharedOverwrite, 1024, true, true;
    bursts_shared_overwrite_4k: SharedOverwrite, 4096, true, false;
}
