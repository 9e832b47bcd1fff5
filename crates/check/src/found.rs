//! What a thread finds in the inode tables, for later passes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parext4_format::InodeNo;
use parext4_format::inode::{Inode, InodeFlags};

use crate::claims::Claims;
use crate::map::Run;
use crate::usage::{Counts, Used};
use crate::values::Values;
use crate::volume::InodeState;
use crate::xattrs::Policy;

/// Blocks of a directory that are contiguous on the volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirRun {
    pub physical: u64,
    pub logical: u32,
    pub len: u32,
}

impl From<Run> for DirRun {
    fn from(run: Run) -> Self {
        // A file has at most 2^32 blocks.
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self { physical: run.physical, logical: short(run.logical), len: short(run.len) }
    }
}

/// A directory with blocks.
#[derive(Clone, Debug)]
pub(crate) struct Dir {
    pub ino: InodeNo,
    pub generation: u32,
    pub flags: InodeFlags,
    /// Number of blocks that the directory should have.
    pub blocks: u32,
    /// True if the runs are all blocks of the directory: no other file has any of them.
    pub is_whole: bool,
    /// The first run of the directory, and the number of its runs.
    pub first_run: usize,
    pub runs: u32,
}

impl Dir {
    pub(crate) fn new(ino: InodeNo, inode: &Inode, blocks: u64, runs: Range<usize>) -> Self {
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            ino,
            generation: inode.generation,
            flags: inode.flags,
            blocks: short(blocks),
            is_whole: true,
            first_run: runs.start,
            runs: short(runs.len() as u64),
        }
    }
}

/// Facts from an attribute block that concern each inode with this block.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct InBlock {
    /// The usage by values in inodes.
    pub values: Used,
    pub policy: Policy,
}

impl InBlock {
    /// The facts about a block that cannot be read.
    pub(crate) const UNREADABLE: Self = Self { values: Used { blocks: 0, inodes: 0 }, policy: Policy::Some };
}

/// Results of one thread, or of all.
pub(crate) struct Found {
    pub dirs: Vec<Dir>,
    pub runs: Vec<DirRun>,
    /// Directories in their inode, with their bytes.
    pub inline_dirs: Vec<(InodeNo, Box<[u8]>)>,
    /// The number of inodes that refer to each attribute block.
    pub attribute_blocks: HashMap<u64, u32>,
    /// The number in the header of each attribute block that the thread has checked.
    pub stored_refcounts: Vec<(u64, u32)>,
    /// The attribute blocks that the thread met when another inode had claimed them.
    pub shared_blocks: HashMap<u64, InBlock>,
    /// The number of inodes whose time of deletion looks like the next entry of a list of orphans.
    pub refugees: u64,
    /// The first block of the journal, and the number of its blocks.
    pub journal: Option<(u64, u64)>,
    /// The inodes of the group that is being read.
    pub states: Vec<InodeState>,
    /// The usage of the inodes of that group.
    pub counts: Counts,
    /// The inodes of all values.
    pub values: Arc<Values>,
    /// The attribute blocks that a thread has checked.
    checked: Arc<Claims>,
}

impl Found {
    pub(crate) fn new(values: Arc<Values>, checked: Arc<Claims>) -> Self {
        Self {
            dirs: Vec::new(),
            runs: Vec::new(),
            inline_dirs: Vec::new(),
            attribute_blocks: HashMap::new(),
            stored_refcounts: Vec::new(),
            shared_blocks: HashMap::new(),
            refugees: 0,
            journal: None,
            states: Vec::new(),
            counts: Counts::default(),
            values,
            checked,
        }
    }

    /// Returns true for the thread that is the first to find the attribute block in this cluster.
    pub(crate) fn claim_attributes(&self, cluster: u64) -> bool {
        self.checked.claim(cluster, 1)
    }

    /// Adds the results of another thread.
    pub(crate) fn merge(&mut self, other: Self) {
        let shift = self.runs.len();
        self.runs.extend(other.runs);
        self.dirs.extend(other.dirs.into_iter().map(|dir| Dir { first_run: dir.first_run + shift, ..dir }));
        self.inline_dirs.extend(other.inline_dirs);
        for (block, count) in other.attribute_blocks {
            *self.attribute_blocks.entry(block).or_default() += count;
        }
        self.stored_refcounts.extend(other.stored_refcounts);
        self.refugees += other.refugees;
        self.journal = self.journal.or(other.journal);
    }
}
