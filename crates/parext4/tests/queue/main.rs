//! Queues of operations: on every back end, with errors, cancelled, parked, told not to wait.
//!
//! Run with `cargo test -p parext4 --profile stress --test queue`.

mod basics;
mod bed;
mod cancel;
mod edges;
mod errors;
mod growth;
mod nowait;
mod parking;
