//! The guarantees of the public methods.

use crate::harness::{Slots, check, join_all};
use rangelock::{ByteRange, Mode, OwnedRangeGuard, RangeLock};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Mutex, mpsc};
use shuttle::thread;
use std::sync::Arc;

/// Overlapping shared and exclusive holders exclude each other, and each blocked one is woken.
pub(crate) fn mutual_exclusion(lock: Arc<RangeLock>) {
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

/// Small requests keep arriving; none that arrives after the whole-range request is granted before
/// it.
pub(crate) fn whole_range_is_not_passed(lock: Arc<RangeLock>) {
    // Grants in order. A small request records whether it was made after the whole-range request.
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

/// Guards that a callback sends to another thread are released there, as with completed I/O.
pub(crate) fn callback_release_elsewhere(lock: Arc<RangeLock>) {
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

/// A downgrade admits shared requests and excludes exclusive ones; a shrink admits requests for the
/// released bytes.
pub(crate) fn downgrade_and_shrink(lock: Arc<RangeLock>) {
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

/// A shrink and a downgrade grant the requests that they unblock at once, not only at the release.
pub(crate) fn narrowing_wakes(lock: Arc<RangeLock>) {
    let taken = |range, mode| {
        let lock = Arc::clone(&lock);
        thread::spawn(move || drop(lock.lock(range, mode)))
    };
    let pair = ByteRange::new(0, 2);
    for (range, tail, head) in [
        (ByteRange::ALL, ByteRange::starting_at(2), pair),
        (pair, ByteRange::new(1, 2), ByteRange::new(0, 1)),
    ] {
        let mut held = lock.lock_owned(range, Mode::Exclusive);
        let tail = taken(tail, Mode::Exclusive);
        held.shrink(head);
        tail.join().unwrap();
        let reader = taken(ByteRange::new(0, 1), Mode::Shared);
        held.downgrade();
        reader.join().unwrap();
    }
}

/// `try_lock` never blocks and never breaks exclusion, while another thread blocks and releases.
pub(crate) fn try_beside_lock(lock: Arc<RangeLock>) {
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

/// Requests are granted in the order in which they were made, and one that is cancelled wakes the
/// next.
pub(crate) fn requests_in_order(lock: Arc<RangeLock>) {
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

/// Cancelling a waiting request grants at once the requests that waited only for it.
pub(crate) fn cancel_unblocks(lock: Arc<RangeLock>) {
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

/// Cancelling a request while it is being granted leaves no entry in a queue and blocks no request.
fn cancel_beside_a_grant(lock: Arc<RangeLock>) {
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
fn requests_can_be_cancelled() {
    check(cancel_unblocks);
    check(cancel_beside_a_grant);
}
