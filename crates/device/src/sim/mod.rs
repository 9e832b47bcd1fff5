//! A device with a given latency and parallelism, for experiments that must not depend on the
//! machine's disk.
//!
//! `clock` computes when requests complete; `device` makes blocking calls wait for that time, and
//! `queue` is the native queue, which never sleeps for a single request.

mod clock;
mod device;
mod queue;

pub use device::{SimDevice, SimProfile};
