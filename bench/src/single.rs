//! One job on one target.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use parext4::Device;
use parext4::device::signature;
use parext4_storage::Location;
use serde_json::{Value, json};

use super::engine::Engine;
use super::job::Job;
use super::outcome::Outcome;
use super::storage::{self, Image};
use super::target::{self, CopyTarget, DirTarget, LibTarget, RawTarget, TargetSpec as Spec};

/// A job, its target, and the settings of the engine.
#[derive(Clone, Debug)]
pub struct SingleRun {
    /// The operations.
    pub job: Job,
    /// The target.
    pub target: Spec,
    /// The settings of the engine, for targets that use it.
    pub engine: Engine,
    /// Permits a raw target that exists to be overwritten.
    pub destroy: bool,
}

impl SingleRun {
    /// Runs the job.
    ///
    /// # Errors
    /// A job that contradicts itself or its target, and errors of the target.
    pub fn measure(&self) -> Result<Outcome> {
        self.job.check()?;
        measure(self).with_context(|| self.target.to_string())
    }
}

fn measure(run: &SingleRun) -> Result<Outcome> {
    let (job, engine) = (&run.job, run.engine);
    match &run.target {
        Spec::Dir(path) => target::run(&DirTarget::new(path), job),
        Spec::Raw(path) => {
            let (device, made) = open_or_make(path, job, job.direct)?;
            if job.rw.writes() && made.is_none() && !run.destroy {
                refuse_to_destroy(&*device)?;
            }
            target::run(&RawTarget::new(device), job)
        }
        Spec::Lib(path) => {
            // Direct I/O, so that the cache of the volume is the only one.
            let (device, made) = open_or_make(path, job, true)?;
            let target = match made {
                Some(_) => LibTarget::make(device, engine)?,
                None => LibTarget::open(device, engine)?,
            };
            target.run_and_close(job)
        }
        Spec::Copy => target::run(&CopyTarget, job),
        Spec::Mem => LibTarget::make(storage::memory(volume_size(job))?, engine)?.run_and_close(job),
        Spec::Sim { latency, parallel } => {
            let memory = storage::memory(volume_size(job))?;
            let device = storage::simulated(memory, *latency, *parallel);
            LibTarget::make(device, engine)?.run_and_close(job)
        }
    }
}

/// Opens the image or device at `path`. An image that does not exist is made, and removed after the
/// run.
fn open_or_make(path: &Path, job: &Job, direct: bool) -> Result<(Arc<dyn Device>, Option<Image>)> {
    let made = match Location::parse(path)?.path() {
        Some(path) if !path.exists() => Some(Image::make(path, volume_size(job))?),
        _ => None,
    };
    Ok((storage::open(path, direct)?, made))
}

fn refuse_to_destroy(device: &dyn Device) -> Result<()> {
    let what = match signature::find(device)? {
        Some(what) => what.to_string(),
        None => "data".to_owned(),
    };
    bail!("holds {what}, which the job would destroy; --destroy does it")
}

/// Returns the size of a volume for the job's files.
fn volume_size(job: &Job) -> u64 {
    (job.size + job.size / 4 + (64 << 20)).next_multiple_of(1 << 20)
}

impl SingleRun {
    /// Returns the job, the target and what was measured as one JSON object.
    pub fn to_json(&self, outcome: &Outcome) -> Value {
        let Self { job, target, engine, .. } = self;
        let mut value = json!({
            "target": target.to_string(),
            "rw": job.rw.name(),
            "layout": job.layout.name(),
            "files": job.files.name(),
            "bs": job.block.to_string(),
            "numjobs": job.numjobs,
            "iodepth": job.iodepth,
            "ioengine": job.ioengine.name(),
            "policy": engine.policy.to_string(),
            "split_at": engine.split_at.to_string(),
            "serialize_allocation_from": engine.serialize_from,
        });
        if let (Some(all), Value::Object(measured)) = (value.as_object_mut(), outcome.to_json()) {
            all.extend(measured);
        }
        value
    }
}
