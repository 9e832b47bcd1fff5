//! Models of the lock under shuttle's schedulers. Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test -p rangelock --release --test shuttle`.
//!
//! Shuttle itself reports a deadlock, and so a lost wake-up, as a panic.
#![cfg(shuttle)]

use rangelock::{ByteRange, Fault, Mode, OwnedRangeGuard, RangeLock};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Mutex, mpsc};
use shuttle::thread;
use std::panic::catch_unwind;
use std::sync::Arc;

const ITERATIONS: usize = 10_000;
/// Bugs of up to this many forced preemptions are found with known probability.
const PCT_DEPTH: usize = 3;
const SLOTS: u64 = 4;
/// Added by a writer; readers add 1.
const WRITER: u64 = 1 << 32;

type Model = fn(Option<Fault>);

fn check(model: Model) {
    shuttle::check_random(move || model(None), ITERATIONS);
    shuttle::check_pct(move || model(None), ITERATIONS, PCT_DEPTH);
}

/// Both schedulers must find that `model` does not hold for a lock with this defect.
fn check_finds(fault: Fault, model: Model) {
    let random = catch_unwind(|| shuttle::check_random(move || model(Some(fault)), ITERATIONS));
    assert!(random.is_err(), "the random scheduler misses {fault:?}");
    let pct = catch_unwind(|| shuttle::check_pct(move || model(Some(fault)), ITERATIONS, PCT_DEPTH));
    assert!(pct.is_err(), "the PCT scheduler misses {fault:?}");
}

fn new_lock(fault: Option<Fault>) -> Arc<RangeLock> {
    Arc::new(RangeLock::with_fault(fault))
}

/// Slots that notice any two holders that should exclude each other. Each access is a scheduling point.
struct Slots([AtomicU64; SLOTS as usize]);

impl Slots {
    fn new() -> Arc<Self> {
        Arc::new(Self(std::array::from_fn(|_| AtomicU64::new(0))))
    }

    fn enter(&self, range: ByteRange, mode: Mode) {
        for slot in self.of(range) {
            let before = slot.fetch_add(weight(mode), Ordering::SeqCst);
            let limit = if mode == Mode::Exclusive { 1 } else { WRITER };
            assert!(before < limit, "{mode:?} {range:?} is not excluded");
        }
    }

    fn leave(&self, range: ByteRange, mode: Mode) {
        for slot in self.of(range) {
            slot.fetch_sub(weight(mode), Ordering::SeqCst);
        }
    }

