//! Aborts the test if an operation does not return. Delays the engine's threads at random steps in
//! half of the time, because a hang may need a thread to stop between two certain steps.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::slowest;

/// Time between two checks.
const INTERVAL: Duration = Duration::from_millis(500);
/// Consecutive checks that one operation may last. Checks are counted instead of time, because a
/// process or machine that is stopped makes none.
const LIMIT: u32 = 120;
/// One step in this number is delayed.
const DELAY_ONE_IN: u32 = 100;

/// Watches the operations of several threads. Stops when dropped.
pub struct Watchdog {
    shared: Arc<Shared>,
    /// Whether this delays the engine's threads.
    delays: bool,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// By thread: incremented when an operation begins and when it ends, so it is odd during an
    /// operation.
    slots: Vec<AtomicU64>,
    stop: AtomicU64,
}

impl Watchdog {
    /// Watches `threads` threads of a run of `name` with `seed`.
    pub fn start(name: &str, seed: u64, threads: usize) -> Self {
        Self::new(name, seed, threads, true)
    }

    /// Like [`start`](Self::start), but delays no thread.
    pub fn without_delays(name: &str, seed: u64, threads: usize) -> Self {
        Self::new(name, seed, threads, false)
    }

    fn new(name: &str, seed: u64, threads: usize, delays: bool) -> Self {
        let slots = (0..threads).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared { slots, stop: AtomicU64::new(0) });
        let watched = Arc::clone(&shared);
        let name = name.to_owned();
        let thread = std::thread::spawn(move || watched.watch(&name, seed, delays));
        Self { shared, delays, thread: Some(thread) }
    }

    /// Runs an operation of `thread`, which the watchdog aborts if it does not return.
    pub fn watch<R>(&self, thread: usize, operation: impl FnOnce() -> R) -> R {
        // Relaxed: the counts order nothing, and the watchdog must not order the operations.
        let slot = &self.shared.slots[thread];
        slot.fetch_add(1, Ordering::Relaxed);
        let result = slowest::request(operation);
        slot.fetch_add(1, Ordering::Relaxed);
        result
    }
}

impl Shared {
    fn watch(&self, name: &str, seed: u64, with_delays: bool) {
        // The last count of each thread, and the number of consecutive checks that found it.
        let mut seen = vec![(0, 0); self.slots.len()];
        let mut delays = false;
        while self.stop.load(Ordering::Relaxed) == 0 {
            if with_delays {
                delays = !delays;
                delay_steps(delays);
            }
            std::thread::park_timeout(INTERVAL);
            for (thread, (slot, seen)) in self.slots.iter().zip(&mut seen).enumerate() {
                let now = slot.load(Ordering::Relaxed);
                *seen = (now, if seen.0 == now { seen.1 + 1 } else { 1 });
                if now % 2 == 1 && seen.1 > LIMIT {
                    // Not `eprintln`: the output of a test is captured until it ends, and this one
                    // does not end.
                    let mut stderr = std::io::stderr();
                    let _ = writeln!(
                        stderr,
                        "{name}, seed {seed}: thread {thread} has not come back for {:?}; hung",
                        INTERVAL * LIMIT
                    );
                    std::process::abort();
                }
            }
        }
    }
}

/// Starts or stops the delays of all threads of the process. Builds without debug assertions have
/// none.
fn delay_steps(on: bool) {
    #[cfg(all(debug_assertions, not(shuttle)))]
    parext4::delay_steps(if on { DELAY_ONE_IN } else { 0 });
    #[cfg(not(all(debug_assertions, not(shuttle))))]
    let _ = (on, DELAY_ONE_IN);
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.stop.store(1, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        if self.delays {
            delay_steps(false);
        }
    }
}
