//! What a job runs on: the library, the plain device, a directory of any mounted file system, or an
//! array.

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

use crate::job::{Job, Layout};
use crate::job_files::{JobFiles, LONGEST_EXTENT};
use crate::outcome::Outcome;
use crate::runner;

/// Something that has files.
pub trait Target {
    /// Makes the files with which `job` starts.
    fn prepare(&self, job: &Job) -> Result<Box<dyn JobFiles>>;
}

/// Makes the files of `job`, runs it, and removes the files.
pub fn run(target: &dyn Target, job: &Job) -> Result<Outcome> {
    let files = target.prepare(job)?;
    let mut outcome = runner::run(job, &*files)?;
    if job.layout == Layout::Append {
        outcome.extents = files.extents()?.map(|found| (found, ideal_extents(job, outcome.stats.bytes)));
    }
    Ok(outcome)
}

/// Returns the smallest number of extents for `bytes` bytes that are spread evenly over the job's
/// files.
fn ideal_extents(job: &Job, bytes: u64) -> u64 {
    let files = u64::from(job.file_count());
    (bytes / files).div_ceil(LONGEST_EXTENT).max(1) * files
}
