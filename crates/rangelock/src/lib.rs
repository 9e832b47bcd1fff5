#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(all(rangelock_unlocked, any(test, shuttle, debug_assertions)))]
compile_error!("a lock that locks nothing is for measuring what the lock costs, in release builds, only");

mod fault;
mod grid;
mod guard;
mod lock;
mod queue;
mod range;
mod request;
mod slot;
mod slots;
mod sync;
mod wake;
mod word;

#[cfg(shuttle)]
pub use fault::Fault;
pub use guard::{Guard, OwnedRangeGuard, RangeGuard};
pub use lock::RangeLock;
pub use range::{ByteRange, Mode};
pub use request::Request;
