//! Changes that stay within one leaf, beside others in other leaves.
//!
//! Most holes that are filled, and most conversions for which there is no [mark](super::marks) left, change nothing
//! but one leaf, which the transaction has registered before. They share the map's lock, and hold that of their
//! leaf. Everything else takes the map's lock for itself.

use parext4_format::extent::Extent;

use super::change::Change;
use super::{ExtentMap, State};

impl ExtentMap {
    /// Maps `extent`, in transaction `tid`, if there is a hole and no more changes than one leaf. Says whether it
    /// has; if so, the inode has joined that transaction.
    pub(crate) fn fill_in_leaf(&self, tid: u64, extent: Extent) -> bool {
        self.change_leaf(tid, &Change::fill(extent), |view| view.fill(extent))
    }

    /// Converts `[start, start + len)`, which the caller holds and which is unwritten, likewise.
    pub(crate) fn convert_in_leaf(&self, tid: u64, start: u32, len: u32) -> bool {
        let run = self.run(start, len);
        let State::Unwritten(physical) = run.state else { return false };
        let extent = Extent { logical: run.logical, physical, len, unwritten: false };
        let converted = run.len == len && self.change_leaf(tid, &Change::convert(extent), |_| ());
        if converted {
            self.view.set_written(u64::from(start)..extent.end());
        }
        converted
    }

    fn change_leaf(&self, tid: u64, change: &Change, show: impl FnOnce(&super::View)) -> bool {
        let tree = self.tree.read();
        let _unmade = self.view.share();
        let leaf_index = self.leaf_index.load();
        let (leaf, most) = leaf_index.leaf(change.first());
        // The root is in the inode and has next to no room.
        let changed =
            tree.depth > 0 && change.blocks() <= most && leaf.change(change, tid, tree.capacity, &tree.pins);
        if changed {
            show(&self.view);
        }
        changed
    }
}
