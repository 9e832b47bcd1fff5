//! The mutex and the condition variable of the standard library, which a panic poisons. For crates
//! that do without `parking_lot`.

#[cfg(not(shuttle))]
pub use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(shuttle)]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
