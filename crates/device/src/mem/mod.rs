//! A sparse device in memory, for tests, benchmarks and copies of other devices.
//!
//! Contents lie in chunks of 64 KiB, each with its own lock. Forks share a chunk until one of them
//! writes to it.

mod chunk;
mod device;

pub use device::MemDevice;
