//! Unpacks a tree of small files as tar does, or commits it with git.

use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use parext4_cli::interrupt;

use super::source_tree::{self, SourceFile};
use super::{git, sync};
use crate::outcome::{OpStats, Outcome};
use crate::runner::cpu_time;

/// The task with the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeTask {
    /// Unpack the tree and sync it.
    Unpack,
    /// Make a git repository of the tree, commit it, and run `git status`.
    Git,
}

impl TreeTask {
    pub fn name(self) -> &'static str {
        match self {
            Self::Unpack => "untar",
            Self::Git => "git",
        }
    }

    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Unpack => &[],
            Self::Git => &["git"],
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Tree {
    pub task: TreeTask,
    pub files: u32,
}

impl Tree {
    /// Runs on an empty file system that is mounted on `root`. The files stay there.
    pub fn run(&self, root: &Path) -> Result<Outcome> {
        let sources: Vec<SourceFile> = source_tree::tree(self.files).collect();
        let (mut stats, cpu, start) = (OpStats::new()?, cpu_time(), Instant::now());
        unpack(&sources, root, &mut stats)?;
        sync(root)?;
        let unpacked = Outcome::of_one_job(stats, start.elapsed(), cpu_time().saturating_sub(cpu));
        match self.task {
            TreeTask::Unpack => Ok(unpacked),
            TreeTask::Git => {
                let start = Instant::now();
                git::keep(&root.join(&sources[0].dir))?;
                let stats = unpacked.stats.without_latencies()?;
                Ok(Outcome::of_one_job(stats, start.elapsed(), Duration::ZERO))
            }
        }
    }
}

/// Makes directories and files with their contents and times.
fn unpack(sources: &[SourceFile], root: &Path, stats: &mut OpStats) -> Result<()> {
    // A time other than the present, which new files have anyway.
    let modified = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30));
    let mut dir = None;
    for source in sources {
        interrupt::check()?;
        let now = Instant::now();
        let path = root.join(&source.dir);
        if dir.replace(&source.dir) != Some(&source.dir) {
            fs::create_dir(&path).with_context(|| path.display().to_string())?;
        }
        let path = path.join(&source.name);
        let write = || {
            let mut file = File::create_new(&path)?;
            file.write_all(&source.contents)?;
            file.set_times(modified)
        };
        write().with_context(|| path.display().to_string())?;
        stats.add(source.contents.len() as u64, now.elapsed());
    }
    Ok(())
}
