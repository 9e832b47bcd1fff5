//! The limit of parallel writers, alone. If a thread is never woken, the scheduler reports a
//! deadlock.

use std::sync::Arc;
// Not the scheduler's atomics: the model's own counters must add no switch points.
use std::sync::atomic::{AtomicU32, Ordering};

use parext4::fault::Fault;
use parext4::models::WriterLimit;
use shuttle::thread::{spawn, yield_now};

use super::support::{random, search, stopping};

/// Threads enter and leave. At most two may be inside.
fn come_and_go() {
    let (writers, at_work) = (Arc::new(WriterLimit::new(2)), Arc::new(AtomicU32::new(0)));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (writers, at_work) = (Arc::clone(&writers), Arc::clone(&at_work));
            spawn(move || {
                for _ in 0..2 {
                    let _at_work = writers.acquire();
                    assert!(at_work.fetch_add(1, Ordering::Relaxed) < 2, "more writers than the limit");
                    yield_now();
                    at_work.fetch_sub(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn writers_stay_within_the_limit_and_all_get_a_turn() {
    search(3000, &[Fault::SlotFreedUnnotified], |iterations| {
        random(iterations, come_and_go);
        stopping(iterations, come_and_go);
    });
}
