//! Dropping pages of files from the page cache.

use super::{HeldPages, Units};
use crate::engine::Engine;
use crate::fault::{Fault, when_planted};
use crate::inode::Inode;

impl Engine {
    /// Drops pages of a file and the space reserved for them.
    pub(crate) fn discard_pages(&self, inode: &Inode, pages: HeldPages<'_>) {
        if let Some(cached) = inode.cached() {
            let (mut count, mut blocks) = (0, Vec::new());
            let units = Units::of_volume(self);
            cached.pages.discard_each(pages.range(), |index, reserved| {
                count += units.blocks_in(reserved);
                if self.layout().cluster_bits > 0 {
                    blocks.extend(units.blocks_of(index, reserved));
                }
            });
            when_planted!(Fault::DelayLeaked, return);
            drop(self.undelay(inode, count));
            self.end_delay(inode, cached, count, blocks);
        }
    }
}
