//! Direct reads and writes, appends among them.

mod append;
mod read;
mod write;
mod zero_out;

pub(in crate::file) use read::READ_ATTEMPTS;
pub(in crate::file) use zero_out::{WIDEN_ATTEMPTS, WidenedRange, widening};
