//! Blocks kept for a window: they are not in the free extents, but not in use either.

use super::Group;
use crate::allocator::free_extents::FreeExtents;
use crate::error::Result;
use crate::journal::Handle;
use crate::layout::GroupRun;
use crate::meta::MetaCache;
use crate::sync::Arc;

impl Group {
    /// Removes the free run that `choose` returns from the free extents, in memory only.
    /// [`release`](Self::release) adds the blocks back that were not [used](Self::mark_used).
    pub(in crate::allocator) fn keep_for_window(
        &self,
        cache: &MetaCache,
        choose: impl FnOnce(&FreeExtents) -> Option<GroupRun>,
    ) -> Result<Option<GroupRun>> {
        let mut blocks = self.blocks.lock();
        self.load_blocks(cache, &mut blocks)?;
        let chosen = choose(&blocks.free);
        if let Some(run) = chosen {
            blocks.free.remove(run);
            blocks.in_windows += run.len;
        }
        self.update_hints(&blocks);
        Ok(chosen)
    }

    /// Marks blocks of a window as in use.
    pub(in crate::allocator) fn mark_used(
        self: &Arc<Self>,
        cache: &MetaCache,
        handle: &Handle<'_>,
        run: GroupRun,
    ) -> Result<()> {
        let mut blocks = self.blocks.lock();
        let bitmap = self.load_blocks(cache, &mut blocks)?;
        self.mark_in_use(handle, &mut blocks, &bitmap, run);
        blocks.in_windows -= run.len;
        Ok(())
    }
}
