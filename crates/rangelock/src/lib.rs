#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(shuttle)]
mod fault;
mod guard;
mod lock;
mod queue;
mod range;
mod request;
mod sync;
mod wake;

#[cfg(shuttle)]
pub use fault::Fault;
pub use guard::{Guard, OwnedRangeGuard, RangeGuard};
pub use lock::RangeLock;
pub use range::{ByteRange, Mode};
pub use request::Request;
