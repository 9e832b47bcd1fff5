//! The primitives and the planted faults under the model checker.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p parext4-sync --all-features --test shuttle`.
#![cfg(all(shuttle, feature = "parking_lot"))]

use std::sync::Arc;
use std::time::Duration;

use parext4_sync::atomic::{AtomicU32, Ordering::SeqCst};
use parext4_sync::{Condvar, Mutex, RwLock, guarded, thread, when_planted};

parext4_sync::planted_faults! {
    /// Guards of a counter.
    pub enum Fault {
        /// The counter is read and written without its lock.
        Unlocked,
        /// A thread that has counted wakes no waiting thread.
        Asleep,
        /// A thread counts twice.
        CountedTwice,
    }
}

/// Two threads count, and a third waits until both have.
fn count() {
    let counter = Arc::new((RwLock::new(()), AtomicU32::new(0), Mutex::new(0), Condvar::new()));
    let counting = [(), ()].map(|()| {
        let counter = Arc::clone(&counter);
        thread::spawn(move || {
            let (lock, sum, counted, changed) = &*counter;
            let held = guarded!(Fault::Unlocked, Some(lock.write()));
            sum.store(sum.load(SeqCst) + 1, SeqCst);
            drop(held);
            *counted.lock() += 1;
            when_planted!(Fault::CountedTwice, *counted.lock() += 1);
            guarded!(Fault::Asleep, changed.notify_all());
        })
    });
    let (lock, sum, counted, changed) = &*counter;
    let mut guard = counted.lock();
    while *guard < 2 {
        changed.wait(&mut guard);
    }
    assert_eq!(*guard, 2);
    drop(guard);
    let _held = lock.read();
    assert_eq!(sum.load(SeqCst), 2);
    counting.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_model_notices_each_fault() {
    shuttle::check_random(count, 1000);
    for &fault in Fault::ALL {
        // In a thread of its own, because a failed model leaves it as panicking.
        let faulty = move || {
            plant(Some(fault));
            shuttle::check_random(count, 10_000);
        };
        assert!(std::thread::spawn(faulty).join().is_err(), "{fault:?}");
    }
}

#[test]
fn a_fault_is_planted_in_one_thread_until_it_is_removed() {
    plant(Some(Fault::Asleep));
    assert!(Fault::Asleep.is_planted() && !Fault::Unlocked.is_planted());
    assert!(!std::thread::spawn(|| Fault::Asleep.is_planted()).join().unwrap());
    plant(None);
    assert!(!Fault::Asleep.is_planted());
}

#[test]
fn locks_that_are_held_are_not_acquired_by_trying() {
    let model = || {
        let (mutex, lock) = (Mutex::new(1), RwLock::new(2));
        let (held, shared) = (mutex.lock(), lock.read());
        assert!(mutex.try_lock().is_none() && lock.try_write().is_none());
        drop((held, shared));
        assert_eq!(
            (mutex.try_lock().map(|value| *value), lock.try_write().map(|value| *value)),
            (Some(1), Some(2))
        );
    };
    shuttle::check_random(model, 10);
}

#[test]
fn a_wait_with_a_timeout_holds_the_lock_again() {
    let model = || {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let other = Arc::clone(&shared);
        let waking = thread::spawn(move || {
            *other.0.lock() = true;
            other.1.notify_one();
        });
        let mut guard = shared.0.lock();
        while !*guard && !shared.1.wait_for(&mut guard, Duration::from_secs(1)).timed_out() {}
        *guard = true;
        drop(guard);
        waking.join().unwrap();
    };
    shuttle::check_random(model, 100);
}
