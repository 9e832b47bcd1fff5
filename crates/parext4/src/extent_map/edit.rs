//! What a change of the map works with: the transaction, and blocks for new nodes.

use parext4_format::FsBlock;
use smallvec::SmallVec;

use crate::allocator::{Allocator, Reservation};
use crate::error::{Error, Result};
use crate::journal::Handle;
use crate::meta::MetaCache;

/// What a change of the map works with.
pub(crate) struct Edit<'a, 'r> {
    pub handle: &'a Handle<'a>,
    pub cache: &'a MetaCache,
    pub allocator: &'a Allocator,
    /// Blocks for new nodes: at least what the [`Plan`](super::Plan) said (I5).
    pub reservation: &'a mut Reservation<'r>,
    /// Where new nodes should lie.
    pub goal: FsBlock,
    /// New nodes so far.
    pub added: u32,
    /// Blocks of nodes that went away; the caller frees them.
    pub freed: Vec<FsBlock>,
}

impl Edit<'_, '_> {
    /// Blocks for new nodes. Whoever started the change has reserved them, so that not to get them is
    /// corruption, which stops the volume.
    pub(super) fn take(&mut self, count: u32) -> Result<SmallVec<[FsBlock; 8]>> {
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
