//! Databases as real programs on a mounted file system, and the calls that make their commits
//! durable.

mod commit;
mod postgresql;
mod rocksdb;
mod speedtest;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

pub use commit::SyncCall;
pub use postgresql::PgTask;
pub use rocksdb::RocksTask;
pub use speedtest::Journal;

use crate::outcome::Outcome;

/// The database, and its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Overwrites of the first 8 KiB of a file, each followed by a call that makes it durable, as
    /// pg_test_fsync does.
    Commit(SyncCall),
    PostgreSql(PgTask),
    /// speedtest1, a program of SQLite's sources.
    Speedtest(Journal),
    RocksDb(RocksTask),
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Database {
    pub task: Task,
    /// Multiplies the data of a task: 1 for a trial, 5 for figures.
    pub scale: u32,
    /// The duration of tasks that run for a time.
    pub runtime: Duration,
}

impl Task {
    /// Returns the name of the case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Commit(call) => call.name(),
            Self::PostgreSql(task) => task.name(),
            Self::Speedtest(journal) => journal.name(),
            Self::RocksDb(task) => task.name(),
        }
    }

    /// Returns the unit of the rate.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Commit(_) => "commits/s",
            Self::PostgreSql(task) => task.unit(),
            Self::Speedtest(_) => "tests/s",
            Self::RocksDb(_) => "writes/s",
        }
    }

    /// Returns the external programs that the task needs.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Commit(_) => &[],
            Self::PostgreSql(_) => &["initdb", "postgres", "pgbench", "setpriv"],
            Self::Speedtest(_) => &["speedtest1"],
            Self::RocksDb(_) => &["db_bench"],
        }
    }

    /// Returns true if the duration of the task is of interest, not only its rate.
    pub fn is_measured_by_duration(self) -> bool {
        matches!(self, Self::Speedtest(_) | Self::PostgreSql(PgTask::Init | PgTask::Load))
    }
}

impl Database {
    /// Runs on an empty file system that is mounted on `root`. The files stay there.
    pub fn run(&self, root: &Path) -> Result<Outcome> {
        match self.task {
            Task::Commit(call) => commit::run(call, self.runtime, root),
            Task::PostgreSql(task) => postgresql::run(task, self.scale, self.runtime, root),
            Task::Speedtest(journal) => speedtest::run(journal, self.scale, root),
            Task::RocksDb(task) => rocksdb::run(task, self.scale, root),
        }
    }
}
