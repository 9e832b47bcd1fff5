//! Helpers that the tests of several crates share: random choices, stamped sectors, settings, and the times of slow
//! calls.

#![forbid(unsafe_code)]

pub mod rng;
pub mod sector;
pub mod settings;
pub mod slowest;
