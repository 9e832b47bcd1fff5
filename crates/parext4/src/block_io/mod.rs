//! Input and output of the blocks of one file. A write takes these steps, all while it holds its
//! range (I2):
//!
//! 1. [`prepare`] maps holes of the range to unwritten blocks, and reserves the blocks that
//!    completion needs;
//! 2. [`segments`] splits the request into parts that are contiguous on the device, which
//!    [`device_io`] writes;
//! 3. [`complete`] converts the blocks and raises the size in one transaction.
//!
//! [`read`] reads whole pages. The pages of a file that fs-verity protects are [verified](verity).

mod complete;
mod device_io;
mod objects;
mod pin;
mod prepare;
mod read;
mod segments;
mod verity;

pub(crate) use objects::{object_end, split_at_objects};
pub(crate) use prepare::{DetachedConversion, PendingConversion, Prepared};
pub(crate) use segments::{IoSegment, WriteSlice, fill_last_sector};
pub use verity::Verity;
