//! Wide requests beside narrow ones.

use crate::harness::{Slots, check, join_all};
use rangelock::{ByteRange, Mode, RangeLock};
use shuttle::thread;
use std::sync::Arc;

/// A wide request is granted when the last conflicting holder releases, in whichever slot that is.
pub(crate) fn wide_waits_for_all(lock: Arc<RangeLock>) {
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
        let (lock, slots, range) = (Arc::clone(&lock), Arc::clone(&slots), ByteRange::starting_at(1));
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

/// A wide request that finds slots free excludes requests that arrive there later, by word or by
/// queue. After its release the lock is idle.
pub(crate) fn wide_beside_narrow(lock: Arc<RangeLock>) {
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

/// A request that waits for the mutex of its slot's queue detects a wide request that arrived
/// meanwhile.
pub(crate) fn wide_beside_queues(lock: Arc<RangeLock>) {
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

/// A wide request shrinks while requests that it blocks wait in slots that it never entered.
pub(crate) fn wide_shrinks(lock: Arc<RangeLock>) {
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

#[test]
fn a_wide_request_waits_for_all_conflicts() {
    check(wide_waits_for_all);
}

#[test]
fn wide_and_narrow_requests_see_each_other() {
    check(wide_beside_narrow);
    check(wide_beside_queues);
    check(wide_shrinks);
}
