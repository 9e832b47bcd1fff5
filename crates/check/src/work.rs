//! Runs the parts of a pass on several threads.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` with each number below `parts`, on up to `threads` threads, each with a state of
/// its own that `state` makes. Returns the states.
pub(crate) fn in_parallel<S: Send>(
    threads: usize,
    parts: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) + Sync,
) -> Vec<S> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut state = state();
        loop {
            let part = next.fetch_add(1, Ordering::Relaxed);
            if part >= parts {
                return state;
            }
            work(&mut state, part);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.clamp(1, parts.max(1))).map(|_| scope.spawn(run)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, S>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}
