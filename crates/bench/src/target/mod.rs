//! What a job runs on: the library, the plain device, a directory of any mounted file system, or an array.

mod copy;
mod dir;
mod lib;
mod raw;
mod spec;

pub use copy::CopyTarget;
pub use dir::DirTarget;
pub use lib::LibTarget;
pub use raw::RawTarget;
pub use spec::TargetSpec;

use anyhow::Result;
use parext4::device::AlignedBuf;

use super::job::{Job, Layout};
use super::lane::Lane;
use super::order::Io;
use super::outcome::Outcome;
use super::runner;

/// Something that has files.
pub trait Target {
    /// Makes the files that `job` starts from.
    fn lay_out(&self, job: &Job) -> Result<Box<dyn Laid>>;

    /// Lays out, runs, and removes the files.
    fn run(&self, job: &Job) -> Result<Outcome> {
        let laid = self.lay_out(job)?;
        let mut outcome = runner::run(job, &*laid)?;
        if job.layout == Layout::Append {
            outcome.extents = laid.extents()?.map(|found| (found, ideal_extents(job, outcome.tally.bytes)));
        }
        Ok(outcome)
    }
}

/// The files of a job; removed when dropped.
pub trait Laid: Sync {
    /// A way to the file with number `file` for a thread that keeps up to `depth` operations under way.
    fn lane(&self, job: &Job, file: u32, depth: u32) -> Result<Box<dyn Lane>>;

    /// A way to make a hole of the given bytes in file `file`, or to allocate them again, for a job that asks for it.
    fn punch(&self, job: &Job, file: u32) -> Result<Box<dyn Punch>>;

    /// Contiguous pieces on the device, of all files, where that can be told.
    fn extents(&self) -> Result<Option<u64>>;
}

/// A thread's way to the layout of a file.
pub trait Punch: Send {
    /// Makes `[offset, offset + len)` a hole.
    fn punch(&mut self, offset: u64, len: u64) -> Result<()>;

    /// Allocates `[offset, offset + len)`.
    fn allocate(&mut self, offset: u64, len: u64) -> Result<()>;
}

/// Bytes of the longest extent: 32768 blocks.
const LONGEST_EXTENT: u64 = 128 << 20;

/// The fewest extents for so many bytes spread evenly over the job's files.
fn ideal_extents(job: &Job, bytes: u64) -> u64 {
    let files = u64::from(job.file_count());
    (bytes / files).div_ceil(LONGEST_EXTENT).max(1) * files
}

/// Bytes that a page fault brings in.
const PAGE: u64 = 4096;

/// The first bytes of the pages in which an operation lies.
fn pages(io: &Io) -> impl Iterator<Item = u64> {
    (io.offset - io.offset % PAGE..io.offset + io.len).step_by(PAGE as usize)
}

/// Bytes written at once when a file is filled.
const CHUNK: u64 = 1 << 20;

/// A buffer of at least `len` bytes with contents that no device takes for zeros.
pub fn buffer(len: u64) -> Result<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed(usize::try_from(len.next_multiple_of(512))?);
    for (nth, byte) in buf.iter_mut().enumerate() {
        *byte = (nth as u8).wrapping_mul(31) | 1;
    }
    Ok(buf)
}

/// Calls `write` with pieces of `[0, len)` until all is written, unless interrupted.
pub fn fill(len: u64, mut write: impl FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
    let chunk = buffer(CHUNK)?;
    for offset in (0..len).step_by(chunk.len()) {
        crate::interrupt::check()?;
        // At most a chunk.
        write(&chunk[..(len - offset).min(CHUNK) as usize], offset)?;
    }
    Ok(())
}
