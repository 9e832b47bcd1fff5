//! The workload of a case.

use std::fmt;

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
}

impl Workload {
    /// Returns the unit of the rate.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Blocks(_) => "IOPS",
            Self::Names(_) => "names/s",
            Self::Tree(_) => "files/s",
        }
    }

    /// Returns true if the workload moves data, not only names.
    pub fn moves_data(&self) -> bool {
        !matches!(self, Self::Names(_))
    }

    /// Returns true if the workload is a single task, whose duration is of interest.
    pub fn is_task(&self) -> bool {
        matches!(self, Self::Tree(_))
    }

    /// Returns true if the jobs run in step, so that the longest latencies are measured over all jobs.
    pub fn is_in_step(&self) -> bool {
        matches!(self, Self::Blocks(job) if job.in_step)
    }

    /// Returns the external programs that the workload needs.
    pub fn programs(&self) -> &'static [&'static str] {
        match self {
            Self::Tree(tree) => tree.task.programs(),
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
        }
    }
}
