//! What it costs to take a range and give it back, beside the locks of one piece that it could be replaced by.
//!
//! `cargo bench -p rangelock`. Times are per operation and thread: where threads do not hinder each other they
//! are the same for 1 thread as for 2 (and more, with as many processors). The samples are long enough for
//! the threads of each to run side by side.

use divan::{Bencher, black_box};
use rangelock::{ByteRange, Mode, OwnedRangeGuard, RangeLock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const THREADS: [usize; 4] = [1, 2, 4, 8];
const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;

fn main() {
    divan::main();
}

thread_local! {
    static THREAD: u64 = {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        COUNT.fetch_add(1, Ordering::Relaxed)
    };
}

fn thread() -> u64 {
    THREAD.with(|&thread| thread)
}

/// The blocks of 4 KiB of a thread's own GiB, one after the other.
fn next_block() -> ByteRange {
    thread_local!(static BLOCK: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    let block = BLOCK.replace((BLOCK.get() + 1) % (GIB / (4 * KIB)));
    let start = thread() * GIB + block * 4 * KIB;
    ByteRange::new(start, start + 4 * KIB)
}

/// A lock that has seen several ranges at once, and so has spread over its slots.
fn spread() -> RangeLock {
    let lock = RangeLock::new();
    let many: Vec<_> = (0..32).map(|i| lock.shared(ByteRange::new(i, i + 1))).collect();
    drop(many);
    lock
}

#[divan::bench(threads = THREADS, sample_count = 20, sample_size = 20_000)]
fn mutex(bencher: Bencher) {
    let lock = Mutex::new(0);
    bencher.bench(|| drop(black_box(lock.lock())));
}

#[divan::bench(threads = THREADS, sample_count = 20, sample_size = 20_000)]
fn rwlock_read(bencher: Bencher) {
    let lock = parking_lot::RwLock::new(0);
    bencher.bench(|| drop(black_box(lock.read())));
}

#[divan::bench(threads = THREADS, sample_count = 20, sample_size = 20_000)]
fn disjoint_new(bencher: Bencher) {
    let lock = RangeLock::new();
    bencher.bench(|| drop(black_box(lock.exclusive(next_block()))));
}

#[divan::bench(threads = THREADS, sample_count = 20, sample_size = 20_000)]
fn disjoint(bencher: Bencher) {
    let lock = spread();
    bencher.bench(|| drop(black_box(lock.exclusive(next_block()))));
}

#[divan::bench(threads = THREADS, sample_count = 20, sample_size = 20_000)]
fn two_stripes(bencher: Bencher) {
    let lock = spread();
    let shift = |range: ByteRange| ByteRange::new(range.start() + 62 * KIB, range.end() + 62 * KIB);
    bencher.bench(|| drop(black_box(lock.exclusive(shift(next_block().round_out(64 * KIB))))));
}

#[divan::bench(threads = THREADS, sample_count = 20, sample_size = 20_000)]
fn whole_file_shared(bencher: Bencher) {
    let lock = spread();
    bencher.bench(|| drop(black_box(lock.shared(ByteRange::ALL))));
}

#[divan::bench(threads = THREADS, sample_count = 20, sample_size = 20_000)]
fn same_block_shared(bencher: Bencher) {
    let lock = spread();
    bencher.bench(|| drop(black_box(lock.shared(ByteRange::new(0, 4 * KIB)))));
}

#[divan::bench(threads = THREADS, sample_count = 20, sample_size = 20_000)]
fn same_block_exclusive(bencher: Bencher) {
    let lock = spread();
    bencher.bench(|| drop(black_box(lock.exclusive(ByteRange::new(0, 4 * KIB)))));
}

/// Of 16 requests 14 are for a block, one for a MiB, and one for everything from there on, shared.
#[divan::bench(threads = THREADS, sample_count = 20, sample_size = 20_000)]
fn mixed_widths(bencher: Bencher) {
    let lock = spread();
    bencher.bench(|| {
        let block = next_block();
        let guard = match block.start() / (4 * KIB) % 16 {
            0 => lock.shared(ByteRange::from(block.start())),
            1 => lock.shared(block.round_out(1 << 20)),
            _ => lock.shared(block),
        };
        drop(black_box(guard));
    });
}

/// How long a block takes while so many others are held.
#[divan::bench(args = [0, 32, 2048], sample_count = 20, sample_size = 20_000)]
fn among_holders(bencher: Bencher, holders: u64) {
    let lock = RangeLock::new();
    let blocks = (0..holders).map(|i| ByteRange::new(i * 4 * KIB, (i + 1) * 4 * KIB));
    let held: Vec<_> = blocks.map(|block| lock.exclusive(block)).collect();
    let block = ByteRange::new(holders * 4 * KIB, (holders + 1) * 4 * KIB);
    bencher.bench_local(|| drop(black_box(lock.exclusive(block))));
    drop(held);
}

/// How long it takes to get into the queue for one byte, and to be granted from it by a release, with so many
/// others in it.
#[divan::bench(args = [1, 32, 2048], sample_count = 20, sample_size = 20_000)]
fn in_queue_for_a_byte(bencher: Bencher, waiters: usize) {
    let (lock, byte) = (Arc::new(RangeLock::new()), ByteRange::new(0, 1));
    let (send, granted) = std::sync::mpsc::channel::<OwnedRangeGuard>();
    let enqueue = || {
        let send = send.clone();
        lock.lock_with(byte, Mode::Exclusive, move |guard| drop(send.send(guard)))
    };
    for _ in 0..=waiters {
        enqueue();
    }
    bencher.bench_local(|| {
        drop(granted.recv());
        enqueue()
    });
    // Lets the rest go.
    while !lock.is_idle() {
        drop(granted.recv());
    }
}
