//! Models of the lock under shuttle's schedulers. Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test -p rangelock --release --test shuttle`.
//!
//! Shuttle itself reports a deadlock, and so a lost wake-up, as a panic.
#![cfg(shuttle)]

use rangelock::{ByteRange, Fault, Mode, OwnedRangeGuard, RangeLock};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Mutex, mpsc};
use shuttle::thread;
use std::sync::Arc;

const ITERATIONS: usize = 10_000;
/// Bugs of up to this many forced preemptions are found with known probability.
const PCT_DEPTH: usize = 3;
const SLOTS: u64 = 4;
/// Added by a writer; readers add 1.
const WRITER: u64 = 1 << 32;

type Model = fn(Arc<RangeLock>);

/// A lock has two states for good, so each model starts from both.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// One queue for all ranges; most models let it spread on the way.
    New,
    /// A queue for each slot.
    Spread,
}

impl Start {
    fn lock(self, fault: Option<Fault>) -> Arc<RangeLock> {
        let lock = Arc::new(RangeLock::with_fault(fault));
        if matches!(self, Self::Spread) {
            drop([0, 1, 2].map(|byte| lock.lock_owned(ByteRange::new(byte, byte + 1), Mode::Shared)));
        }
        lock
    }
}

fn check(model: Model) {
    for start in [Start::New, Start::Spread] {
        shuttle::check_random(move || model(start.lock(None)), ITERATIONS);
        shuttle::check_pct(move || model(start.lock(None)), ITERATIONS, PCT_DEPTH);
    }
}

/// Whether `work` panics. It has a thread of its own: where a panic meets a lock that another task holds, the thread counts
/// as panicking for ever.
fn fails(work: impl FnOnce() + Send + 'static) -> bool {
    std::thread::spawn(work).join().is_err()
}

/// Both schedulers must find that `model` does not hold for a lock with this defect.
fn check_finds(fault: Fault, start: Start, model: Model) {
    let run = move || model(start.lock(Some(fault)));
    let finds = fails(move || shuttle::check_random(run, ITERATIONS));
    assert!(finds, "the random scheduler misses {fault:?} from {start:?}");
    check_pct_finds(fault, start, model);
}

