//! Measures the time to acquire and release a range, with rangelock and with other locks.
//!
//! `cargo bench -p rangelock` prints tables; `-- --json` prints one JSON object for each figure;
//! `-- --rounds N` measures longer. A figure is the median of the rounds; in each round all locks
//! run in turn. It is elapsed time divided by the number of operations of all threads, so with
//! perfect scaling 2 threads take half the time of 1.

mod locks;
mod report;

use locks::{CasPair, List, Ranges, Tree};
use rangelock::{ByteRange, Mode, OwnedRangeGuard, RangeLock};
use report::Report;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, RwLock, mpsc};
use std::time::{Duration, Instant};

const THREADS: [u64; 4] = [1, 2, 4, 8];
const ROUNDS: usize = 7;
/// Operations of a single thread in each of `ROUNDS_ALONE` rounds.
const OPERATIONS_ALONE: u64 = 1 << 14;
const ROUNDS_ALONE: usize = 50;
/// A round ends after this time, or when a thread has done `MOST_OPERATIONS`.
const ROUND: Duration = Duration::from_millis(8);
const MOST_OPERATIONS: u64 = 1 << 20;
/// Operations between two reads of the clock.
const BATCH: u64 = 1 << 8;

const KIB: u64 = 1 << 10;
const BLOCK: u64 = 4 * KIB;
const GIB: u64 = 1 << 30;

/// The range that a thread acquires in a turn.
type Pattern = fn(thread: u64, turn: u64) -> ByteRange;

const PATTERNS: [(&str, Pattern); 5] = [
    ("a thread's own blocks", own_blocks),
    ("random blocks", random_blocks),
    ("one block", |_, _| block(0)),
    ("overlapping ranges", overlapping),
    ("mixed widths", mixed_widths),
];

fn block(number: u64) -> ByteRange {
    ByteRange::new(number * BLOCK, (number + 1) * BLOCK)
}

fn own_blocks(thread: u64, turn: u64) -> ByteRange {
    block(thread * (GIB / BLOCK) + turn % (GIB / BLOCK))
}

/// Random blocks of a file of 4 GiB.
fn random_blocks(thread: u64, turn: u64) -> ByteRange {
    // Steele, Lea and Flood's SplitMix64 (2014).
    let z = (thread << 32 | turn).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    block((z ^ (z >> 31)) % (4 * GIB / BLOCK))
}

/// Ranges of four blocks within 128 KiB; adjacent ones share two blocks.
fn overlapping(thread: u64, turn: u64) -> ByteRange {
    let first = (thread + turn) % 15 * 2;
    ByteRange::new(first * BLOCK, (first + 4) * BLOCK)
}

/// Of 16 requests, 14 are for a block, one is for 1 MiB, and one is for all bytes from an offset.
fn mixed_widths(thread: u64, turn: u64) -> ByteRange {
    let block = own_blocks(thread, turn);
    match turn % 16 {
        0 => ByteRange::starting_at(block.start()),
        1 => block.round_out(KIB * KIB),
        _ => block,
    }
}

/// Returns nanoseconds per operation of all `threads`.
fn measure<L: Ranges>(lock: &L, threads: u64, pattern: Pattern, mode: Mode) -> f64 {
    let start = Barrier::new(threads as usize);
    let rate = |thread| {
        let mut own = lock.of_thread(MOST_OPERATIONS);
        start.wait();
        let (begin, mut turn) = (Instant::now(), 0);
        while turn < MOST_OPERATIONS && begin.elapsed() < ROUND {
            for turn in turn..turn + BATCH {
                lock.visit(&mut own, pattern(thread, turn), mode);
            }
            turn += BATCH;
        }
        turn as f64 / begin.elapsed().as_nanos() as f64
    };
    let rates = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || rate(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no assertion fails")).sum::<f64>()
    });
    1.0 / rates
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Measures a new lock once.
type Figure = fn(u64, Pattern, Mode) -> f64;

fn figure<L: Ranges + Default>() -> Figure {
    |threads, pattern, mode| measure(&L::default(), threads, pattern, mode)
}

fn compare(report: &mut Report, rounds: usize) {
    let locks = [
        ("2 CAS", figure::<CasPair>()),
        ("parking_lot", figure::<parking_lot::RwLock<()>>()),
        ("std RwLock", figure::<RwLock<()>>()),
        ("tree", figure::<Tree>()),
        ("list", figure::<List>()),
        ("rangelock", figure::<RangeLock>()),
    ];
    report.columns(locks.iter().map(|(name, _)| *name));
    for (name, pattern) in PATTERNS {
        for mode in [Mode::Shared, Mode::Exclusive] {
            for threads in THREADS {
                let mut figures = locks.map(|_| Vec::new());
                for _ in 0..rounds {
                    for (figures, (_, run)) in figures.iter_mut().zip(locks) {
                        figures.push(run(threads, pattern, mode));
                    }
                }
                report.row(name, mode, threads, &figures.map(median));
            }
        }
    }
    report.ratios();
}

