//! The states of the lock: word and queue of a slot, and the expansion from one slot to a table.

use crate::harness::{Slots, check, join_all};
use rangelock::{ByteRange, Mode, RangeLock};
use shuttle::thread;
use std::sync::Arc;

/// Shared holders of one range are counted. An exclusive request waits for the last and is not
/// passed.
pub(crate) fn shared_holders_of_one_range(lock: Arc<RangeLock>) {
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

/// Requests for other ranges in the same slot, or in several slots, arrive and leave while one is
/// held or released.
pub(crate) fn words_and_queues(lock: Arc<RangeLock>) {
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

/// Requests that arrive in the single slot are excluded, granted and released correctly after the
/// expansion.
pub(crate) fn expansion(lock: Arc<RangeLock>) {
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

/// A request that is about to acquire the single slot when the lock expands does not acquire it
/// there.
pub(crate) fn late_for_the_single_slot(lock: Arc<RangeLock>) {
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
fn words_and_queues_agree() {
    check(shared_holders_of_one_range);
    check(words_and_queues);
}

#[test]
fn an_expansion_keeps_all_requests() {
    check(expansion);
    check(late_for_the_single_slot);
}
