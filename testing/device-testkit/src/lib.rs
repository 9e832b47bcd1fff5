//! Shared parts of the tests of devices. They need nothing of the engine, so the tests of the
//! device crate are built without it.
//!
//! | module | contents |
//! |---|---|
//! | [`contract`] | the contracts of devices and queues, as checks of any device |
//! | [`RemoteDevice`] | a device with a native queue, whose requests complete out of order |
//! | [`skip`] | tests that cannot run here |

#![forbid(unsafe_code)]

pub mod contract;
mod remote;
pub mod skip;

pub use remote::RemoteDevice;
pub use skip::{skip_allowed, skipped};
