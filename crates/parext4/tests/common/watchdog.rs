//! Ends the test when an operation does not come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest that one operation may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Watches the operations of a number of threads. Stops when dropped.
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    began: Instant,
    /// By thread: milliseconds from `began` to the start of its operation, plus one; 0 between operations.
    slots: Vec<AtomicU64>,
    stop: AtomicU64,
}

impl Watchdog {
    /// Watches `threads` threads of a run of `name` with `seed`.
    pub fn start(name: &str, seed: u64, threads: usize) -> Self {
        let slots = (0..threads).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared { began: Instant::now(), slots, stop: AtomicU64::new(0) });
        let watched = Arc::clone(&shared);
        let name = name.to_owned();
        let thread = std::thread::spawn(move || watched.watch(&name, seed));
        Self { shared, thread: Some(thread) }
    }

    /// Runs an operation of `thread` under the watch.
    pub fn watch<R>(&self, thread: usize, operation: impl FnOnce() -> R) -> R {
        // Relaxed: the times order nothing, and the watch must not order what it watches.
        self.shared.slots[thread].store(self.shared.now() + 1, Ordering::Relaxed);
        let result = operation();
        self.shared.slots[thread].store(0, Ordering::Relaxed);
        result
    }
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap()
    }

    fn watch(&self, name: &str, seed: u64) {
        while self.stop.load(Ordering::Relaxed) == 0 {
            std::thread::park_timeout(Duration::from_millis(500));
            for (thread, slot) in self.slots.iter().enumerate() {
                let started = slot.load(Ordering::Relaxed);
                if started != 0
                    && u128::from(self.now() + 1 - started.min(self.now() + 1)) > LIMIT.as_millis()
                {
                    eprintln!("{name}, seed {seed}: thread {thread} has waited longer than {LIMIT:?}; hung");
                    std::process::abort();
                }
            }
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.stop.store(1, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
