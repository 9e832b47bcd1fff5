//! Maps blocks that are in use already: for the replay of a fast commit that names them, and for
//! contents that leave the inode.
//!
//! The replay has claimed the blocks, and no other operation uses the volume.

use parext4_format::extent::Extent;
use parext4_format::{BlockRange, indirect};

use super::clusters;
use super::inline::has_no_blocks;
use crate::allocator::Run;
use crate::block_map::BlockMap;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::extent_map::ExtentMap;
use crate::inode::Inode;
use crate::journal::Handle;
use crate::mapping::BlockState;
use crate::sync::Arc;

impl Engine {
    /// Maps the blocks of `extent` as it says. Frees the blocks that were mapped there before,
    /// unless they are the same. Returns the clusters that the file has got.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::error::Error::NoSpace) if the map needs a block and there is none.
    /// Corruption.
    pub(crate) fn map_logged(&self, inode: &Arc<Inode>, extent: Extent) -> Result<Vec<Run>> {
        let runs: Vec<_> = self.block_map(inode)?.runs(extent.blocks()).collect::<Result<_>>()?;
        let mut mapped = Vec::new();
        for run in runs {
            let physical = extent.physical + u64::from(run.logical - extent.logical);
            let part = Extent { logical: run.logical, physical, len: run.len, ..extent };
            match run.state {
                BlockState::Hole => mapped.push(part),
                BlockState::Written(at) | BlockState::Unwritten(at) if at != physical => {
                    self.unmap_logged(inode, run.blocks())?;
                    mapped.push(part);
                }
                BlockState::Written(_) if extent.unwritten => {
                    self.mark_logged_unwritten(inode, run.blocks())?;
                }
                BlockState::Unwritten(_) if !extent.unwritten => {
                    self.mark_logged_written(inode, run.blocks())?;
                }
                BlockState::Written(_) | BlockState::Unwritten(_) => {}
            }
        }
        let mut new = Vec::new();
        for part in mapped {
            new.extend(self.map_hole(inode, part)?);
        }
        Ok(new)
    }

    /// Unmaps and frees `blocks`.
    ///
    /// # Errors
    /// As [`map_logged`](Self::map_logged).
    pub(crate) fn unmap_logged(&self, inode: &Arc<Inode>, blocks: BlockRange) -> Result<()> {
        while !self.transact(self.map_credits(inode)?, |handle| self.remove_range(handle, inode, blocks))? {}
        Ok(())
    }

    /// Maps `extent`, which is a hole. Returns the clusters that the file has got.
    fn map_hole(&self, inode: &Arc<Inode>, extent: Extent) -> Result<Vec<Run>> {
        let block_map = self.block_map(inode)?;
        if !block_map.has_unwritten() && (extent.unwritten || !self.fits_pointers(&extent)) {
            return Err(Error::corrupt(format_args!("fast commit: pointers cannot map {extent:?}")));
        }
        let mut new = Vec::new();
        let mut rest = extent;
        while rest.len > 0 {
            let (done, got) = self.transact(self.map_credits(inode)?, |handle| {
                inode.join(handle);
                match block_map {
                    BlockMap::Extents(map) => Ok((rest.len, self.map_extent(handle, inode, map, rest)?)),
                    BlockMap::Indirect(map) => {
                        let len = self.map_pointers(handle, inode, map, rest)?;
                        Ok((len, Some(Run { start: rest.physical, len })))
                    }
                    BlockMap::Inline(_) => Err(has_no_blocks(inode)),
                }
            })?;
            new.extend(got);
            rest.logical += done;
            rest.physical += u64::from(done);
            rest.len -= done;
        }
        Ok(new)
    }

    /// Returns true if a file without extents can map the blocks of `extent`.
    fn fits_pointers(&self, extent: &Extent) -> bool {
        let last = extent.physical.get() + u64::from(extent.len);
        extent.end() <= self.layout().max_indirect_blocks && last <= indirect::MAX_BLOCK
    }

    /// Maps the blocks of `extent`, which are holes. The inode has joined the transaction. Returns
    /// the clusters that the file has got.
    pub(super) fn map_extent(
        &self,
        handle: &Handle<'_>,
        inode: &Inode,
        map: &ExtentMap,
        extent: Extent,
    ) -> Result<Option<Run>> {
        let mut writer = map.lock();
        let new = clusters::unused(self.layout(), &writer, extent);
        let plan = writer.plan_fill(handle.tid(), extent)?;
        let mut reservation = self.allocator().reserve(plan.blocks)?;
        let goal = extent.physical;
        self.edit(handle, inode, goal, &mut reservation, |edit| writer.carry_out(edit, plan))?;
        inode.add_blocks(handle, new.map_or(0, |new| new.len.into()), self.layout().block_size);
        Ok(new)
    }

    fn mark_logged_written(&self, inode: &Arc<Inode>, mut blocks: BlockRange) -> Result<()> {
        while !blocks.is_empty() {
            let done = self.transact(self.map_credits(inode)?, |handle| {
                let mut reservation = self.allocator().reserve(self.block_map(inode)?.conversion_blocks())?;
                self.convert(handle, inode, blocks, &mut reservation)
            })?;
            blocks = blocks.skip(done);
        }
        Ok(())
    }

    fn mark_logged_unwritten(&self, inode: &Arc<Inode>, mut blocks: BlockRange) -> Result<()> {
        while !blocks.is_empty() {
            let done =
                self.transact(self.map_credits(inode)?, |handle| self.make_unwritten(handle, inode, blocks))?;
            blocks = blocks.skip(done);
        }
        Ok(())
    }
}
