//! Direct reads, writes and appends.

mod append;
mod read;
mod write;
