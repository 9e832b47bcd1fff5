#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(all(rangelock_unlocked, any(test, shuttle, debug_assertions)))]
compile_error!(
    "`--cfg rangelock_unlocked` disables all locking: use it only in release builds, to measure the lock's cost"
);

mod acquire;
mod class;
mod fault;
mod grid;
mod guard;
mod lock;
#[cfg(all(any(test, fuzzing), not(shuttle)))]
pub mod oracle;
mod queue;
mod range;
mod request;
mod slot;
mod slot_set;
mod slots;
mod sync;
mod table;
mod wake;
mod word;

#[cfg(shuttle)]
pub use fault::{Fault, plant};
pub use guard::{Guard, OwnedRangeGuard, RangeGuard};
pub use lock::RangeLock;
pub use range::{ByteRange, Mode};
pub use request::Request;
