//! What the runs of a row do.

use std::fmt;

use super::metadata::{Names, Tree};
use crate::job::Job;

/// What the runs of a row do.
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
    /// What is counted as one operation, for people.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Blocks(_) => "IOPS",
            Self::Names(_) => "names/s",
            Self::Tree(_) => "files/s",
        }
    }

    /// Whether it moves data, and not only names.
    pub fn moves_data(&self) -> bool {
        !matches!(self, Self::Names(_))
    }

    /// Whether it is one task, of which people ask how long it takes.
    pub fn is_task(&self) -> bool {
        matches!(self, Self::Tree(_))
    }

    /// Whether its jobs are in step, so that the longest times say what all of them waited for.
    pub fn is_in_step(&self) -> bool {
        matches!(self, Self::Blocks(job) if job.in_step)
    }

    /// Programs of others that do it.
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
