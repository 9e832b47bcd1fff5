//! Changes that stay within one leaf.
//!
//! This module fills holes and converts blocks in a leaf that the transaction has already
//! registered. [`writer`](super::writer) makes all other changes. Most filled holes, and most
//! conversions that found no room for a [mark](super::marks), stay within one leaf. Such changes
//! hold the map's lock shared and the lock of their leaf, so threads change different leaves of one
//! file in parallel.

use parext4_format::BlockRange;
use parext4_format::extent::Extent;

use super::ExtentMap;
use super::change::Change;
use super::view::SharedView;
use crate::mapping::BlockState;

impl ExtentMap {
    /// Maps `extent`, which is a hole, in transaction `tid`, if the change stays within one leaf.
    /// Returns true if `extent` was mapped; the inode has then joined the transaction.
    pub(crate) fn fill_in_leaf(&self, tid: u64, extent: Extent) -> bool {
        self.change_leaf(tid, &Change::fill(extent), |view| view.fill(extent))
    }

    /// Converts `blocks`, if the change stays within one leaf. The blocks are unwritten, and the
    /// caller holds their range. Returns true if the blocks were converted; the inode has then
    /// joined the transaction.
    pub(crate) fn convert_in_leaf(&self, tid: u64, blocks: BlockRange) -> bool {
        let len = blocks.count();
        let run = self.run(blocks.start(), len);
        let BlockState::Unwritten(physical) = run.state else { return false };
        let extent = Extent { logical: run.logical, physical, len, unwritten: false };
        let converted = run.len == len && self.change_leaf(tid, &Change::convert(extent), |_| ());
        if converted {
            self.view.set_written(blocks);
        }
        converted
    }

    fn change_leaf(&self, tid: u64, change: &Change, update_view: impl FnOnce(&SharedView<'_>)) -> bool {
        let tree = self.tree.read();
        let view = self.view.lock_shared();
        let leaf_index = self.leaf_index.load();
        let (leaf, most) = leaf_index.leaf(change.blocks.start());
        // The root is stored in the inode and has almost no room.
        let changed = tree.depth > 0
            && change.blocks.count() <= most
            && leaf.change(change, tid, tree.capacity, &tree.pins);
        if changed {
            update_view(&view);
        }
        changed
    }
}
