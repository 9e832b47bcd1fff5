//! Input and output of the blocks of one file. A write passes these steps, all under its range (I2):
//!
//! 1. [`prepare`] maps its holes to unwritten blocks, and reserves what completion needs;
//! 2. [`segments`] splits it into parts that are contiguous on the device, which [`device_io`] writes;
//! 3. [`complete`] converts the blocks and raises the size in one transaction.

mod complete;
mod device_io;
mod pin;
mod prepare;
mod segments;

pub(crate) use prepare::{Debt, DetachedDebt, Prepared};
pub(crate) use segments::IoSegment;
