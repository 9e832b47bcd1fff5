//! The workload of a case.

use std::fmt;

use super::databases::Database;
use super::metadata::{Names, Tree};
use crate::job::Job;

/// The workload of a case.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Operations on blocks of files.
    Blocks(Job),
    /// Operations on names of files.
    Names(Names),
    /// A task with a tree of small files.
    Tree(Tree),
    /// A database.
    Database(Database),
}

impl Workload {
    /// Returns the unit of the rate.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Blocks(_) => "IOPS",
            Self::Names(_) => "names/s",
            Self::Tree(_) => "files/s",
            Self::Database(database) => database.task.unit(),
        }
    }

    /// Returns true if the workload moves data, not only names.
    pub fn moves_data(&self) -> bool {
        !matches!(self, Self::Names(_) | Self::Database(_))
    }

    /// Returns true if the workload is a single task, whose duration is of interest.
    pub fn is_task(&self) -> bool {
        match self {
            Self::Tree(_) => true,
            Self::Database(database) => database.task.is_measured_by_duration(),
            Self::Blocks(_) | Self::Names(_) => false,
        }
    }

    /// Returns true if the longest latencies are reported: they are measured over all jobs.
    pub fn has_tails(&self) -> bool {
        match self {
            Self::Blocks(job) => job.in_step,
            Self::Database(_) => true,
            Self::Names(_) | Self::Tree(_) => false,
        }
    }

    /// Returns the external programs that the workload needs.
    pub fn programs(&self) -> &'static [&'static str] {
        match self {
            Self::Tree(tree) => tree.task.programs(),
            Self::Database(database) => database.task.programs(),
            Self::Blocks(_) | Self::Names(_) => &[],
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks(job) => {
                let step = if job.in_step { ", in step" } else { "" };
                write!(f, "{} jobs x {}{step}", job.numjobs, job.iodepth)
            }
            Self::Names(names) => write!(f, "{} jobs, a directory each", names.threads),
            Self::Tree(tree) => write!(f, "{} small files", tree.files),
            Self::Database(database) => write!(f, "scale {}", database.scale),
        }
    }
}
