//! How many writers may be at work at a time, by itself. A thread that is never woken the scheduler reports as a
//! deadlock.

use std::sync::Arc;
// Not the checker's: what the models count is no point where they could be interrupted.
use std::sync::atomic::{AtomicU32, Ordering};

use parext4::fault::Fault;
use parext4::models::WriterLimit;
use shuttle::thread::{spawn, yield_now};

use super::support::{random, search, stopping};

/// Threads come in and go, never more than two of them at a time.
fn come_and_go() {
    let (writers, at_work) = (Arc::new(WriterLimit::new(2)), Arc::new(AtomicU32::new(0)));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (writers, at_work) = (Arc::clone(&writers), Arc::clone(&at_work));
            spawn(move || {
                for _ in 0..2 {
                    let _at_work = writers.enter();
                    assert!(at_work.fetch_add(1, Ordering::Relaxed) < 2, "too many are at work");
                    yield_now();
                    at_work.fetch_sub(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn few_are_at_work_and_all_come_to_it() {
    search(3000, &[Fault::PlaceFreedUnheard], |iterations| {
        random(iterations, come_and_go);
        stopping(iterations, come_and_go);
    });
}
