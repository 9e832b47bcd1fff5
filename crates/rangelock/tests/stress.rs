//! Stress test: threads use an array of counters that detect two holders that should exclude each
//! other.
#![cfg(not(shuttle))]

use rangelock::{ByteRange, Mode, OwnedRangeGuard, RangeLock};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

const SLOTS: u64 = 64;
const THREADS: u64 = 6;
const ROUNDS: u64 = 3_000;
/// Bytes for each counter: all counters in one stripe of the lock, counters in different stripes,
/// and so far apart that most requests are wide.
const UNITS: [u64; 4] = [1, 24 << 10, 64 << 10, 3 << 20];
/// Weight of an exclusive holder; shared holders weigh 1. A counter below this has only shared
/// holders.
const WRITER: u64 = 1 << 32;

struct Slots {
    users: Vec<AtomicU64>,
    unit: u64,
}

impl Slots {
    fn new(unit: u64) -> Self {
        Self { users: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), unit }
    }

    fn of(&self, range: ByteRange) -> &[AtomicU64] {
        let (first, end) = (range.start() / self.unit, range.end() / self.unit);
        &self.users[first as usize..end.min(SLOTS) as usize]
    }

    fn enter(&self, guard: &OwnedRangeGuard) {
        for slot in self.of(guard.range()) {
            let before = slot.fetch_add(weight(guard.mode()), Ordering::Relaxed);
            match guard.mode() {
                Mode::Exclusive => assert_eq!(before, 0, "{guard:?} overlaps another holder"),
                Mode::Shared => assert!(before < WRITER, "{guard:?} overlaps an exclusive holder"),
            }
        }
    }

    fn leave(&self, guard: &OwnedRangeGuard) {
        for slot in self.of(guard.range()) {
            slot.fetch_sub(weight(guard.mode()), Ordering::Relaxed);
        }
    }
}

fn weight(mode: Mode) -> u64 {
    match mode {
        Mode::Shared => 1,
        Mode::Exclusive => WRITER,
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): a deterministic sequence for each seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn request(&mut self, unit: u64) -> (ByteRange, Mode) {
        let start = self.below(SLOTS);
        let range = match self.below(40) {
            0 => ByteRange::starting_at(start * unit),
            _ => ByteRange::new(start * unit, (start + 1 + self.below(8)).min(SLOTS) * unit),
        };
        (range, if self.below(3) == 0 { Mode::Exclusive } else { Mode::Shared })
    }
}

/// Acquires and narrows guards in each way; sends guards of callbacks to `elsewhere`. Returns the
/// number of callbacks.
fn work(
    seed: u64,
    lock: &Arc<RangeLock>,
    slots: &Arc<Slots>,
    called: &Arc<AtomicUsize>,
    elsewhere: &mpsc::Sender<OwnedRangeGuard>,
) -> usize {
    let (mut random, mut requested) = (Random(seed), 0);
    for _ in 0..ROUNDS {
        let (range, mode) = random.request(slots.unit);
        match random.below(4) {
            0 => {
                let (slots, called, elsewhere) = (Arc::clone(slots), Arc::clone(called), elsewhere.clone());
                requested += 1;
                lock.lock_with(range, mode, move |guard| {
                    slots.enter(&guard);
                    called.fetch_add(1, Ordering::Relaxed);
                    elsewhere.send(guard).expect("the releasing thread outlives the senders");
                });
            }
            1 => {
                if let Some(guard) = lock.try_lock_owned(range, mode) {
                    slots.enter(&guard);
                    slots.leave(&guard);
                }
            }
            2 => {
                let mut guard = lock.lock_owned(range, mode);
                slots.enter(&guard);
                slots.leave(&guard);
                guard.shrink(ByteRange::new(range.start(), range.start() + slots.unit));
                guard.downgrade();
                slots.enter(&guard);
                slots.leave(&guard);
            }
            _ => {
                let guard = lock.lock_owned(range, mode);
                slots.enter(&guard);
                thread::yield_now();
                slots.leave(&guard);
            }
        }
    }
    requested
}

#[test]
fn no_two_conflicting_holders_overlap() {
    UNITS.into_iter().for_each(stress);
}

fn stress(unit: u64) {
    let lock = Arc::new(RangeLock::new());
    let slots = Arc::new(Slots::new(unit));
    let called = Arc::new(AtomicUsize::new(0));
    let (elsewhere, completions) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            for guard in completions {
                slots.leave(&guard);
            }
        });
        let start = |seed| {
            let (lock, slots, called, elsewhere) = (&lock, &slots, &called, elsewhere.clone());
            scope.spawn(move || work(seed, lock, slots, called, &elsewhere))
        };
        let workers: Vec<_> = (0..THREADS).map(start).collect();
        drop(elsewhere);
        let requested: usize = workers.into_iter().map(|w| w.join().unwrap()).sum();
        while !lock.is_idle() {
            thread::yield_now();
        }
        assert_eq!(called.load(Ordering::Relaxed), requested);
    });
    assert!(slots.users.iter().all(|slot| slot.load(Ordering::Relaxed) == 0));
}
