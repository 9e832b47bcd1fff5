//! The synchronisation primitives of the engine.
//!
//! All locks and atomics whose order matters come from here, so that `--cfg shuttle` can replace
//! them by the primitives of the model checker. Invariant: every lock has a [`Rank`], and a thread
//! acquires locks in the order of their ranks (I10, `lock_order`).

#[cfg(all(debug_assertions, not(shuttle)))]
mod delays;
mod lock_order;
mod locks;
#[cfg(shuttle)]
mod raw;
#[cfg(shuttle)]
pub mod simulated_time;
mod swap;
mod word;

#[cfg(not(shuttle))]
mod raw {
    #[cfg(debug_assertions)]
    pub(crate) use super::delays::atomic;
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    #[cfg(not(debug_assertions))]
    pub(crate) use std::sync::atomic;
    pub(crate) use std::sync::mpsc;
    pub(crate) use std::thread;
    pub(crate) use std::thread_local;
}

pub(crate) use std::sync::Arc;

#[cfg(all(debug_assertions, not(shuttle)))]
pub use delays::delay_steps;
pub(crate) use lock_order::{Held, Rank, hold};
pub(crate) use locks::{Condvar, Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};
pub(crate) use raw::thread::yield_now;
pub(crate) use raw::{atomic, mpsc, thread, thread_local};
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
