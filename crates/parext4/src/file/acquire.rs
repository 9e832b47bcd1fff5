//! Acquires the range of a blocking operation, with the pages in its way written back or dropped.

use super::DirectFile;
use crate::admission::{HeldRange, Transfer};
use crate::error::Result;
use crate::fault::{Fault, when_planted};
use crate::inode_ref::InodeRef;
use crate::operation::Operation;

impl DirectFile {
    /// Waits until an operation may proceed that neither ends at the end of the file nor extends
    /// it, or that sets the size, and writes back or drops the pages in its way. What admission saw
    /// of the file is true as long as the range is held (I2).
    ///
    /// # Errors
    /// As [`make_coherent`](InodeRef::make_coherent).
    pub(super) fn admit(&self, operation: Operation) -> Result<HeldRange<'_>> {
        self.acquire(&mut Transfer::new(operation))
    }

    /// As [`admit`](Self::admit), for an operation that extends the file or appends to it.
    #[inline]
    pub(super) fn acquire(&self, transfer: &mut Transfer) -> Result<HeldRange<'_>> {
        let held = self.node.acquire_with(transfer, InodeRef::make_coherent)?;
        Ok(held.expect("only a read is over at the end of the file"))
    }

    /// As [`admit`](Self::admit), for a read; [`Transfer::end`] is then where it ends. Returns
    /// `None` if it begins at or past the end of the file.
    #[inline]
    pub(super) fn acquire_to_read(&self, transfer: &mut Transfer) -> Result<Option<HeldRange<'_>>> {
        let mut held = self.node.acquire_with(transfer, InodeRef::make_coherent)?;
        when_planted!(Fault::ReadWithoutRange, held.iter_mut().for_each(HeldRange::release));
        Ok(held)
    }
}
