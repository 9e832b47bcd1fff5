//! The device itself, without a file system on it.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use indicatif::BinaryBytes;
use parext4::Device;
use parext4::device::open_queue;

use super::Target;
use crate::access_order::{Io, Kind};
use crate::buffers::{buffer, fill};
use crate::job::{Files, IoEngine, Job, Layout};
use crate::job_files::{HolePuncher, JobFiles};
use crate::queued::DeviceQueue;
use crate::submitter::{Blocking, Submitter};

/// A device whose start is used as one file.
pub struct RawTarget {
    device: Arc<dyn Device>,
}

impl RawTarget {
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self { device }
    }
}

impl Target for RawTarget {
    fn prepare(&self, job: &Job) -> Result<Box<dyn JobFiles>> {
        ensure!(
            job.layout == Layout::Written && job.files == Files::One,
            "a raw device is one file, all written"
        );
        ensure!(job.ioengine == IoEngine::Auto, "a raw device is not mapped");
        let (has, needs) = (self.device.size(), job.file_size());
        ensure!(has >= needs, "the device has {} only", BinaryBytes(has));
        if job.rw.writes() {
            fill(needs, |bytes, offset| Ok(self.device.write_at(offset, &[IoSlice::new(bytes)])?))?;
        }
        Ok(Box::new(Raw { device: Arc::clone(&self.device) }))
    }
}

struct Raw {
    device: Arc<dyn Device>,
}

impl JobFiles for Raw {
    fn submitter(&self, job: &Job, _: u32, depth: u32) -> Result<Box<dyn Submitter>> {
        if depth > 1 {
            return Ok(Box::new(DeviceQueue::new(open_queue(&self.device, depth), job, depth)?));
        }
        let device = Arc::clone(&self.device);
        let mut buf = buffer(job.block.max)?;
        Ok(Box::new(Blocking::new(move |io: &Io| {
            let bytes = &mut buf[..io.len as usize];
            match io.kind {
                Kind::Read => device.read_at(io.offset, &mut [IoSliceMut::new(bytes)])?,
                Kind::Write => device.write_at(io.offset, &[IoSlice::new(bytes)])?,
                Kind::Append => bail!("a raw device has no end to append at"),
                Kind::Sync => device.flush()?,
            }
            Ok(())
        })))
    }

    fn hole_puncher(&self, _: &Job, _: u32) -> Result<Box<dyn HolePuncher>> {
        bail!("a raw device has no holes")
    }

    fn extents(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}
