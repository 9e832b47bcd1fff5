//! The locks, condition variables, atomics, and threads of this crate.
//!
//! All locks and condition variables of the crate come from here, so that `--cfg shuttle` can
//! replace them by the primitives of the model checker.

#[cfg(not(shuttle))]
mod raw {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread::Builder;
}

#[cfg(shuttle)]
mod raw;

pub(crate) use raw::{Builder, Condvar, Mutex, MutexGuard, RwLock, atomic};
