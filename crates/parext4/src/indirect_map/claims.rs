//! Claims of blocks, and reservations of the pointer blocks that their conversion needs.

use parext4_format::FileBlock;
use parext4_format::indirect::{PointerBlock, PointerPosition};
use smallvec::SmallVec;

use super::leaf::Change;
use super::nodes::path;
use super::{IndirectMap, Leaf};
use crate::allocator::Run;
use crate::convert::saturating_u32;
use crate::error::{Error, Result};
use crate::mapping::BlockState;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// The claims of a map that no write needs any more.
#[derive(Debug, Default)]
pub(crate) struct Released {
    pub runs: Vec<Run>,
    /// Number of blocks that were reserved for pointer blocks.
    pub reserved: u32,
}

impl IndirectMap {
    /// Adds to `missing` the pointer blocks between the inode and `block` that do not exist and are
    /// not reserved yet.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`]; a corrupt pointer block.
    pub(crate) fn add_missing(
        &self,
        block: FileBlock,
        missing: &mut SmallVec<[PointerBlock; 3]>,
    ) -> Result<()> {
        let PointerPosition::Leaf(number, _) = self.source.shape.place(block) else { return Ok(()) };
        if number > self.max_leaf() {
            return Err(Error::FileTooLarge);
        }
        if self.leaves.with(number, |leaf| leaf.block() != 0) == Some(true) {
            return Ok(());
        }
        let mut nodes = self.nodes.write();
        nodes.loaded_pointer(&self.source, PointerBlock::Leaf(number))?;
        for block in self.missing(&nodes, number).filter(|block| !nodes.reserved.contains(block)) {
            if !missing.contains(&block) {
                missing.push(block);
            }
        }
        Ok(())
    }

    /// Records that a block is reserved for each of the `missing` pointer blocks. Returns the
    /// number of pointer blocks that no other thread has recorded. The caller has held the map's
    /// lock since it found them missing.
    pub(crate) fn reserve_missing(&self, missing: &[PointerBlock]) -> u32 {
        if missing.is_empty() {
            return 0;
        }
        let mut nodes = self.nodes.write();
        saturating_u32(missing.iter().filter(|&&block| nodes.reserved.insert(block)).count())
    }

    /// Returns the pointer blocks that a leaf needs and that do not exist, the leaf first. The
    /// existing ones above are in memory.
    pub(super) fn missing<'n>(
        &self,
        nodes: &'n super::Nodes,
        leaf: u32,
    ) -> impl Iterator<Item = PointerBlock> + use<'n> {
        let shape = self.source.shape;
        path(shape, PointerBlock::Leaf(leaf)).take_while(move |&block| nodes.pointer(shape, block) == Some(0))
    }

    /// Removes all claims and reservations. The caller holds the range of the whole file, and no
    /// page is dirty.
    pub(crate) fn release_claims(&self) -> Released {
        let mut released = Released::default();
        let _changing = self.changing.write();
        let mut nodes = self.nodes.write();
        let mut in_memory = self.in_memory.lock();
        self.release_of(&self.direct, &mut released);
        in_memory.leaves.retain(|&number| {
            let Some(leaf) = self.leaves.get(number) else { return false };
            self.release_of(&leaf, &mut released);
            let keep = leaf.block() != 0 || !leaf.is_empty();
            if !keep {
                nodes.remove_unlinked(number);
                self.leaves.set(number, None);
            }
            keep
        });
        released.reserved = saturating_u32(nodes.reserved.drain().count());
        released
    }

    fn release_of(&self, leaf: &Arc<Leaf>, released: &mut Released) {
        let mut rest = leaf.blocks();
        while leaf.has_claims() && !rest.is_empty() {
            let run = leaf.lookup(rest.start(), rest.count());
            rest = rest.skip(run.len);
            if let BlockState::Unwritten(start) = run.state {
                leaf.change(run.blocks(), Change::Unmap);
                self.claims.fetch_sub(u64::from(run.len), Ordering::AcqRel);
                released.runs.push(Run { start, len: run.len });
            }
        }
    }
}
