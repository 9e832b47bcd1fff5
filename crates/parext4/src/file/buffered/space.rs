//! Checks that a write will find space, before it copies anything.

use parext4_format::FileBlock;
use rangelock::ByteRange;

use crate::convert::to_usize;
use crate::error::{Error, Result};
use crate::file::DirectFile;
use crate::inode::Cached;

/// A write of fewer bytes fits or fails as a whole, so that no read sees a part of it alone. Twice
/// the longest request of the kernel.
const LARGE: u64 = 2 << 20;

impl DirectFile {
    /// Fails if a write of `[start, end)`, a part of which will be visible at once, would run out
    /// of space. The caller then frees space without the range, and no read sees the first part of
    /// the write meanwhile (H22). Costs nothing while there is much space and the volume has no
    /// quotas.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace), [`QuotaExceeded`](crate::Error::QuotaExceeded), or the
    /// errors of a corrupt map.
    pub(super) fn check_space(&self, cached: &Cached, start: u64, end: u64) -> Result<()> {
        let (engine, inode) = (self.engine(), self.inode());
        let pages = engine.page_size().touching(ByteRange::new(start, end));
        let most = (end - start) / u64::from(engine.layout().block_size.bytes()) + 2;
        let is_short = engine.allocator().is_short_of(most, self.credentials()) || inode.has_quotas();
        if !is_short {
            return Ok(());
        }
        let mut holes: Vec<FileBlock> = Vec::new();
        for index in pages.pages() {
            let first = engine.page_size().start(index);
            let within = to_usize(start.saturating_sub(first));
            let upto = to_usize(end - first).min(engine.page_size().bytes());
            let touched = self.node.units().touched(within, upto - within);
            let (dirty, reserved) = cached.pages.get(index).map_or((0, 0), |page| page.marks());
            let missing = self.missing(index, touched & !dirty & !reserved)?;
            holes.extend(self.node.units().blocks_of(index, missing));
        }
        if holes.is_empty() {
            return Ok(());
        }
        match engine.try_delay(inode, cached, &holes, self.credentials()) {
            Err(Error::NoSpace) if self.may_fit(end - start, end - start) => Ok(()),
            other => other,
        }
    }

    /// Returns true if the last `rest` bytes of a write of `len` bytes, which find no space, will
    /// probably fit once the bytes before are written back: dirty pages reserve the most blocks
    /// that their tree can need, and it needs few for a contiguous write.
    pub(super) fn may_fit(&self, len: u64, rest: u64) -> bool {
        len >= LARGE && self.engine().allocator().fits_without_trees(rest, self.credentials())
    }
}
