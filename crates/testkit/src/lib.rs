//! Helpers that the tests of several crates share: random choices, stamped sectors, settings, the times of slow calls,
//! and a device with a native queue.

#![forbid(unsafe_code)]

pub mod remote_device;
pub mod rng;
pub mod sector;
pub mod settings;
pub mod slowest;
