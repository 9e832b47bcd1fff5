//! The context of a change: the transaction, the metadata cache, and the blocks for new nodes.
//!
//! This module allocates and counts the blocks of nodes. The caller has reserved them (I5).

use parext4_format::FsBlock;
use smallvec::SmallVec;

use crate::allocator::{Allocator, Reservation};
use crate::error::{Error, Result};
use crate::journal::Handle;
use crate::meta::MetaCache;

/// The transaction, cache and blocks that a change uses.
pub(crate) struct Edit<'a, 'r> {
    pub handle: &'a Handle<'a>,
    pub cache: &'a MetaCache,
    pub allocator: &'a Allocator,
    /// Blocks for new nodes: at least as many as the [`Plan`](super::Plan) counts (I5).
    pub reservation: &'a mut Reservation<'r>,
    /// The volume block near which new nodes are allocated.
    pub goal: FsBlock,
    /// Number of nodes added so far.
    pub added: u32,
    /// Blocks of removed nodes. The caller frees them.
    pub freed: Vec<FsBlock>,
}

impl Edit<'_, '_> {
    /// Allocates `count` blocks for new nodes.
    ///
    /// # Errors
    /// The caller has reserved the blocks, so a missing block is reported as corruption, which
    /// stops the volume.
    pub(super) fn allocate_nodes(&mut self, count: u32) -> Result<SmallVec<[FsBlock; 8]>> {
        let mut blocks = SmallVec::new();
        for _ in 0..count {
            let block = self.allocator.allocate_metadata(self.handle, self.goal, self.reservation);
            blocks.push(block.map_err(|error| match error {
                Error::NoSpace => Error::corrupt("extent tree: too few blocks reserved for its new nodes"),
                other => other,
            })?);
            self.added += 1;
        }
        Ok(blocks)
    }
}
