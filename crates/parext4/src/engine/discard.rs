//! Dropping pages of files from the page cache.

use std::ops::Range;

use super::Engine;
use crate::fault::{Fault, when_planted};
use crate::inode::Inode;

impl Engine {
    /// Drops pages of a file and the space reserved for them. The caller holds the range of all of them.
    pub(crate) fn discard_pages(&self, inode: &Inode, pages: Range<u32>) {
        if let Some(cached) = inode.cached() {
            let units = cached.pages.discard(pages);
            when_planted!(Fault::DelayForgotten, return);
            let blocks = u32::try_from(units * 1024 / self.block_size()).unwrap_or(u32::MAX);
            drop(self.allocator.undelay(blocks));
            cached.remove_delayed(blocks);
        }
    }
}
