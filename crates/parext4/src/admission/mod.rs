//! Admission of operations. [`plan()`] decides which byte range an operation needs, and why, from
//! the [`facts`] known of the file. [`transfer`] has the steps by which an operation acquires that
//! range; blocking calls ([`held`]) and queues of operations drive them. Admission upholds I2.

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
