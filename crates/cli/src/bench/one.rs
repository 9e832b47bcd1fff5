//! One job, as the command line says.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use parext4::FileDevice;
use serde_json::{Value, json};

use super::engine::Engine;
use super::ground::{self, Image};
use super::job::Job;
use super::options::{Args, Spec};
use super::outcome::Outcome;
use super::target::{CopyTarget, DirTarget, LibTarget, RawTarget, Target};
use crate::signature;

/// Runs the job and prints what it measured.
pub fn run(args: &Args) -> Result<()> {
    let job = args.job();
    job.check()?;
    let engine = args.engine();
    let outcome = measure(args, &job, engine).with_context(|| args.target.to_string())?;
    if args.json {
        writeln!(std::io::stdout(), "{:#}", to_json(args, &job, engine, &outcome))?;
    } else {
        outcome.print()?;
    }
    Ok(())
}

fn measure(args: &Args, job: &Job, engine: Engine) -> Result<Outcome> {
    match &args.target {
        Spec::Dir(path) => DirTarget::new(path).run(job),
        Spec::Raw(path) => {
            let (device, _made) = open_or_make(path, job, job.direct)?;
            if job.rw.writes() && !args.force {
                refuse_to_destroy(&device)?;
            }
            RawTarget::new(Arc::new(device)).run(job)
        }
        Spec::Lib(path) => {
            // The volume's own cache is the only one.
            let (device, made) = open_or_make(path, job, true)?;
            let target = match made {
                Some(_) => LibTarget::make(Arc::new(device), engine)?,
                None => LibTarget::open(Arc::new(device), engine)?,
            };
            target.run_and_close(job)
        }
        Spec::Copy => CopyTarget.run(job),
        Spec::Mem => LibTarget::make(ground::memory(volume_size(job))?, engine)?.run_and_close(job),
        Spec::Sim { latency, parallel } => {
            let memory = ground::memory(volume_size(job))?;
            let device = ground::simulated(memory, *latency, *parallel);
            LibTarget::make(device, engine)?.run_and_close(job)
        }
    }
}

/// The image or device at `path`; an image that does not exist is made for the time of the run.
fn open_or_make(path: &Path, job: &Job, direct: bool) -> Result<(FileDevice, Option<Image>)> {
    let made = match path.exists() {
        true => None,
        false => Some(Image::make(path, volume_size(job))?),
    };
    Ok((ground::open(path, direct)?, made))
}

fn refuse_to_destroy(device: &FileDevice) -> Result<()> {
    match signature::find(device)? {
        Some(what) => bail!("holds {what}, which the job would destroy; --force does it"),
        None => Ok(()),
    }
}

/// Bytes of a volume that has room for the job's files.
fn volume_size(job: &Job) -> u64 {
    (job.size + job.size / 4 + (64 << 20)).next_multiple_of(1 << 20)
}

/// The result and, so that it can be told from others, the job.
fn to_json(args: &Args, job: &Job, engine: Engine, outcome: &Outcome) -> Value {
    let mut value = json!({
        "target": args.target.to_string(),
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