/// Returns a lock that has held 32 ranges at once, and so has expanded to a table of slots.
fn expanded() -> RangeLock {
    let lock = RangeLock::new();
    drop((0..32).map(|i| lock.shared(ByteRange::new(i, i + 1))).collect::<Vec<_>>());
    lock
}

/// Measures one thread in special cases. Reports the best round, because only other programs
/// disturb a single thread.
fn alone(report: &mut Report, rounds: usize) {
    let mut each = |name: &str, run: &mut dyn FnMut(u64)| {
        let mut one = || {
            let begin = Instant::now();
            (0..OPERATIONS_ALONE).for_each(&mut *run);
            begin.elapsed().as_nanos() as f64 / OPERATIONS_ALONE as f64
        };
        report.single(name, (0..rounds).map(|_| one()).fold(f64::INFINITY, f64::min));
    };
    let word = AtomicU64::new(0);
    each("two compare-and-swaps", &mut |turn| {
        black_box(word.compare_exchange(0, turn + 1, Ordering::Acquire, Ordering::Relaxed)).ok();
        black_box(word.compare_exchange(turn + 1, 0, Ordering::Release, Ordering::Relaxed)).ok();
    });
    let lock = parking_lot::RwLock::new(());
    each("parking_lot::RwLock, shared", &mut |_| drop(black_box(lock.read())));
    let lock = RangeLock::new();
    each("a block, one slot", &mut |turn| drop(black_box(lock.exclusive(own_blocks(0, turn)))));
    each("the file, one slot", &mut |_| drop(black_box(lock.exclusive(ByteRange::ALL))));
    let lock = expanded();
    each("a block", &mut |turn| drop(black_box(lock.exclusive(own_blocks(0, turn)))));
    let crossing = |turn| ByteRange::new(turn * 64 * KIB + 62 * KIB, turn * 64 * KIB + 66 * KIB);
    each("a block in two stripes", &mut |turn| drop(black_box(lock.exclusive(crossing(turn)))));
    let mib = |turn| own_blocks(0, turn * 256).round_out(KIB * KIB);
    each("a MiB", &mut |turn| drop(black_box(lock.exclusive(mib(turn)))));
    each("the file", &mut |_| drop(black_box(lock.exclusive(ByteRange::ALL))));
    let other = lock.exclusive(block(0));
    each("a block, another held in its stripe", &mut |_| drop(black_box(lock.exclusive(block(1)))));
    drop(other);
    for holders in [32, 2048] {
        let held: Vec<_> = (0..holders).map(|i| lock.exclusive(block(i))).collect();
        let name = format!("a block, with {holders} held");
        each(&name, &mut |turn| drop(black_box(lock.exclusive(block(holders + turn % holders)))));
        drop(held);
    }
    for waiters in [1, 32, 2048] {
        in_queue_for_a_byte(waiters, |run| each(&format!("in a queue of {waiters} callbacks"), run));
    }
}

/// Measures a release that grants the first of `waiters` callbacks queued for one byte, and the
/// request that queues again.
fn in_queue_for_a_byte(waiters: usize, measure: impl FnOnce(&mut dyn FnMut(u64))) {
    let (lock, byte) = (Arc::new(RangeLock::new()), ByteRange::new(0, 1));
    let (send, granted) = mpsc::channel::<OwnedRangeGuard>();
    let enqueue = || {
        let send = send.clone();
        lock.lock_with(byte, Mode::Exclusive, move |guard| drop(send.send(guard)))
    };
    for _ in 0..=waiters {
        enqueue();
    }
    measure(&mut |_| {
        drop(granted.recv());
        enqueue();
    });
    // Releases the remaining grants.
    while !lock.is_idle() {
        drop(granted.recv());
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let after = |name| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1));
    let rounds = after("--rounds").and_then(|n| n.parse().ok()).unwrap_or(ROUNDS).max(1);
    let mut report = Report::new(arguments.iter().any(|a| a == "--json"));
    alone(&mut report, ROUNDS_ALONE);
    compare(&mut report, rounds);
}

impl Ranges for RangeLock {
    type OfThread = ();

    fn of_thread(&self, _: u64) {}

    fn visit(&self, (): &mut (), range: ByteRange, mode: Mode) {
        drop(black_box(self.lock(range, mode)));
    }
}
