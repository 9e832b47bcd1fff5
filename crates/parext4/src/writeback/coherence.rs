//! Direct operations on a file that has pages: they hold whole pages, so none comes into being in their way, and the
//! device has what they are about to read, or change, before they begin (H5, H19, H28).

use std::ops::Range;

use rangelock::{ByteRange, Mode};

use super::HowToHold;
use crate::admission::{Admission, HeldRange, Queued};
use crate::body::Runs;
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::node::Node;
use crate::operation::Operation;
use crate::page_cache::PAGE;

impl Node {
    /// Waits until an operation may proceed that does not extend the file, or sets its size, and settles the pages in its
    /// way. What admission saw of the file is true as long as the range is held (I2).
    pub(crate) fn admit(&self, operation: Operation) -> Result<HeldRange<'_>> {
        self.admit_settling(operation, Self::make_coherent)
    }

    /// As [`admit`](Self::admit), for an operation that extends the file to `end` if it is shorter.
    pub(crate) fn admit_up_to(&self, operation: Operation, end: u64) -> Result<HeldRange<'_>> {
        self.admit_up_to_settling(operation, end, Self::make_coherent)
    }

    /// Waits for the range of an operation in the queue; `None` if by then a larger one is needed.
    pub(crate) fn wait<'a>(
        &'a self,
        operation: Operation,
        queued: Queued<'a>,
    ) -> Result<Option<HeldRange<'a>>> {
        self.wait_settling(operation, queued, Self::make_coherent)
    }

    /// Returns the plan for `operation` as it is now that `range` is held in `mode`; `None` if that is not enough.
    pub(crate) fn confirm(
        &self,
        operation: Operation,
        range: ByteRange,
        mode: Mode,
    ) -> Result<Option<(Admission, Runs)>> {
        self.confirm_settling(operation, range, mode, Self::make_coherent)
    }

    /// Prepares the pages in the way of an operation that has its range. A file that was never opened for buffered I/O
    /// has none. Returns whether blocks may have changed by it.
    ///
    /// # Errors
    /// If dirty pages cannot be written back; they stay.
    pub(crate) fn make_coherent(&self, operation: Operation) -> Result<bool> {
        if self.inode.cached().is_none() || planted(Fault::PagesKept) {
            return Ok(false);
        }
        match operation {
            Operation::Read { offset, end } if offset < end => {
                self.write_back(pages_of(ByteRange::new(offset, end)), HowToHold::Already)?;
            }
            // Should the operation fail, or find that it must begin again, what was there is on the device.
            Operation::Write { offset, end }
            | Operation::Widen { offset, end }
            | Operation::ZeroRange { offset, end, .. }
                if offset < end =>
            {
                self.move_out(pages_of(ByteRange::new(offset, end)))?;
            }
            // What is behind moves on the device.
            Operation::CollapseRange { offset, .. } | Operation::InsertRange { offset, .. } => {
                self.move_out(pages_of(ByteRange::starting_at(offset)))?;
            }
            Operation::PunchHole { offset, end } => {
                // The pages that go will not raise the size when they are written back.
                self.raise_disk_size(end.min(self.inode.size()))?;
                self.move_edges_out(ByteRange::new(offset, end))?;
            }
            Operation::SetLen { size } => {
                self.move_edges_out(ByteRange::starting_at(size.min(self.inode.size())))?
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Writes pages back and drops them. The caller holds them exclusively.
    fn move_out(&self, pages: Range<u32>) -> Result<()> {
        if !planted(Fault::DroppedUnwritten) {
            self.write_back(pages.clone(), HowToHold::Already)?;
        }
        self.engine.discard_pages(&self.inode, pages);
        Ok(())
    }

    /// Writes back and drops the pages that lie in `range` only in part. The others are for the caller to
    /// [drop](Self::drop_cached) when their data has gone, as it may not come to that; until then nobody else writes
    /// them back. The caller holds them all exclusively.
    fn move_edges_out(&self, range: ByteRange) -> Result<()> {
        let (pages, whole) = (pages_of(range), whole_pages(range.start()..range.end()));
        if whole.is_empty() {
            return self.move_out(pages);
        }
        self.move_out(pages.start..whole.start)?;
        self.move_out(whole.end..pages.end)?;
        if let Some(cached) = self.inode.cached() {
            cached.pages.wait_write_back(whole);
        }
        Ok(())
    }

    /// Drops the pages that lie in `range` as a whole, whose data has gone. The caller holds them exclusively.
    pub(crate) fn drop_cached(&self, range: ByteRange) {
        self.engine.discard_pages(&self.inode, whole_pages(range.start()..range.end()));
    }

    /// An error if an operation that must not wait would have to write back, or wait for pages.
    pub(crate) fn check_coherent(&self, operation: Operation) -> Result<()> {
        let Some(cached) = self.inode.cached() else { return Ok(()) };
        let (Operation::Read { offset, end }
        | Operation::Write { offset, end }
        | Operation::Widen { offset, end }) = operation
        else {
            return Ok(());
        };
        let mut pages = pages_of(ByteRange::new(offset, end));
        if pages.any(|index| cached.pages.peek(index).is_some()) {
            return Err(Error::WouldBlock("the page cache has part of it"));
        }
        Ok(())
    }

    /// Waits until the page at byte `at` is not being written back. The caller holds some of the page exclusively, so
    /// that does not begin again.
    pub(crate) fn wait_for_write_back_at(&self, at: u64) {
        if let Some(cached) = self.inode.cached() {
            let pages = pages_of(ByteRange::new(at, at.saturating_add(1)));
            cached.pages.wait_write_back(pages);
        }
    }

    /// Writes back all that is dirty in the file, for whoever looks at its map or makes it durable.
    ///
    /// # Errors
    /// As [`write_back`](Self::write_back).
    pub(crate) fn settle_cache(&self) -> Result<()> {
        if self.inode.cached().is_none() {
            return Ok(());
        }
        self.write_back(0..u32::MAX, HowToHold::Wait)
    }
}

/// The pages that a range touches.
pub(crate) fn pages_of(range: ByteRange) -> Range<u32> {
    let narrow = |index: u64| u32::try_from(index).unwrap_or(u32::MAX);
    let page = PAGE as u64;
    narrow(range.start() / page)..narrow(range.end().div_ceil(page))
}

/// The pages that lie in a range of bytes as a whole.
pub(crate) fn whole_pages(range: Range<u64>) -> Range<u32> {
    let narrow = |index: u64| u32::try_from(index).unwrap_or(u32::MAX);
    let (start, end) = (range.start.div_ceil(PAGE as u64), range.end / PAGE as u64);
    narrow(start)..narrow(end.max(start))
}

/// The page that byte `at` lies in.
pub(crate) fn page_of(at: u64) -> u32 {
    u32::try_from(at / PAGE as u64).unwrap_or(u32::MAX)
}
