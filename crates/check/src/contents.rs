//! Finds the blocks of files that belong to the file system.

use std::collections::HashSet;

use parext4_format::inode::Inode;
use parext4_format::{FormatError, InodeNo};

use crate::map::{self, Run, Sink};
use crate::problem::Problem;
use crate::volume::Volume;

/// The largest number of runs, and of nodes of the map, that are kept in memory.
const MOST: usize = 1 << 20;

/// The written blocks of a file.
pub(crate) struct Contents {
    /// The runs, in ascending order of file blocks.
    runs: Vec<Run>,
}

impl Contents {
    /// Walks the map of a file. The pass over the inodes reports errors of the map. `None` if the
    /// file has more than 1,048,576 runs.
    pub(crate) fn new(volume: &Volume<'_>, ino: InodeNo, inode: &Inode) -> Option<Self> {
        let mut collected = Collected { runs: Vec::new(), nodes: HashSet::new(), is_complete: true };
        map::walk(volume, ino, inode, &mut collected);
        collected.is_complete.then_some(Self { runs: collected.runs })
    }

    /// Returns the block of the volume that has file block `logical`, if it is mapped and written.
    pub(crate) fn block(&self, logical: u64) -> Option<u64> {
        let after = self.runs.partition_point(|run| run.logical <= logical);
        let run = self.runs.get(after.checked_sub(1)?)?;
        (logical - run.logical < run.len).then(|| run.physical + (logical - run.logical))
    }
}

struct Collected {
    runs: Vec<Run>,
    /// Nodes that the walk has read. It reads each node once.
    nodes: HashSet<u64>,
    is_complete: bool,
}

impl Sink for Collected {
    fn node(&mut self, block: u64) -> bool {
        self.is_complete &= self.nodes.len() < MOST;
        self.is_complete && self.nodes.insert(block)
    }

    fn data(&mut self, run: Run) {
        self.is_complete &= self.runs.len() < MOST;
        if self.is_complete && !run.unwritten {
            self.runs.push(run);
        }
    }

    fn wrong(&mut self, _: FormatError, _: Problem) {}
}
