//! The contract of each public method, mostly on one thread.
#![cfg(not(shuttle))]

use rangelock::{ByteRange, Guard, Mode, OwnedRangeGuard, RangeGuard, RangeLock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const HEAD: ByteRange = ByteRange::new(0, 10);
const TAIL: ByteRange = ByteRange::starting_at(10);

fn assert_send<T: Send>() {}
fn assert_sync<T: Sync>() {}

#[test]
fn the_lock_is_sync_and_guards_are_send() {
    assert_send::<RangeLock>();
    assert_sync::<RangeLock>();
    assert_send::<RangeGuard<'static>>();
    assert_send::<OwnedRangeGuard>();
}

#[test]
fn an_unused_lock_is_small() {
    assert!(size_of::<RangeLock>() <= 256, "{}", size_of::<RangeLock>());
}

#[test]
fn disjoint_ranges_are_granted_at_once() {
    let lock = RangeLock::new();
    let head = lock.exclusive(HEAD);
    let tail = lock.exclusive(TAIL);
    assert_eq!((head.waited(), tail.waited()), (None, None));
    assert_eq!((head.range(), head.mode()), (HEAD, Mode::Exclusive));
    assert!(head.is_of(&lock) && !head.is_of(&RangeLock::new()));
    assert!(!lock.is_idle() && lock.waiters() == 0);
    drop((head, tail));
    assert!(lock.is_idle());
}

#[test]
fn a_release_on_another_thread_grants_and_the_guard_says_that_it_waited() {
    let lock = Arc::new(RangeLock::new());
    let head = lock.lock_owned(HEAD, Mode::Exclusive);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.shared(ByteRange::ALL).waited());
        while lock.waiters() != 1 {
            std::thread::yield_now();
        }
        scope.spawn(move || drop(head));
        assert!(waiter.join().unwrap().is_some_and(|waited| waited > Duration::ZERO));
    });
    assert!(lock.is_idle());
}

#[test]
fn a_waiting_whole_range_blocks_later_small_ones() {
    let lock = Arc::new(RangeLock::new());
    let head = lock.exclusive(HEAD);
    let (send, granted) = mpsc::channel();
    assert!(!lock.lock_with(ByteRange::ALL, Mode::Exclusive, move |guard| send.send(guard).unwrap()));
    // This is why a thread must not block for a second range: the holder of HEAD would wait for
    // itself.
    assert!(lock.try_lock(TAIL, Mode::Shared).is_none());
    drop(head);
    assert!(lock.try_lock(TAIL, Mode::Shared).is_none());
    drop(granted.recv().unwrap());
    assert!(lock.try_lock(TAIL, Mode::Shared).is_some());
}

#[test]
fn downgrade_and_shrink_release_a_part_and_keep_the_rest() {
    let lock = RangeLock::new();
    let mut all = lock.exclusive(ByteRange::ALL);
    all.shrink(HEAD);
    assert!(lock.try_lock(TAIL, Mode::Exclusive).is_some());
    assert!(lock.try_lock(HEAD, Mode::Shared).is_none());
    all.downgrade();
    assert!(lock.try_lock(HEAD, Mode::Shared).is_some());
    assert!(lock.try_lock(HEAD, Mode::Exclusive).is_none());
    assert_eq!((all.range(), all.mode()), (HEAD, Mode::Shared));
}

#[test]
fn shrinking_to_more_is_refused_and_keeps_the_range() {
    let lock = RangeLock::new();
    let mut head = lock.exclusive(HEAD);
    assert!(catch_unwind(AssertUnwindSafe(|| head.shrink(ByteRange::ALL))).is_err());
    assert_eq!(head.range(), HEAD);
    assert!(lock.try_lock(TAIL, Mode::Exclusive).is_some());
    assert!(lock.try_lock(HEAD, Mode::Exclusive).is_none());
}

#[test]
fn a_callback_may_use_the_lock() {
    let lock = Arc::new(RangeLock::new());
    let (send, tried) = mpsc::channel();
    let inner = Arc::clone(&lock);
    let callback = move |guard: OwnedRangeGuard| {
        let while_held = inner.try_lock(HEAD, Mode::Shared).is_some();
        drop(guard);
        send.send((while_held, inner.try_lock(HEAD, Mode::Shared).is_some())).unwrap();
    };
    assert!(lock.lock_with(HEAD, Mode::Exclusive, callback.clone()));
    let head = lock.exclusive(HEAD);
    assert!(!lock.lock_with(HEAD, Mode::Exclusive, callback));
    drop(head);
    assert_eq!(tried.iter().take(2).collect::<Vec<_>>(), [(false, true); 2]);
}

#[test]
fn a_long_queue_of_callbacks_does_not_nest() {
    const QUEUED: usize = 2_000;
    let run = || {
        let (lock, called) = (Arc::new(RangeLock::new()), Arc::new(AtomicUsize::new(0)));
        let head = lock.exclusive(HEAD);
        for turn in 0..QUEUED {
            let called = Arc::clone(&called);
            lock.lock_with(HEAD, Mode::Exclusive, move |guard| {
                assert_eq!(called.fetch_add(1, Ordering::Relaxed), turn);
                drop(guard);
            });
        }
        drop(head);
        assert_eq!(called.load(Ordering::Relaxed), QUEUED);
        assert!(lock.is_idle());
    };
    std::thread::Builder::new().stack_size(128 << 10).spawn(run).unwrap().join().unwrap();
}

#[test]
fn a_panicking_callback_loses_no_other_grant() {
    let lock = Arc::new(RangeLock::new());
    let head = lock.exclusive(HEAD);
    let (send, granted) = mpsc::channel();
    lock.lock_with(HEAD, Mode::Shared, |_| panic!("planned"));
    lock.lock_with(HEAD, Mode::Shared, move |guard| send.send(guard.mode()).unwrap());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(head))).is_err());
    assert_eq!(granted.recv(), Ok(Mode::Shared));
    assert!(lock.is_idle());
}

#[test]
fn a_panicking_holder_releases() {
    let lock = RangeLock::new();
    let hold_and_panic = || {
        let _all: Guard<_> = lock.exclusive(ByteRange::ALL);
        panic!("planned");
    };
    assert!(catch_unwind(AssertUnwindSafe(hold_and_panic)).is_err());
    assert!(lock.is_idle());
}

#[test]
fn a_request_blocks_later_ones_until_it_is_dropped() {
    let lock = RangeLock::new();
    let first = lock.request(HEAD, Mode::Exclusive);
    assert!(
        lock.try_lock(HEAD, Mode::Shared).is_none(),
        "a request blocks later ones before it is waited for"
    );
    let second = lock.request(HEAD, Mode::Exclusive);
    drop(first);
    let guard = second.wait();
    assert_eq!(guard.range(), HEAD);
    drop(guard);
    assert!(lock.is_idle());
}