    fn visit(&self, range: ByteRange, mode: Mode) {
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

/// Takes no lazy iterator: that would start each thread after the one before has ended.
fn join_all<const N: usize>(threads: [thread::JoinHandle<()>; N]) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Overlapping readers and writers exclude each other, and each blocked one is woken.
fn mutual_exclusion(fault: Option<Fault>) {
    let (lock, slots) = (new_lock(fault), Slots::new());
    let requests = [
        (ByteRange::new(0, 2), Mode::Exclusive),
        (ByteRange::new(1, 3), Mode::Shared),
        (ByteRange::new(2, 4), Mode::Exclusive),
        (ByteRange::ALL, Mode::Shared),
    ];
    join_all(requests.map(|(range, mode)| {
        let (lock, slots) = (Arc::clone(&lock), Arc::clone(&slots));
        thread::spawn(move || {
            for _ in 0..2 {
                let _guard = lock.lock(range, mode);
                slots.visit(range, mode);
            }
        })
    }));
    assert!(lock.is_idle());
}

/// Small requests keep coming; none that arrives after the whole-range request is granted before it.
fn whole_range_is_not_passed(fault: Option<Fault>) {
    let lock = new_lock(fault);
    // The order of grants; a small one says whether it was requested after the whole range.
    let grants = Arc::new(Mutex::new(Vec::new()));
    let whole_has_arrived = Arc::new(AtomicU64::new(0));
    let small = [(); 3].map(|()| {
        let (lock, grants, arrived) =
            (Arc::clone(&lock), Arc::clone(&grants), Arc::clone(&whole_has_arrived));
        thread::spawn(move || {
            for _ in 0..3 {
                let after_whole = arrived.load(Ordering::SeqCst) == 1;
                let _guard = lock.shared(ByteRange::new(0, 1));
                grants.lock().unwrap().push(if after_whole { "after" } else { "before" });
            }
        })
    });
    let log = Arc::clone(&grants);
    lock.lock_with(ByteRange::ALL, Mode::Exclusive, move |_guard| log.lock().unwrap().push("whole"));
    whole_has_arrived.store(1, Ordering::SeqCst);
    join_all(small);
    let grants = grants.lock().unwrap();
    let whole = grants.iter().position(|&g| g == "whole").expect("the whole range is granted");
    assert!(!grants[..whole].contains(&"after"), "passed: {grants:?}");
}

/// Guards that a callback hands to another thread are released there, as with completed I/O.
fn callback_release_elsewhere(fault: Option<Fault>) {
    let (lock, slots) = (new_lock(fault), Slots::new());
    let (send, completions) = mpsc::channel::<OwnedRangeGuard>();
    let completer = {
        let slots = Arc::clone(&slots);
        thread::spawn(move || {
            for guard in completions {
                slots.leave(guard.range(), guard.mode());
            }
        })
    };
    let submitters = [(ByteRange::new(0, 3), Mode::Exclusive), (ByteRange::ALL, Mode::Shared)];
    let submitters = submitters.map(|(range, mode)| {
        let (lock, slots, send) = (Arc::clone(&lock), Arc::clone(&slots), send.clone());
        thread::spawn(move || {
            for _ in 0..2 {
                let (slots, send) = (Arc::clone(&slots), send.clone());
                lock.lock_with(range, mode, move |guard| {
                    slots.enter(range, mode);
                    send.send(guard).unwrap();
                });
            }
            let guard = lock.exclusive(ByteRange::new(2, 4));
            slots.visit(guard.range(), guard.mode());
        })
    });
    drop(send);
    join_all(submitters);
    completer.join().unwrap();
    assert!(lock.is_idle());
}

/// A downgrade lets readers in and keeps writers out; a shrink lets in who wants what it gave back.
fn downgrade_and_shrink(fault: Option<Fault>) {
    let (lock, slots) = (new_lock(fault), Slots::new());
    let mut all = lock.lock_owned(ByteRange::ALL, Mode::Exclusive);
    let requests = [
        (ByteRange::new(0, 2), Mode::Shared),
        (ByteRange::new(1, 2), Mode::Exclusive),
        (ByteRange::new(2, 4), Mode::Exclusive),
    ];
    let others = requests.map(|(range, mode)| {
        let (lock, slots) = (Arc::clone(&lock), Arc::clone(&slots));
        thread::spawn(move || {
            let _guard = lock.lock(range, mode);
            slots.visit(range, mode);
        })
    });
    slots.visit(all.range(), all.mode());
    all.shrink(ByteRange::new(0, 2));
    slots.visit(all.range(), all.mode());
    all.downgrade();
    slots.visit(all.range(), all.mode());
    drop(all);
    join_all(others);
    assert!(lock.is_idle());
}

/// What a shrink or a downgrade gives back is granted then, not only at the release.
fn narrowing_wakes(fault: Option<Fault>) {
    let lock = new_lock(fault);
    let mut held = lock.lock_owned(ByteRange::ALL, Mode::Exclusive);
    let taken = |range, mode| {
        let lock = Arc::clone(&lock);
        thread::spawn(move || drop(lock.lock(range, mode)))
    };
    let tail = taken(ByteRange::from(2), Mode::Exclusive);
    held.shrink(ByteRange::new(0, 2));
    tail.join().unwrap();
    let reader = taken(ByteRange::new(0, 1), Mode::Shared);
    held.downgrade();
    reader.join().unwrap();
}

/// `try_lock` never blocks and never breaks exclusion, whatever blocks and releases beside it.
fn try_beside_lock(fault: Option<Fault>) {
    let (lock, slots) = (new_lock(fault), Slots::new());
    let range = ByteRange::new(0, 2);
    join_all([0, 1, 2].map(|thread| {
        let (lock, slots) = (Arc::clone(&lock), Arc::clone(&slots));
        thread::spawn(move || {
            if thread == 0 {
                let _guard = lock.exclusive(range);
                slots.visit(range, Mode::Exclusive);
            } else if let Some(_guard) = lock.try_lock(range, Mode::Exclusive) {
                slots.visit(range, Mode::Exclusive);
            }
        })
    }));
    assert!(lock.is_idle());
}

#[test]
fn conflicting_holders_exclude_each_other() {
    check(mutual_exclusion);
}

#[test]
fn a_stream_of_small_ranges_does_not_pass_the_whole_range() {
    check(whole_range_is_not_passed);
}

#[test]
fn guards_are_released_by_another_thread() {
    check(callback_release_elsewhere);
}

#[test]
fn narrowed_guards_still_exclude() {
    check(downgrade_and_shrink);
}

#[test]
fn narrowing_grants_at_once() {
    check(narrowing_wakes);
}

/// Requests are granted in the order in which they took their places, and one that gives up wakes the next.
fn requests_in_order(fault: Option<Fault>) {
    let lock = Arc::new(RangeLock::with_fault(fault));
    let order = Arc::new(Mutex::new((0, Vec::new())));
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let (lock, order) = (Arc::clone(&lock), Arc::clone(&order));
            thread::spawn(move || {
                let (place, request) = {
                    let mut order = order.lock().unwrap();
                    order.0 += 1;
                    (order.0, lock.request(ByteRange::new(0, 10), Mode::Exclusive))
                };
                if thread == 1 {
                    return;
                }
                let _guard = request.wait();
                order.lock().unwrap().1.push(place);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let granted = &order.lock().unwrap().1;
    assert!(granted.len() == 2 && granted.is_sorted(), "{granted:?}");
    assert!(lock.is_idle());
}

#[test]
fn requests_keep_their_places() {
    check(requests_in_order);
    check_finds(Fault::SkipOverlapCheck, requests_in_order);
    check_finds(Fault::LoseWakeUps, requests_in_order);
}

#[test]
fn try_lock_excludes() {
    check(try_beside_lock);
}

#[test]
fn the_models_find_a_skipped_overlap_check() {
    check_finds(Fault::SkipOverlapCheck, mutual_exclusion);
    check_finds(Fault::SkipOverlapCheck, callback_release_elsewhere);
    check_finds(Fault::SkipOverlapCheck, downgrade_and_shrink);
    check_finds(Fault::SkipOverlapCheck, try_beside_lock);
}

#[test]
fn the_models_find_a_lost_wake_up() {
    check_finds(Fault::LoseWakeUps, mutual_exclusion);
    check_finds(Fault::LoseWakeUps, narrowing_wakes);
}

#[test]
fn the_models_find_requests_that_pass_waiters() {
    check_finds(Fault::PassWaiters, whole_range_is_not_passed);
}
