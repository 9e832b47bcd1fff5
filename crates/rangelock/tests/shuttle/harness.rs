//! Runs a model under both schedulers, from a new and from an expanded lock.

use rangelock::{ByteRange, Fault, Mode, RangeLock, plant};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;
use std::sync::Arc;

const ITERATIONS: usize = 10_000;
/// The PCT scheduler finds bugs of up to this many forced preemptions with known probability.
const PCT_DEPTH: usize = 3;
const SLOTS: u64 = 4;
/// Weight of an exclusive holder in [`Slots`]; shared holders weigh 1.
const WRITER: u64 = 1 << 32;

pub(crate) type Model = fn(Arc<RangeLock>);

/// The state of the lock in which a model starts. An expanded lock never shrinks, so each model
/// runs from both.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    /// A single slot for all ranges. Most models make it expand on the way.
    New,
    /// A table of slots.
    Expanded,
}

impl Start {
    fn lock(self) -> Arc<RangeLock> {
        let lock = Arc::new(RangeLock::new());
        if matches!(self, Self::Expanded) {
            drop([0, 1, 2].map(|byte| lock.lock_owned(ByteRange::new(byte, byte + 1), Mode::Shared)));
        }
        lock
    }
}

pub(crate) fn check(model: Model) {
    let iterations = without_fault();
    for start in [Start::New, Start::Expanded] {
        shuttle::check_random(move || model(start.lock()), iterations);
        shuttle::check_pct(move || model(start.lock()), iterations, PCT_DEPTH);
    }
}

/// Returns the number of schedules to try without a fault: [`ITERATIONS`], multiplied by
/// `PAREXT4_MODEL_FACTOR`.
fn without_fault() -> usize {
    let factor =
        std::env::var("PAREXT4_MODEL_FACTOR").map_or(1.0, |factor| factor.parse().expect("a number"));
    ((ITERATIONS as f64 * factor) as usize).max(1)
}

/// Returns true if `work` panics with `fault` planted. Runs it on a new thread: after a panic while
/// another task holds a lock, shuttle leaves the thread marked as panicking.
fn fails(fault: Fault, work: impl FnOnce() + Send + 'static) -> bool {
    let faulty = move || {
        plant(Some(fault));
        work();
    };
    std::thread::spawn(faulty).join().is_err()
}

/// Asserts that both schedulers make `model` fail with `fault`.
pub(crate) fn check_finds(fault: Fault, start: Start, model: Model) {
    let run = move || model(start.lock());
    let finds = fails(fault, move || shuttle::check_random(run, ITERATIONS));
    assert!(finds, "the random scheduler misses {fault:?} from {start:?}");
    check_pct_finds(fault, start, model);
}

/// Like [`check_finds`] with the PCT scheduler only: for faults that need one thread delayed for
/// longer than the random scheduler ever does.
pub(crate) fn check_pct_finds(fault: Fault, start: Start, model: Model) {
    let run = move || model(start.lock());
    let finds = fails(fault, move || shuttle::check_pct(run, ITERATIONS, PCT_DEPTH));
    assert!(finds, "the PCT scheduler misses {fault:?} from {start:?}");
}

/// Counters, one for each byte, that detect two holders that should exclude each other. Each access
/// is a scheduling point.
pub(crate) struct Slots([AtomicU64; SLOTS as usize]);

impl Slots {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(std::array::from_fn(|_| AtomicU64::new(0))))
    }

    pub(crate) fn enter(&self, range: ByteRange, mode: Mode) {
        for slot in self.of(range) {
            let before = slot.fetch_add(weight(mode), Ordering::SeqCst);
            let limit = if mode == Mode::Exclusive { 1 } else { WRITER };
            assert!(before < limit, "{mode:?} {range:?} is not excluded");
        }
    }

    pub(crate) fn leave(&self, range: ByteRange, mode: Mode) {
        for slot in self.of(range) {
            slot.fetch_sub(weight(mode), Ordering::SeqCst);
        }
    }

    pub(crate) fn visit(&self, range: ByteRange, mode: Mode) {
        self.enter(range, mode);
        self.leave(range, mode);
    }

    fn of(&self, range: ByteRange) -> &[AtomicU64] {
        &self.0[range.start() as usize..range.end().min(SLOTS) as usize]
    }
}

fn weight(mode: Mode) -> u64 {
    if mode == Mode::Exclusive { WRITER } else { 1 }
}

/// Joins all threads. Takes an array, because a lazy iterator would start each thread after the
/// previous one ended.
pub(crate) fn join_all<const N: usize>(threads: [thread::JoinHandle<()>; N]) {
    for thread in threads {
        thread.join().unwrap();
    }
}
