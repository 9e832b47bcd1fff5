//! Splits unwritten extents at the edges of a write before its data is on the device.

use crate::error::Result;
use crate::inode_ref::InodeRef;
use crate::mapping::Mapping;

impl InodeRef {
    /// Splits the unwritten extents under `runs` at the edges of the runs, so that completing the
    /// write only changes states. Keeps the extents split until [`unpin`](Self::unpin).
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace) if the tree needs a block and none is free; nothing is
    /// pinned then.
    pub(crate) fn split_runs(&self, runs: &[Mapping]) -> Result<()> {
        let mut pinned = 0;
        for run in runs.iter().filter(|run| run.is_unwritten()) {
            pinned += 1;
            if let Err(error) = self.split_run(run) {
                self.unpin_some(runs, pinned)?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Allows the extents under `runs` to be merged again.
    pub(crate) fn unpin(&self, runs: &[Mapping]) -> Result<()> {
        self.unpin_some(runs, usize::MAX)
    }

    fn unpin_some(&self, runs: &[Mapping], count: usize) -> Result<()> {
        let mut block_map = self.engine.block_map(&self.inode)?.lock();
        runs.iter().filter(|run| run.is_unwritten()).take(count).for_each(|run| block_map.unpin(run));
        Ok(())
    }

    fn split_run(&self, run: &Mapping) -> Result<()> {
        let (engine, inode) = (&self.engine, &self.inode);
        let credits = engine.conversion_credits(inode, 2)?;
        engine.block_map(inode)?.lock().pin(run);
        engine.transact(credits, |handle| engine.split_at_edges(handle, inode, run.blocks()))
    }
}
