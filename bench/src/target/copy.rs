//! Plain copies out of an array: an upper bound for reads from any cache.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};

use super::Target;
use crate::access_order::Io;
use crate::buffers::{buffer, fill};
use crate::job::{Files, IoEngine, Job, Layout};
use crate::job_files::{HolePuncher, JobFiles};
use crate::submitter::{Blocking, Submitter};

/// An array of as many bytes as the job's file.
pub struct CopyTarget;

impl Target for CopyTarget {
    fn prepare(&self, job: &Job) -> Result<Box<dyn JobFiles>> {
        let is_read = !job.rw.writes() && job.layout == Layout::Written && job.files == Files::One;
        ensure!(is_read, "an array is one file, all written, and only read");
        ensure!(job.ioengine == IoEngine::Auto, "an array has no page faults of its own");
        let mut bytes = Vec::with_capacity(usize::try_from(job.file_size())?);
        fill(job.file_size(), |chunk, _| {
            bytes.extend_from_slice(chunk);
            Ok(())
        })?;
        Ok(Box::new(Array(bytes.into())))
    }
}

struct Array(Arc<[u8]>);

impl JobFiles for Array {
    fn submitter(&self, job: &Job, _: u32, depth: u32) -> Result<Box<dyn Submitter>> {
        ensure!(depth == 1, "copies are done at once: --iodepth=1");
        let array = Arc::clone(&self.0);
        let mut buf = buffer(job.block.max)?;
        Ok(Box::new(Blocking::new(move |io: &Io| {
            let bytes = &mut buf[..io.len as usize];
            let from = usize::try_from(io.offset)?;
            bytes.copy_from_slice(&array[from..from + bytes.len()]);
            std::hint::black_box(bytes);
            Ok(())
        })))
    }

    fn hole_puncher(&self, _: &Job, _: u32) -> Result<Box<dyn HolePuncher>> {
        bail!("an array has no holes")
    }

    fn extents(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}
