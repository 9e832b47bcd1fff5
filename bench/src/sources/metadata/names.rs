//! Threads that create, stat, rename and remove empty files, each in its own directory.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parext4_cli::interrupt;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat, unlinkat};

use super::sync;
use crate::access_order::Io;
use crate::job::{BlockSize, Files, IoEngine, Job, Layout, Rw};
use crate::job_files::{HolePuncher, JobFiles};
use crate::outcome::Outcome;
use crate::runner;
use crate::submitter::{Blocking, Submitter};

/// The operation on each name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// open(2) with `O_CREAT | O_EXCL`, and close(2).
    Create,
    Stat,
    /// renameat(2) in the same directory.
    Rename,
    Unlink,
}

impl Operation {
    pub const ALL: [Self; 4] = [Self::Create, Self::Stat, Self::Rename, Self::Unlink];

    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Stat => "stat",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
        }
    }

    fn call(self, dir: &File, name: &str) -> rustix::io::Result<()> {
        match self {
            Self::Create => create(dir, name),
            Self::Stat => statat(dir, name, AtFlags::empty()).map(drop),
            Self::Rename => renameat(dir, name, dir, format!("moved-{name}")),
            Self::Unlink => unlinkat(dir, name, AtFlags::empty()),
        }
    }
}

fn create(dir: impl AsFd, name: &str) -> rustix::io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::from_raw_mode(0o644)).map(drop)
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Names {
    pub operation: Operation,
    pub threads: u32,
    /// Largest number of files of each thread.
    pub files: u32,
    /// The run ends after this time, or when a thread has no files left.
    pub runtime: Duration,
}

impl Names {
    /// Runs on an empty file system that is mounted on `root`. The files stay there.
    pub fn run(&self, root: &Path) -> Result<Outcome> {
        let make = |nth: u32| {
            let path = root.join(nth.to_string());
            std::fs::create_dir(&path)?;
            File::open(&path)
        };
        let dirs =
            (0..self.threads).map(make).collect::<Result<Vec<_>, _>>().context("making directories")?;
        let laid = Directories { operation: self.operation, dirs };
        let files = match self.operation {
            Operation::Create => self.files,
            _ => self.fill(&laid.dirs).context("making files")?,
        };
        sync(root)?;
        let mut outcome = runner::run(&self.job(files), &laid)?;
        outcome.stats.bytes = 0;
        Ok(outcome)
    }

    /// Makes files in all directories, and returns their number in each. A slow file system gets
    /// fewer files, because it would not finish all of them.
    fn fill(&self, dirs: &[File]) -> Result<u32> {
        let start = Instant::now();
        for nth in 0..self.files {
            interrupt::check()?;
            if nth > 0 && start.elapsed() > self.runtime * 2 {
                return Ok(nth);
            }
            for dir in dirs {
                create(dir, &nth.to_string())?;
            }
        }
        Ok(self.files)
    }

    /// Returns the run as a job in which each name is a byte that is visited once, in order.
    fn job(&self, files: u32) -> Job {
        Job {
            rw: Rw::Write,
            layout: Layout::Append,
            files: Files::PerJob,
            size: u64::from(files) * u64::from(self.threads),
            block: BlockSize { min: 1, max: 1 },
            align: 1,
            shift: 0,
            read_percent: 0,
            numjobs: self.threads,
            iodepth: 1,
            ioengine: IoEngine::Auto,
            direct: false,
            pre_read: false,
            loops: None,
            in_step: false,
            runtime: self.runtime,
            ramp: Duration::ZERO,
            end_fsync: false,
            punch: false,
        }
    }
}

/// A directory for each thread.
struct Directories {
    operation: Operation,
    dirs: Vec<File>,
}

impl JobFiles for Directories {
    fn submitter(&self, _: &Job, nth: u32, _: u32) -> Result<Box<dyn Submitter>> {
        let (operation, dir) = (self.operation, self.dirs[nth as usize].try_clone()?);
        Ok(Box::new(Blocking::new(move |io: &Io| {
            let name = io.offset.to_string();
            operation.call(&dir, &name).with_context(|| format!("{} {name}", operation.name()))
        })))
    }

    fn hole_puncher(&self, _: &Job, _: u32) -> Result<Box<dyn HolePuncher>> {
        bail!("names have no holes")
    }

    fn extents(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}
