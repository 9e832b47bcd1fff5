//! Queues of operations, on every back end: errors, cancelled and parked operations, and operations
//! that must not wait.
//!
//! Run with `cargo test -p parext4 --profile stress --test queue`.

mod basics;
mod cancel;
mod descriptor;
mod edges;
mod errors;
mod growth;
mod nowait;
mod parking;
mod test_volume;
