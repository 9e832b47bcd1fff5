//! Plain copies out of an array, as the most that reads out of any cache can come to.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};

use super::{Laid, Punch, Target, buffer, fill};
use crate::job::{Files, IoEngine, Job, Layout};
use crate::lane::{Lane, Sync};
use crate::order::Io;

/// An array of as many bytes as the job's file.
pub struct CopyTarget;

impl Target for CopyTarget {
    fn lay_out(&self, job: &Job) -> Result<Box<dyn Laid>> {
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

impl Laid for Array {
    fn lane(&self, job: &Job, _: u32, depth: u32) -> Result<Box<dyn Lane>> {
        ensure!(depth == 1, "copies are done at once: --iodepth=1");
        let array = Arc::clone(&self.0);
        let mut buf = buffer(job.block.max)?;
        Ok(Box::new(Sync::new(move |io: &Io| {
            let bytes = &mut buf[..io.len as usize];
            let from = usize::try_from(io.offset)?;
            bytes.copy_from_slice(&array[from..from + bytes.len()]);
            std::hint::black_box(bytes);
            Ok(())
        })))
    }

    fn punch(&self, _: &Job, _: u32) -> Result<Box<dyn Punch>> {
        bail!("an array has no holes")
    }

    fn extents(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}
