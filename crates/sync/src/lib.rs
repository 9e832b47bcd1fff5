#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod fault;
#[cfg(all(shuttle, feature = "parking_lot"))]
mod locks;
pub mod std_locks;

#[cfg(all(not(shuttle), feature = "parking_lot"))]
pub use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};
#[cfg(not(shuttle))]
pub use std::{
    sync::{atomic, mpsc},
    thread, thread_local,
};

#[cfg(all(shuttle, feature = "parking_lot"))]
pub use locks::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
#[cfg(shuttle)]
pub use shuttle::{
    sync::{atomic, mpsc},
    thread, thread_local,
};
