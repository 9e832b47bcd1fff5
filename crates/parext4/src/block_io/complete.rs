//! The last step of a write, once its data is on the device: converts its blocks in the map, then
//! raises the size.

use parext4_format::BlockRange;

use super::prepare::{PendingConversion, Prepared};
use crate::error::Result;
use crate::fault::{Fault, guarded, when_planted};
use crate::inode_ref::InodeRef;
use crate::journal::Handle;
use crate::mapping::Mapping;

/// The changes that become visible when a write completes.
#[derive(Clone, Copy, Debug)]
struct VisibleChange {
    /// The file offset after the last byte of the write.
    end: u64,
    /// Whether the file counts as modified.
    modifies: bool,
}

impl InodeRef {
    /// Makes visible a write that ends at byte `end`. The caller still holds its range (I2).
    ///
    /// # Errors
    /// The error that stops the volume.
    pub(crate) fn complete(&self, prepared: Prepared<'_>, end: u64) -> Result<()> {
        let Prepared { runs, conversion, modifies } = prepared;
        self.engine.allow_size(end)?;
        match conversion {
            Some(conversion) => self.convert_and_grow(&runs, VisibleChange { end, modifies }, conversion),
            None if end > self.inode.disk_size() => self.grow(VisibleChange { end, modifies }),
            None if !modifies => Ok(()),
            None => {
                self.engine.touch_lazily(&self.inode);
                Ok(())
            }
        }
    }

    /// Converts the unwritten runs to written, and raises the size in the same transaction (I3).
    /// Uses only reserved blocks (I5).
    ///
    /// Usually the conversion marks each run in its leaf, without a lock. If a run cannot be
    /// marked, or the journal is too small to convert all runs in one transaction, the size follows
    /// the conversion piece by piece.
    fn convert_and_grow(
        &self,
        runs: &[Mapping],
        change: VisibleChange,
        mut conversion: PendingConversion<'_>,
    ) -> Result<()> {
        when_planted!(Fault::SizeFirst, self.inode.raise_size(change.end));
        let journal = self.engine.journal();
        let _outer = guarded!(Fault::HandleInHandle, None, Some(journal.begin(0)));
        let end = runs.last().map_or(0, Mapping::end);
        let mut at = runs.first().map_or(0, |run| run.logical.to_u64());
        if !conversion.pinned {
            at = self.engine.transact(0, |handle| self.mark(handle, runs, change))?;
        }
        let blocks = runs.iter().filter(|run| run.is_unwritten()).map(|run| u64::from(run.len)).sum();
        let mut rest = BlockRange::clamped(at, end);
        self.record().converted(blocks, rest.is_empty());
        while !rest.is_empty() {
            let (engine, inode) = (&self.engine, &self.inode);
            let credits = engine.conversion_credits(inode, conversion.pieces)?;
            rest = engine.transact(credits, |handle| {
                let left = rest.skip(engine.convert(handle, inode, rest, &mut conversion.reservation)?);
                self.publish(left.start().to_u64(), change);
                Ok(left)
            })?;
        }
        if conversion.pinned {
            self.unpin(runs)?;
        }
        guarded!(Fault::SizeLater, Ok(()), self.grow(change))
    }

    /// Marks runs as written, up to the first that cannot be marked in place. Returns the file
    /// block at which it stopped.
    fn mark(&self, handle: &Handle<'_>, runs: &[Mapping], change: VisibleChange) -> Result<u64> {
        let block_map = self.engine.block_map(&self.inode)?;
        let mut marked = 0;
        for run in runs.iter().filter(|run| run.is_unwritten()) {
            let done = block_map.mark_written(handle.tid(), run);
            marked += done;
            if done < run.len {
                let at = run.logical.to_u64() + u64::from(done);
                if marked > 0 {
                    self.publish(at, change);
                }
                return Ok(at);
            }
        }
        let end = runs.last().map_or(0, Mapping::end);
        self.publish(end, change);
        Ok(end)
    }

    /// Raises the size to cover what was converted up to file block `block`, in the transaction
    /// that carries the conversion. The conversion comes first: otherwise a reader within the new
    /// size would find the block unwritten (H4).
    fn publish(&self, block: u64, change: VisibleChange) {
        let covered = change.end.min(block * self.engine.block_size());
        guarded!(Fault::SizeLater, self.inode.raise_size(covered));
        if change.modifies {
            self.inode.touch_modified();
        }
    }

    /// Raises the size on the device to `end`, for cached data that is dropped before a write-back
    /// could raise it.
    ///
    /// # Errors
    /// The error that stops the volume.
    pub(crate) fn raise_disk_size(&self, end: u64) -> Result<()> {
        if end <= self.inode.disk_size() {
            return Ok(());
        }
        self.engine.allow_size(end)?;
        self.grow(VisibleChange { end, modifies: false })
    }

    /// Raises the size to cover data in blocks that were written already.
    fn grow(&self, change: VisibleChange) -> Result<()> {
        self.engine.transact(1, |handle| {
            guarded!(Fault::GrowUnjoined, self.inode.join(handle));
            self.inode.raise_size(change.end);
            if change.modifies {
                self.inode.touch_modified();
            }
            Ok(())
        })
    }
}
