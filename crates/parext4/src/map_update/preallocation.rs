//! Freeing preallocated blocks past the end of files.
//!
//! Responsible for unmapping blocks that write requests mapped in advance. Not responsible for
//! mapping them: `block_io` does that. Invariant: blocks that a user requested past the end of a
//! file stay.

use parext4_format::BlockRange;
use rangelock::{ByteRange, Mode};

use crate::block_map::BlockMap;
use crate::engine::Engine;
use crate::error::Result;
use crate::fault::{Fault, guarded};
use crate::inode::{Inode, PastEnd};
use crate::sync::{Arc, Rank, hold};

impl Engine {
    /// Frees the file's preallocated blocks, or the blocks that failed writes have claimed. No
    /// thread writes to the file meanwhile.
    pub(crate) fn free_preallocated(&self, inode: &Arc<Inode>) -> Result<()> {
        self.free_preallocated_past(inode, inode.size())
    }

    /// Like [`free_preallocated`](Self::free_preallocated), past byte `end`. Of a file with extents
    /// only operations that end before it are in flight.
    fn free_preallocated_past(&self, inode: &Arc<Inode>, end: u64) -> Result<()> {
        let sectors = inode.sectors();
        let freed = self.free_unrequested_past(inode, end);
        if inode.sectors() != sectors {
            self.note_changed_blocks(inode);
        }
        freed
    }

    fn free_unrequested_past(&self, inode: &Arc<Inode>, end: u64) -> Result<()> {
        if let Some(map) = inode.loaded_block_map().and_then(BlockMap::indirect_map) {
            self.release_claims(inode, map);
            return Ok(());
        }
        if self.has_dirty_past(inode, end) {
            return Ok(());
        }
        // The file keeps its last cluster as a whole: dirty pages in it may have none claimed.
        let past = self.layout().block_size.blocks_from(end);
        let clusters = self.layout().round_to_clusters(past.start().to_u64());
        let has_preallocated = if end <= inode.size() {
            self.forget_preallocated(inode, PastEnd::Nothing)
        } else {
            // Operations in flight may leave preallocated blocks before `end`.
            inode.past_end() == PastEnd::Preallocated && self.block_map(inode)?.end()? > clusters
        };
        if !has_preallocated {
            return Ok(());
        }
        self.free_tail(inode, BlockRange::clamped(clusters, past.end()))
    }

    /// Returns true if a failed write has left a part of a page past byte `end` dirty, which may
    /// count on a preallocated block (H29).
    fn has_dirty_past(&self, inode: &Inode, end: u64) -> bool {
        let end = end.next_multiple_of(self.layout().block_size.bytes().into());
        inode.cached().is_some_and(|cached| cached.pages.has_dirty_from(end))
    }

    /// Like [`free_preallocated`](Self::free_preallocated), for an inode whose last user drops it.
    /// Does nothing if another operation holds a range of the file.
    pub(crate) fn free_preallocated_of_unused(&self, inode: &Arc<Inode>) {
        if !inode.has_spare_blocks() {
            return;
        }
        let _held = hold(Rank::Range);
        let alone = inode.ranges.try_lock(ByteRange::ALL, Mode::Exclusive);
        if guarded!(Fault::PreallocationFreedInUse, alone.is_none()) {
            return;
        }
        // There is no caller to report an error to. Blocks that stay mapped do no harm.
        if let Err(error) = self.free_preallocated(inode) {
            log::debug!("freeing preallocated blocks of inode {}: {error}", inode.ino());
        }
    }

    /// Frees the preallocated blocks past all operations in flight, for a caller that finds no
    /// space. The caller may hold ranges, and any lock before `Rank::Handle`: this call blocks on
    /// no range and no tail, so the lock order does not matter.
    pub(crate) fn free_preallocated_of_idle(&self) -> Result<()> {
        let all = self.preallocated().all();
        all.iter().try_for_each(|inode| {
            let is_indirect = inode.loaded_block_map().and_then(BlockMap::indirect_map).is_some();
            let Some(tail) = inode.tail.try_lock() else { return Ok(()) };
            // Operations that extend the file end before this, and later ones wait for the range:
            // they announce their end under the lock.
            let end = tail.end().max(inode.size());
            let range = if is_indirect { ByteRange::ALL } else { ByteRange::new(end, u64::MAX) };
            let Some(_alone) = inode.ranges.try_lock(range, Mode::Exclusive) else { return Ok(()) };
            drop(tail);
            self.free_preallocated_past(inode, end)
        })
    }

    /// Frees the preallocated blocks of all files. No operation is in flight.
    pub(crate) fn free_all_preallocated(&self) -> Result<()> {
        let all = self.preallocated().all();
        all.iter().try_for_each(|inode| {
            let _held = hold(Rank::Range);
            // The last user of the inode may be deleting it.
            let Some(_alone) = inode.ranges.try_lock(ByteRange::ALL, Mode::Exclusive) else { return Ok(()) };
            self.free_preallocated(inode)
        })
    }
}