/// As [`check_finds`], where one thread must be held back for so long that the random scheduler hardly ever
/// does it.
fn check_pct_finds(fault: Fault, start: Start, model: Model) {
    let run = move || model(start.lock(Some(fault)));
    let finds = fails(move || shuttle::check_pct(run, ITERATIONS, PCT_DEPTH));
    assert!(finds, "the PCT scheduler misses {fault:?} from {start:?}");
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
fn mutual_exclusion(lock: Arc<RangeLock>) {
    let slots = Slots::new();
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
fn whole_range_is_not_passed(lock: Arc<RangeLock>) {
    // The order of grants; a small one says whether it was requested after the whole range.
    let grants = Arc::new(Mutex::new(Vec::new()));
    let whole_has_arrived = Arc::new(AtomicU64::new(0));
    let small = [0, 0, 1].map(|byte| {
        let (lock, grants, arrived) =
            (Arc::clone(&lock), Arc::clone(&grants), Arc::clone(&whole_has_arrived));
        thread::spawn(move || {
            for _ in 0..3 {
                let after_whole = arrived.load(Ordering::SeqCst) == 1;
                let _guard = lock.shared(ByteRange::new(byte, byte + 1));
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
fn callback_release_elsewhere(lock: Arc<RangeLock>) {
    let slots = Slots::new();
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
fn downgrade_and_shrink(lock: Arc<RangeLock>) {
    let slots = Slots::new();
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
fn narrowing_wakes(lock: Arc<RangeLock>) {
    let taken = |range, mode| {
        let lock = Arc::clone(&lock);
        thread::spawn(move || drop(lock.lock(range, mode)))
    };
    let pair = ByteRange::new(0, 2);
    for (range, tail, head) in
        [(ByteRange::ALL, ByteRange::from(2), pair), (pair, ByteRange::new(1, 2), ByteRange::new(0, 1))]
    {
        let mut held = lock.lock_owned(range, Mode::Exclusive);
        let tail = taken(tail, Mode::Exclusive);
        held.shrink(head);
        tail.join().unwrap();
        let reader = taken(ByteRange::new(0, 1), Mode::Shared);
        held.downgrade();
        reader.join().unwrap();
    }
}

/// `try_lock` never blocks and never breaks exclusion, whatever blocks and releases beside it.
fn try_beside_lock(lock: Arc<RangeLock>) {
    let slots = Slots::new();
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

/// Requests are granted in the order in which they took their places, and one that gives up wakes the next.
fn requests_in_order(lock: Arc<RangeLock>) {
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

/// A request that gives up while it waits lets those pass at once who waited for it alone.
fn giving_up_lets_others_pass(lock: Arc<RangeLock>) {
    let held = lock.shared(ByteRange::new(0, 2));
    let writer = lock.request(ByteRange::new(1, 4), Mode::Exclusive);
    let readers = [ByteRange::new(1, 2), ByteRange::new(1, 4), ByteRange::new(3, 4)].map(|range| {
        let lock = Arc::clone(&lock);
        thread::spawn(move || drop(lock.shared(range)))
    });
    drop(writer);
    join_all(readers);
    drop(held);
    assert!(lock.is_idle());
}

/// A request that gives up while it is being granted leaves nothing behind, and keeps nobody waiting.
fn giving_up_beside_a_grant(lock: Arc<RangeLock>) {
    let slots = Slots::new();
    let (head, tail) = (ByteRange::new(0, 1), ByteRange::new(3, 4));
    let holders = [head, tail].map(|range| {
        let held = lock.lock_owned(range, Mode::Exclusive);
        thread::spawn(move || drop(held))
    });
    let asker = {
        let lock = Arc::clone(&lock);
        thread::spawn(move || drop(lock.request(ByteRange::ALL, Mode::Exclusive)))
    };
    for range in [head, tail] {
        let guard = lock.exclusive(range);
        slots.visit(guard.range(), guard.mode());
    }
    join_all(holders);
    asker.join().unwrap();
    assert!(lock.is_idle());
}

/// A wide request goes on when the last of those in its way has gone, wherever that is.
fn wide_waits_for_all(lock: Arc<RangeLock>) {
    let slots = Slots::new();
    let held = [0, 1, 3].map(|byte| {
        let range = ByteRange::new(byte, byte + 1);
        slots.enter(range, Mode::Exclusive);
        lock.lock_owned(range, Mode::Exclusive)
    });
    let wide = lock.request(ByteRange::ALL, Mode::Exclusive);
    let small = held.map(|guard| {
        let slots = Arc::clone(&slots);
        thread::spawn(move || {
            slots.leave(guard.range(), guard.mode());
            drop(guard);
        })
    });
    let later = {
        let (lock, slots, range) = (Arc::clone(&lock), Arc::clone(&slots), ByteRange::from(1));
        thread::spawn(move || {
            let _guard = lock.exclusive(range);
            slots.visit(range, Mode::Exclusive);
        })
    };
    let guard = wide.wait();
    slots.visit(guard.range(), guard.mode());
    drop(guard);
    join_all(small);
    later.join().unwrap();
    assert!(lock.is_idle());
}

/// Requests that the lock meets with one queue are excluded, granted and released with many.
fn spreading(lock: Arc<RangeLock>) {
    let slots = Slots::new();
    let wants = |range, mode| {
        let (lock, slots) = (Arc::clone(&lock), Arc::clone(&slots));
        thread::spawn(move || {
            let guard = lock.lock(range, mode);
            slots.visit(range, mode);
            drop(guard);
        })
    };
    let pair = ByteRange::new(0, 2);
    let held = lock.lock_owned(pair, Mode::Exclusive);
    slots.enter(pair, Mode::Exclusive);
    let waiting = [wants(pair, Mode::Exclusive), wants(ByteRange::new(1, 3), Mode::Shared)];
    let crowd = [wants(ByteRange::new(2, 3), Mode::Shared), wants(ByteRange::new(3, 4), Mode::Exclusive)];
    slots.leave(pair, Mode::Exclusive);
    drop(held);
    join_all(waiting);
    join_all(crowd);
    assert!(lock.is_idle());
}

/// Readers of one range are counted, and a writer waits for the last; it is not passed.
fn readers_of_one_range(lock: Arc<RangeLock>) {
    let slots = Slots::new();
    let range = ByteRange::new(0, 1);
    let modes = [Mode::Shared, Mode::Shared, Mode::Exclusive];
    join_all(modes.map(|mode| {
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

/// Requests elsewhere in a slot, or in more slots, come and go while one is held or is leaving.
fn words_and_queues(lock: Arc<RangeLock>) {
    let slots = Slots::new();
    let requests = [(0, 1), (0, 2), (1, 2), (1, 3)].map(|(start, end)| ByteRange::new(start, end));
    join_all(requests.map(|range| {
        let (lock, slots) = (Arc::clone(&lock), Arc::clone(&slots));
        thread::spawn(move || {
            let guard = lock.exclusive(range);
            slots.visit(range, Mode::Exclusive);
            drop(guard);
            if let Some(_guard) = lock.try_lock(range, Mode::Exclusive) {
                slots.visit(range, Mode::Exclusive);
            }
        })
    }));
    assert!(lock.is_idle());
}

/// A wide request that finds slots free excludes who comes to them, by word or by queue, and then leaves no
/// trace that slows others down.
fn wide_beside_small(lock: Arc<RangeLock>) {
    let slots = Slots::new();
    let requests = [ByteRange::ALL, ByteRange::new(0, 1), ByteRange::new(0, 1), ByteRange::new(1, 3)];
    join_all(requests.map(|range| {
        let (lock, slots) = (Arc::clone(&lock), Arc::clone(&slots));
        thread::spawn(move || {
            let _guard = lock.exclusive(range);
            slots.visit(range, Mode::Exclusive);
        })
    }));
    assert!(lock.is_idle());
}

/// A request that waits for the lock of its slot's queue learns of a wide one that came meanwhile.
fn wide_beside_queues(lock: Arc<RangeLock>) {
    let slots = Slots::new();
    let byte = ByteRange::new(0, 1);
    let held = lock.lock_owned(byte, Mode::Shared);
    let requests = [(byte, Mode::Exclusive), (ByteRange::ALL, Mode::Shared)];
    let threads = requests.map(|(range, mode)| {
        let (lock, slots) = (Arc::clone(&lock), Arc::clone(&slots));
        thread::spawn(move || {
            let _guard = lock.lock(range, mode);
            slots.visit(range, mode);
        })
    });
    drop(held);
    join_all(threads);
    assert!(lock.is_idle());
}

/// A wide request shrinks while others that it held up stand in slots where it never was.
fn wide_shrinks(lock: Arc<RangeLock>) {
    let slots = Slots::new();
    let mut wide = lock.lock_owned(ByteRange::ALL, Mode::Exclusive);
    let small = [0, 1, 2].map(|byte| {
        let (lock, slots) = (Arc::clone(&lock), Arc::clone(&slots));
        thread::spawn(move || {
            let guard = lock.exclusive(ByteRange::new(byte, byte + 1));
            slots.visit(guard.range(), guard.mode());
        })
    });
    slots.visit(wide.range(), wide.mode());
    wide.shrink(ByteRange::new(0, 2));
    slots.visit(wide.range(), wide.mode());
    wide.shrink(ByteRange::new(1, 2));
    slots.visit(wide.range(), wide.mode());
    drop(wide);
    join_all(small);
    assert!(lock.is_idle());
}

/// A request that is about to take the one slot when the lock spreads does not get it.
fn late_for_the_one_slot(lock: Arc<RangeLock>) {
    let slots = Slots::new();
    let held = [0, 1].map(|byte| lock.lock_owned(ByteRange::new(byte, byte + 1), Mode::Exclusive));
    let late = [(2, 3), (2, 4)].map(|(start, end)| {
        let (lock, slots) = (Arc::clone(&lock), Arc::clone(&slots));
        thread::spawn(move || {
            let guard = lock.exclusive(ByteRange::new(start, end));
            slots.visit(guard.range(), guard.mode());
        })
    });
    join_all(late);
    drop(held);
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

#[test]
fn requests_keep_their_places() {
    check(requests_in_order);
}

#[test]
fn try_lock_excludes() {
    check(try_beside_lock);
}

#[test]
fn requests_can_be_given_up() {
    check(giving_up_lets_others_pass);
    check(giving_up_beside_a_grant);
}

#[test]
fn a_wide_request_waits_for_all_in_its_way() {
    check(wide_waits_for_all);
}

#[test]
fn a_lock_that_spreads_forgets_nobody() {
    check(spreading);
    check(late_for_the_one_slot);
}

#[test]
fn words_and_queues_agree() {
    check(readers_of_one_range);
    check(words_and_queues);
}

#[test]
fn wide_and_small_requests_see_each_other() {
    check(wide_beside_small);
    check(wide_beside_queues);
    check(wide_shrinks);
}

#[test]
fn the_models_find_a_skipped_overlap_check() {
    for start in [Start::New, Start::Spread] {
        check_finds(Fault::SkipOverlapCheck, start, mutual_exclusion);
        check_finds(Fault::SkipOverlapCheck, start, callback_release_elsewhere);
        check_finds(Fault::SkipOverlapCheck, start, downgrade_and_shrink);
        check_finds(Fault::SkipOverlapCheck, start, try_beside_lock);
        check_finds(Fault::SkipOverlapCheck, start, requests_in_order);
        check_finds(Fault::SkipOverlapCheck, start, wide_waits_for_all);
    }
}

#[test]
fn the_models_find_a_lost_wake_up() {
    for start in [Start::New, Start::Spread] {
        check_finds(Fault::LoseWakeUps, start, mutual_exclusion);
        check_finds(Fault::LoseWakeUps, start, narrowing_wakes);
        check_finds(Fault::LoseWakeUps, start, requests_in_order);
        check_finds(Fault::LoseWakeUps, start, giving_up_lets_others_pass);
    }
}

#[test]
fn the_models_find_requests_that_pass_waiters() {
    check_finds(Fault::PassWaiters, Start::New, whole_range_is_not_passed);
    check_finds(Fault::PassWaiters, Start::Spread, whole_range_is_not_passed);
}

#[test]
fn the_models_find_defects_of_ranges_with_several_slots() {
    check_finds(Fault::WakeAtFirstSlot, Start::Spread, wide_waits_for_all);
    check_finds(Fault::WakeAtFirstSlot, Start::Spread, mutual_exclusion);
    check_finds(Fault::FirstSlotOnly, Start::Spread, words_and_queues);
    check_finds(Fault::KeepSomeSlots, Start::Spread, words_and_queues);
    check_finds(Fault::SlotsOneByOne, Start::Spread, mutual_exclusion);
    check_finds(Fault::ShrinkKeepsSlots, Start::Spread, narrowing_wakes);
}

#[test]
fn the_models_find_defects_between_word_and_queue() {
    for start in [Start::New, Start::Spread] {
        for fault in [Fault::InflateForgetsHolder, Fault::ReleaseIgnoresQueue, Fault::DeflatePastWaiters] {
            check_finds(fault, start, readers_of_one_range);
            check_finds(fault, start, words_and_queues);
        }
    }
}

#[test]
fn the_models_find_defects_of_the_gate() {
    check_finds(Fault::IgnoreGate, Start::Spread, wide_beside_small);
    check_finds(Fault::IgnoreGate, Start::Spread, whole_range_is_not_passed);
    check_finds(Fault::GateOnlyOnce, Start::Spread, wide_beside_queues);
    check_finds(Fault::WideIgnoresSlots, Start::Spread, wide_beside_small);
    check_finds(Fault::WideIgnoresSlots, Start::Spread, wide_waits_for_all);
    check_finds(Fault::ShrinkMovesWide, Start::Spread, wide_shrinks);
}

#[test]
fn the_models_find_defects_of_spreading() {
    check_pct_finds(Fault::SpreadReopens, Start::New, late_for_the_one_slot);
    check_finds(Fault::SpreadForgetsHolders, Start::New, spreading);
    check_finds(Fault::SpreadForgetsWaiters, Start::New, spreading);
    check_finds(Fault::MissSpread, Start::New, spreading);
    check_finds(Fault::MissSpread, Start::New, mutual_exclusion);
}

#[test]
fn the_models_find_a_silent_surrender() {
    check_finds(Fault::GiveUpSilently, Start::New, giving_up_lets_others_pass);
    check_finds(Fault::GiveUpSilently, Start::Spread, giving_up_lets_others_pass);
}
