#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

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
