//! Claims the blocks of one file, and counts them.

use parext4_format::features::RoCompat;
use parext4_format::{FormatError, InodeNo};

use crate::found::DirRun;
use crate::map::{Run, Sink};
use crate::problem::{
    PR_1_BADBLOCKS_IN_BADBLOCKS, PR_1_BB_ILLEGAL_BLOCK_NUM, PR_1_ILLEGAL_BLOCK_NUM, PR_1_MISALIGNED_CLUSTER,
    PR_1_UNINIT_DBLOCK, PR_1B_DUP_BLOCK, Problem,
};
use crate::scan::BAD_BLOCKS;
use crate::volume::Volume;

/// A sink that claims the blocks that a walk passes to it.
pub(crate) struct Mapper<'a, 'v> {
    volume: &'a Volume<'v>,
    ino: InodeNo,
    /// Receives the blocks of a directory that no other file has claimed before.
    runs: Option<&'a mut Vec<DirRun>>,
    clusters: u64,
    /// The last cluster of the data, in the file and on the volume. Several runs may share it.
    last_cluster: Option<(u64, u64)>,
    mapped: Mapped,
}

/// The blocks of a file.
#[derive(Default)]
pub(crate) struct Mapped {
    /// Number of blocks in use, including the blocks of the map. Counts whole clusters.
    pub blocks: u64,
    pub data_blocks: u64,
    /// The first block of the file on the volume.
    pub first_block: Option<u64>,
    /// The file block after the last one.
    pub end: u64,
    pub last_written: Option<u64>,
    /// False if a part of the map is wrong, or was not read.
    pub is_complete: bool,
    /// False if `blocks` may differ from the number that e2fsck counts.
    pub is_counted: bool,
    /// True if another file, or another part of this one, has claimed blocks of data before.
    pub shares_data: bool,
}

impl<'a, 'v> Mapper<'a, 'v> {
    pub(crate) fn new(volume: &'a Volume<'v>, ino: InodeNo, runs: Option<&'a mut Vec<DirRun>>) -> Self {
        let mapped = Mapped { is_complete: true, is_counted: true, ..Mapped::default() };
        Self { volume, ino, runs, clusters: 0, last_cluster: None, mapped }
    }

    pub(crate) fn finish(self) -> Mapped {
        let cluster_blocks = self.volume.sb.blocks_per_group() / self.volume.sb.clusters_per_group();
        Mapped { blocks: self.clusters * u64::from(cluster_blocks), ..self.mapped }
    }

    /// Returns the number of blocks that the file can map. A map with more blocks maps one block
    /// several times.
    fn most_blocks(&self) -> u64 {
        let sb = &self.volume.sb;
        if sb.ro_compat().contains(RoCompat::SHARED_BLOCKS) { u64::MAX } else { sb.blocks_count() }
    }

    fn is_bad_blocks(&self) -> bool {
        self.ino.get() == BAD_BLOCKS
    }

    /// Checks that the list of bad blocks does not contain the first block of the first inode
    /// table, which has the list's own inode.
    fn check_own_block(&self, run: &Run) {
        let table = self.volume.descs.first().and_then(Option::as_ref).map(|desc| desc.inode_table.get());
        if table.is_some_and(|table| (run.physical..run.physical + run.len).contains(&table)) {
            let problem = "the list of bad blocks has the block of its own inode";
            let error = FormatError::new("inode", "i_block", problem).of_inode(self.ino);
            self.volume.report(error, PR_1_BADBLOCKS_IN_BADBLOCKS);
        }
    }

    /// Claims the clusters of a run. Returns true if no other file has them.
    fn claim(&mut self, run: &Run) -> bool {
        let claims = &self.volume.claims;
        let ratio = u64::from(self.volume.sb.blocks_per_group() / self.volume.sb.clusters_per_group());
        let (mut first, last) =
            (claims.cluster_of(run.physical), claims.cluster_of(run.physical + run.len - 1));
        if run.logical % ratio != run.physical % ratio {
            let problem = format_args!("file block {} at block {}", run.logical, run.physical);
            let error = FormatError::new("inode", "cluster", problem).of_inode(self.ino);
            self.volume.report(error, PR_1_MISALIGNED_CLUSTER);
        }
        if self.last_cluster == Some((run.logical / ratio, first)) {
            first += 1;
        }
        self.last_cluster = Some(((run.logical + run.len - 1) / ratio, last));
        let count = (last + 1).saturating_sub(first);
        self.clusters += count;
        if count == 0 {
            return true;
        }
        // Only files may share contents: a directory is read for the first inode that claims its
        // blocks.
        if self.runs.is_none() && self.volume.sb.ro_compat().contains(RoCompat::SHARED_BLOCKS) {
            claims.share(first, count);
            return true;
        }
        claims.claim(first, count)
    }
}

impl Sink for Mapper<'_, '_> {
    /// Rejects blocks of the file system itself, as e2fsck does.
    fn node(&mut self, block: u64) -> bool {
        self.clusters += 1;
        let is_fresh = self.volume.claim_blocks(block, 1);
        let is_read =
            is_fresh || (self.volume.system_at(block).is_none() && self.volume.shared_nodes.may_read());
        self.mapped.is_complete &= is_read;
        self.mapped.is_counted &= is_read;
        is_read
    }

    /// Ignores runs after the limit of blocks, because a hostile map can have any number of blocks.
    fn data(&mut self, run: Run) {
        let was_possible = self.mapped.data_blocks <= self.most_blocks();
        self.mapped.data_blocks += run.len;
        if self.mapped.data_blocks > self.most_blocks() {
            if was_possible {
                let problem = "maps more blocks than the volume has";
                self.wrong(FormatError::new("inode", "i_block", problem), PR_1B_DUP_BLOCK);
            }
            return;
        }
        if self.is_bad_blocks() {
            self.check_own_block(&run);
        }
        let is_fresh = self.claim(&run);
        self.mapped.shares_data |= !is_fresh;
        let end = run.logical + run.len;
        self.mapped.first_block = self.mapped.first_block.or(Some(run.physical));
        self.mapped.end = self.mapped.end.max(end);
        if !run.unwritten {
            self.mapped.last_written = self.mapped.last_written.max(Some(end - 1));
        }
        if self.runs.is_some() && run.unwritten {
            let problem = format_args!("file block {} of a directory is unwritten", run.logical);
            let error = FormatError::new("extent", "ee_len", problem).of_inode(self.ino);
            self.volume.report(error, PR_1_UNINIT_DBLOCK);
        }
        if let Some(runs) = self.runs.as_mut().filter(|_| is_fresh) {
            runs.push(DirRun::from(run));
        }
    }

    fn wrong(&mut self, error: FormatError, problem: Problem) {
        self.mapped.is_counted = false;
        self.flaw(error, problem);
    }

    fn flaw(&mut self, error: FormatError, problem: Problem) {
        let is_listed = problem == PR_1_ILLEGAL_BLOCK_NUM && self.is_bad_blocks();
        let problem = if is_listed { PR_1_BB_ILLEGAL_BLOCK_NUM } else { problem };
        self.mapped.is_complete = false;
        self.volume.report(error.of_inode(self.ino), problem);
    }
}
