//! Admission of operations: which byte range an operation needs and why ([`plan()`]), from what is known of the file
//! ([`facts`]); the steps that an operation takes to hold that range ([`transfer`]), which blocking calls ([`held`]) and
//! queues of operations drive. It upholds I2.

mod arguments;
mod facts;
mod held;
mod plan;
mod transfer;
mod waits;
mod widening;

pub(crate) use held::HeldRange;
pub(crate) use plan::{Admission, Blocks, FileState, plan};
pub(crate) use transfer::{Granted, RangeRequest, Transfer};
pub(crate) use waits::OperationsOf;
