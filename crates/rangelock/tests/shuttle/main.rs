//! Models of the lock under shuttle's schedulers. Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test -p rangelock --release --test shuttle`.
//!
//! Shuttle reports a deadlock, and so a lost wakeup, as a panic.
#![cfg(shuttle)]

mod faults;
mod guarantees;
mod harness;
mod states;
mod wide;
