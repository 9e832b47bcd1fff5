//! The last part of a write, when its data is on the device: the map, then the size, then whoever waits.

use super::prepare::{Debt, Prepared};
use crate::body::Mapping;
use crate::error::Result;
use crate::fault::{Fault, planted};
use crate::journal::Handle;
use crate::node::Node;

/// What a write shows when it is completed.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// The byte behind its last.
    end: u64,
    /// Whether the file counts as modified.
    modifies: bool,
}

impl Node {
    /// Makes a write that ends at byte `end` visible. Its range is still held (I2).
    ///
    /// # Errors
    /// What stops the volume.
    pub(crate) fn complete(&self, prepared: Prepared<'_>, end: u64) -> Result<()> {
        let Prepared { runs, debt, modifies } = prepared;
        match debt {
            Some(debt) => self.settle(&runs, Shown { end, modifies }, debt),
            None if end > self.inode.disk_size() => self.grow(Shown { end, modifies }),
            None if !modifies => Ok(()),
            None => {
                self.engine.touch_lazily(&self.inode);
                Ok(())
            }
        }
    }

    /// Makes written the runs that were unwritten, and raises the size in the same transaction (I3). Uses only
    /// what was reserved (I5).
    ///
    /// Mostly that is a mark in the leaf of each run, without a lock. If not, or if the journal is too small
    /// for all of it at once, the size follows piece by piece.
    fn settle(&self, runs: &[Mapping], shown: Shown, mut debt: Debt<'_>) -> Result<()> {
        if planted(Fault::SizeFirst) {
            self.inode.raise_size(shown.end);
        }
        let journal = &self.engine.journal;
        let _outer = planted(Fault::HandleInHandle).then(|| journal.begin(0));
        let last = runs.last().map_or(0, end_of);
        let mut at = runs.first().map_or(0, |run| run.logical.get());
        if !debt.pinned {
            at = self.engine.transact(0, |handle| self.mark(handle, runs, shown))?;
        }
        let blocks = runs.iter().filter(|run| run.is_unwritten()).map(|run| u64::from(run.len)).sum();
        self.record().converted(blocks, at == last);
        while at < last {
            let (engine, inode) = (&self.engine, &self.inode);
            let credits = engine.conversion_credits(inode, debt.pieces)?;
            at += engine.transact(credits, |handle| {
                let converted = engine.convert(handle, inode, at, last - at, &mut debt.reservation)?;
                self.reveal(at + converted, shown);
                Ok(converted)
            })?;
        }
        if debt.pinned {
            self.unpin(runs)?;
        }
        if planted(Fault::SizeLater) { self.grow(shown) } else { Ok(()) }
    }

    /// Marks as many of the runs as can be. Returns the file block that it came to.
    fn mark(&self, handle: &Handle<'_>, runs: &[Mapping], shown: Shown) -> Result<u32> {
        let map = self.engine.map(&self.inode)?;
        let mut marked = 0;
        for run in runs.iter().filter(|run| run.is_unwritten()) {
            let done = map.mark(handle.tid(), run.logical.get(), run.len);
            marked += done;
            if done < run.len {
                let at = run.logical.get() + done;
                if marked > 0 {
                    self.reveal(at, shown);
                }
                return Ok(at);
            }
        }
        let last = runs.last().map_or(0, end_of);
        self.reveal(last, shown);
        Ok(last)
    }

    /// Shows what was converted up to file block `block`, in the transaction that carries the conversion. After the
    /// conversion, or a reader within the new size would find it unwritten (H4).
    fn reveal(&self, block: u32, shown: Shown) {
        if !planted(Fault::SizeLater) {
            self.inode.raise_size(shown.end.min(u64::from(block) * self.engine.block_size()));
        }
        if shown.modifies {
            self.inode.touch_modified();
        }
    }

    /// Raises the size on the device to `end`, as somebody else's data would have that nobody will write any more.
    ///
    /// # Errors
    /// What stops the volume.
    pub(crate) fn raise_disk_size(&self, end: u64) -> Result<()> {
        if end <= self.inode.disk_size() {
            return Ok(());
        }
        self.grow(Shown { end, modifies: false })
    }

    /// Raises the size over data in blocks that were written already.
    fn grow(&self, shown: Shown) -> Result<()> {
        self.engine.transact(1, |handle| {
            if !planted(Fault::GrowUnjoined) {
                self.inode.join(handle);
            }
            self.inode.raise_size(shown.end);
            if shown.modifies {
                self.inode.touch_modified();
            }
            Ok(())
        })
    }
}

fn end_of(run: &Mapping) -> u32 {
    run.logical.get() + run.len
}
