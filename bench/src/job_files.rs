//! The files of a job, as threads use them.

use anyhow::Result;

use crate::access_order::Io;
use crate::job::Job;
use crate::submitter::Submitter;

/// The files of a job; removed when dropped.
pub trait JobFiles: Sync {
    /// Returns a submitter for file number `file` that keeps up to `depth` operations in flight.
    fn submitter(&self, job: &Job, file: u32, depth: u32) -> Result<Box<dyn Submitter>>;

    /// Returns what punches holes into file number `file`, for a job that asks for holes.
    fn hole_puncher(&self, job: &Job, file: u32) -> Result<Box<dyn HolePuncher>>;

    /// Returns the number of extents of all files, if the target can tell.
    fn extents(&self) -> Result<Option<u64>>;
}

/// Punches holes into a file.
pub trait HolePuncher: Send {
    /// Makes `[offset, offset + len)` a hole.
    fn punch(&mut self, offset: u64, len: u64) -> Result<()>;

    /// Allocates `[offset, offset + len)`.
    fn allocate(&mut self, offset: u64, len: u64) -> Result<()>;
}

/// Bytes of the longest extent: 32768 blocks.
pub const LONGEST_EXTENT: u64 = 128 << 20;

/// Bytes that a page fault brings in.
pub const PAGE: u64 = 4096;

/// Returns the offsets of the pages that an operation covers.
pub fn pages(io: &Io) -> impl Iterator<Item = u64> {
    (io.offset - io.offset % PAGE..io.offset + io.len).step_by(PAGE as usize)
}
