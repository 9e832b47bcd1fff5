//! Admission of operations: which byte range an operation needs and why ([`plan()`]), from what is known of the file
//! ([`facts`]), and holding that range until the operation ends ([`held`]). It upholds I2.

mod facts;
mod held;
mod plan;
mod waits;

pub(crate) use facts::Facts;
pub(crate) use held::{HeldRange, Queued};
pub(crate) use plan::{Admission, Blocks, FileState, plan};
pub(crate) use waits::OperationsOf;
