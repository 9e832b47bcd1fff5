//! Coherence of direct operations with the page cache (H5, H19, H28).
//!
//! Responsible for preparing the pages in the way of a direct operation: a dirty page is written
//! back before the device is read or changed, and a page is dropped before its blocks change. A
//! direct operation holds the ranges of whole pages, so no page is created in its way. Not
//! responsible for acquiring the range: [`admission`](crate::admission) does that.

use std::ops::Deref;

use rangelock::{ByteRange, Mode, RangeLock};

use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::inode_ref::{HeldPages, Hold, InodeRef};
use crate::operation::Operation;
use crate::page_cache::PageRange;

impl InodeRef {
    /// Prepares the pages in the way of an operation that holds its range. A file that was never
    /// opened for buffered I/O has none. Returns true if blocks may have changed meanwhile.
    ///
    /// # Errors
    /// Returns an error if dirty pages cannot be written back. They stay dirty.
    pub(crate) fn make_coherent<L: Deref<Target = RangeLock>>(
        &self,
        hold: &Hold<L>,
        operation: Operation,
    ) -> Result<bool> {
        if guarded!(Fault::PagesNotDiscarded, self.inode.cached()).is_none() {
            return Ok(false);
        }
        match operation {
            Operation::Read { offset, end } if offset < end => {
                self.write_back_held(self.held_pages(hold, ByteRange::new(offset, end), Mode::Shared))?;
            }
            // The device has the earlier data if the operation fails or starts over.
            Operation::Write { offset, end }
            | Operation::Widen { offset, end }
            | Operation::ZeroRange { offset, end, .. }
                if offset < end =>
            {
                self.move_out(self.held_pages(hold, ByteRange::new(offset, end), Mode::Exclusive))?;
            }
            // All blocks from `offset` on move.
            Operation::CollapseRange { offset, .. } | Operation::InsertRange { offset, .. } => {
                self.move_out(self.held_pages(hold, ByteRange::starting_at(offset), Mode::Exclusive))?;
            }
            Operation::PunchHole { offset, end } => {
                // The dropped pages will not raise the size by their write-back.
                self.raise_disk_size(end.min(self.inode.size()))?;
                self.move_edges_out(hold, ByteRange::new(offset, end))?;
            }
            Operation::SetLen { size } => {
                self.move_edges_out(hold, ByteRange::starting_at(size.min(self.inode.size())))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the pages that `range` touches, which `hold` covers as a whole.
    fn held_pages<'h, L: Deref<Target = RangeLock>>(
        &self,
        hold: &'h Hold<L>,
        range: ByteRange,
        mode: Mode,
    ) -> HeldPages<'h> {
        hold.pages(&self.engine, &self.inode, self.engine.page_size().touching(range), mode)
    }

    /// Writes back pages and drops them.
    fn move_out(&self, pages: HeldPages<'_>) -> Result<()> {
        guarded!(Fault::DroppedUnwritten, self.write_back_held(pages)?);
        self.engine.discard_pages(&self.inode, pages);
        Ok(())
    }

    /// Writes back and drops the pages that are partly in `range`, or outside it in a cluster that
    /// is partly in it (H38). The caller [drops](Self::drop_cached) the pages that are wholly in
    /// `range` once their blocks are gone, because the operation may still fail. `hold` covers all
    /// of them exclusively, so no other thread begins to write them back.
    fn move_edges_out<L: Deref<Target = RangeLock>>(&self, hold: &Hold<L>, range: ByteRange) -> Result<()> {
        let cluster = guarded!(Fault::UnmapBlocksOnly, self.engine.layout().cluster_bytes(), 1);
        let pages = self.held_pages(hold, range.round_out(cluster), Mode::Exclusive);
        let whole = self.engine.page_size().inside(range.start()..range.end());
        if whole.is_empty() {
            return self.move_out(pages);
        }
        self.move_out(pages.part(pages.range().before(whole.start())))?;
        self.move_out(pages.part(PageRange::new(whole.end(), pages.range().end())))?;
        if let Some(cached) = self.inode.cached() {
            cached.pages.wait_write_back(whole);
        }
        Ok(())
    }

    /// Drops the pages that lie in `range` as a whole, whose data has gone.
    pub(crate) fn drop_cached(&self, hold: &Hold<&RangeLock>, range: ByteRange) {
        let pages = self.engine.page_size().inside(range.start()..range.end());
        self.engine.discard_pages(&self.inode, hold.pages(&self.engine, &self.inode, pages, Mode::Exclusive));
    }

    /// Returns [`Error::WouldBlock`] if the operation would have to write back pages or wait for
    /// them.
    pub(crate) fn check_coherent(&self, operation: Operation) -> Result<()> {
        let Some(cached) = self.inode.cached() else { return Ok(()) };
        let (Operation::Read { offset, end }
        | Operation::Write { offset, end }
        | Operation::Widen { offset, end }) = operation
        else {
            return Ok(());
        };
        let pages = self.engine.page_size().touching(ByteRange::new(offset, end));
        if pages.pages().any(|index| cached.pages.peek(index).is_some()) {
            return Err(Error::WouldBlock("the page cache has part of it"));
        }
        Ok(())
    }

    /// Blocks until the page at byte `at` is not being written back. `hold` covers the bytes of
    /// that block before `at` exclusively, so no thread begins to write the page back again.
    pub(crate) fn wait_for_write_back_at<L: Deref<Target = RangeLock>>(&self, hold: &Hold<L>, at: u64) {
        hold.assert_covers(self, at - at % self.engine.block_size(), at, Mode::Exclusive);
        if let Some(cached) = self.inode.cached() {
            let pages = self.engine.page_size().touching(ByteRange::new(at, at.saturating_add(1)));
            cached.pages.wait_write_back(pages);
        }
    }
}
