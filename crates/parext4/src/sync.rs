//! The synchronisation primitives of the engine.
//!
//! All locks and atomics whose order matters come from here. `parext4_sync` has them, and replaces
//! them by the primitives of the model checker under `--cfg shuttle`. Invariant: every lock has a
//! [`Rank`], and a thread acquires locks in the order of their ranks (I10, `lock_order`).

#[cfg(all(debug_assertions, not(shuttle)))]
mod delays;
mod lock_order;
mod locks;
#[cfg(shuttle)]
pub mod simulated_time;
mod swap;
mod word;

pub(crate) use std::sync::Arc;

#[cfg(all(debug_assertions, not(shuttle)))]
pub(crate) use delays::atomic;
#[cfg(all(debug_assertions, not(shuttle)))]
pub use delays::delay_steps;
pub(crate) use lock_order::{Held, Rank, hold};
pub(crate) use locks::{Condvar, Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};
#[cfg(any(not(debug_assertions), shuttle))]
pub(crate) use parext4_sync::atomic;
pub(crate) use parext4_sync::thread::yield_now;
pub(crate) use parext4_sync::{mpsc, thread, thread_local};
pub(crate) use swap::{Guard, Swap, SwapOption};
pub(crate) use word::Word;

/// Returns true if a volume has its background threads. In a model only the model's own threads
/// run; in a simulation all threads run.
pub(crate) fn has_background_threads() -> bool {
    #[cfg(not(shuttle))]
    return true;
    #[cfg(shuttle)]
    simulated_time::now().is_some()
}

/// Spins once, while another thread completes an update of a page or a leaf.
pub(crate) fn spin() {
    #[cfg(not(shuttle))]
    std::hint::spin_loop();
    #[cfg(shuttle)]
    yield_now();
}

/// Lets the model checker switch threads, and stress tests delay the thread, before an access to a
/// [`Word`] or [`Swap`]. Loads a word that the model checker knows, because a yield would mean that
/// this thread waits.
fn model_step() {
    #[cfg(all(debug_assertions, not(shuttle)))]
    delays::step();
    #[cfg(shuttle)]
    atomic::AtomicBool::new(false).load(atomic::Ordering::SeqCst);
}
