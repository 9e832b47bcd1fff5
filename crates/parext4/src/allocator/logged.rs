//! Marks as in use the blocks and inodes that fast commits name, for their replay.

use parext4_format::{FsBlock, InodeNo, bitmap};

use super::group::Group;
use super::{Allocator, Run};
use crate::error::Result;
use crate::journal::Handle;
use crate::layout::GroupRun;
use crate::meta::{MetaBlock, MetaCache};
use crate::sync::Arc;

impl Allocator {
    /// Splits a run of blocks, rounded out to clusters, into parts for
    /// [`claim_logged`](Self::claim_logged), each in one group.
    ///
    /// # Errors
    /// Corruption: blocks outside the volume, or of the file system itself.
    pub(crate) fn parts(&self, start: FsBlock, len: u32) -> Result<impl Iterator<Item = Run>> {
        self.layout.check_data_range(start, len.into())?;
        let parts = self.split(self.clusters_of(start, len));
        Ok(parts.map(|(group, run)| self.blocks_of(Run::in_group(&self.units, group, run))))
    }

    /// Marks the free blocks of `run` as in use. `run` lies in one group, and none of its blocks
    /// was freed by a transaction that is not durable. Returns the blocks that were free. Registers
    /// at most [`ALLOCATE_CREDITS`](super::ALLOCATE_CREDITS) blocks.
    ///
    /// # Errors
    /// Corruption of the group.
    pub(crate) fn claim_logged(&self, handle: &Handle<'_>, run: Run) -> Result<Vec<Run>> {
        let (group, run) = self.clusters_of(run.start, run.len).group(&self.units);
        let claimed = self.group(group).take_free_of(&self.cache, handle, run)?;
        for run in &claimed {
            // Only the replay uses the volume now, and it holds no reservation while it claims
            // blocks.
            self.claim(run.len.into(), 0)?;
            self.counts.sub_blocks(handle, self.blocks_in(run.len.into()));
        }
        let blocks = |run| self.blocks_of(Run::in_group(&self.units, group, run));
        Ok(claimed.into_iter().map(blocks).collect())
    }

    /// Allocates the free inode number `ino`. Returns its table block, in which the inode is
    /// zeroed. Registers at most [`INODE_CREDITS`](super::INODE_CREDITS) blocks.
    ///
    /// # Errors
    /// Corruption: the volume has no such inode, or its group is corrupt.
    pub(crate) fn allocate_logged_inode(
        &self,
        handle: &Handle<'_>,
        ino: InodeNo,
        is_dir: bool,
    ) -> Result<Arc<MetaBlock>> {
        let (number, index) = self.layout.inode_place(ino)?;
        let group = self.group(number);
        let block = {
            let mut inodes = group.inodes.lock();
            self.take_inode_at(handle, group, &mut inodes, (ino, index), is_dir)?
        };
        group.initialise_blocks(&self.cache, handle)?;
        self.counts.sub_inode(handle);
        Ok(block)
    }
}

impl Group {
    /// Marks the free blocks of `run` as in use, and returns them.
    fn take_free_of(
        self: &Arc<Self>,
        cache: &MetaCache,
        handle: &Handle<'_>,
        run: GroupRun,
    ) -> Result<Vec<GroupRun>> {
        let mut blocks = self.blocks.lock();
        let bitmap = self.load_blocks(cache, &mut blocks)?;
        let free: Vec<GroupRun> = bitmap::free_runs(&bitmap.snapshot(), run.start, run.start + run.len)
            .map(|(start, len)| GroupRun { start, len })
            .collect();
        for &run in &free {
            blocks.free.remove(run);
            self.mark_in_use(handle, &mut blocks, &bitmap, run);
        }
        self.update_hints(&blocks);
        Ok(free)
    }
}
