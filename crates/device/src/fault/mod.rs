//! A device that fails on demand, for tests.
//!
//! A test first counts the calls of a run, then repeats the run and fails each call in turn.

mod device;
mod plan;

pub use device::FaultDevice;
pub use plan::{CallInfo, CallKind, FaultKind, FaultPlan};
