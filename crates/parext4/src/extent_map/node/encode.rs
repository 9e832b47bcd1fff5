//! Encoding dirty nodes into their blocks, when a transaction closes.

use parext4_format::extent::{self, IndexEntry};

use super::{Content, Node, Tree};
use crate::fault::{Fault, guarded};

impl Tree {
    /// Encodes the root into an inode's `i_block` and each dirty node into its block.
    pub(in crate::extent_map) fn encode(&mut self, i_block: &mut [u8; 60]) {
        debug_assert!(self.root.is_up_to_date(), "the leaf index or a key is out of date");
        self.root.encode_children();
        self.root.fold_marks();
        self.root.encode_into(i_block, self.depth);
    }
}

impl Node {
    /// Encodes the dirty nodes below this one.
    fn encode_children(&mut self) {
        let Content::Index(children) = &mut self.content else { return };
        if !std::mem::take(&mut self.dirty_below) {
            return;
        }
        for child in children {
            child.encode_children();
            if let Some(meta) = child.dirty.take() {
                let depth = child.height();
                child.fold_marks();
                meta.change(|bytes| child.encode_into(bytes, depth));
            }
        }
    }

    /// Folds a leaf's marks into its extents, because its transaction closes.
    fn fold_marks(&self) {
        let Content::Leaf(leaf) = &self.content else { return };
        if !leaf.marked().is_empty() {
            guarded!(Fault::EncodeUnfolded, leaf.store(leaf.folded(), None));
        }
    }

    fn height(&self) -> u16 {
        match &self.content {
            Content::Leaf(_) => 0,
            Content::Index(children) => children.first().map_or(0, |child| child.height() + 1),
        }
    }

    fn encode_into(&self, out: &mut [u8], depth: u16) {
        match &self.content {
            Content::Leaf(leaf) => extent::encode_leaf(out, &leaf.extents()),
            Content::Index(children) => {
                let entries: Vec<IndexEntry> = children
                    .iter()
                    .filter_map(|child| {
                        child.block.map(|block| IndexEntry { logical: child.first(), child: block })
                    })
                    .collect();
                extent::encode_index(out, depth, &entries);
            }
        }
    }
}
