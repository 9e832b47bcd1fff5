//! A device with a given latency and queue depth, for experiments that must not depend on the machine's disk.

mod clock;
mod device;
mod queue;

pub use device::{SimDevice, SimProfile};
