//! Admission of operations: which byte range an operation needs and why ([`plan`]), from what is known of the file
//! ([`facts`]), and holding that range until the operation ends ([`held`]). It upholds I2.

mod facts;
mod held;
mod plan;
mod waits;

pub(in crate::file) use facts::Seen;
pub(in crate::file) use held::{HeldRange, Queued};
pub(in crate::file) use plan::{Admission, Blocks, FileState, plan};
pub(in crate::file) use waits::PresentOf;
