//! Dropping pages of files from the page cache.

use super::HeldPages;
use crate::convert::saturating_u32;
use crate::engine::Engine;
use crate::fault::{Fault, when_planted};
use crate::inode::Inode;

impl Engine {
    /// Drops pages of a file and the space reserved for them.
    pub(crate) fn discard_pages(&self, inode: &Inode, pages: HeldPages<'_>) {
        if let Some(cached) = inode.cached() {
            let units = cached.pages.discard(pages.range());
            when_planted!(Fault::DelayLeaked, return);
            let blocks = saturating_u32(units * u64::from(self.page_size().unit()) / self.block_size());
            drop(self.allocator.undelay(blocks));
            inode.undelay_quota(blocks, self.layout.block_size);
            cached.remove_delayed(blocks);
        }
    }
}
