//! Direct reads and writes, appends among them. A write passes these steps, all under its range (I2):
//!
//! 1. [`prepare`] maps its holes to unwritten blocks, and reserves what completion needs;
//! 2. [`segments`] splits it into parts that are contiguous on the device, which [`device_io`] writes;
//! 3. [`complete`] converts the blocks and raises the size in one transaction.

mod append;
mod complete;
mod device_io;
mod pin;
mod prepare;
mod read;
mod segments;
mod write;
mod zero_out;

pub(in crate::file) use prepare::{Debt, DetachedDebt, Prepared, Runs};
pub(in crate::file) use read::READ_ATTEMPTS;
pub(in crate::file) use segments::IoSegment;
pub(in crate::file) use zero_out::{WIDEN_ATTEMPTS, Wide, widening};
