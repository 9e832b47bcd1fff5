//! Direct reads and writes, appends among them.

mod append;
mod read;
mod write;
