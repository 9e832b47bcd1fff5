//! The Merkle tree of an inode that fs-verity protects.

use parext4_format::inode::{FileType, InodeFlags};

use super::Inode;
use crate::verity::VerifiedTree;

impl Inode {
    /// Returns true if fs-verity protects the file: its contents and its size never change, and
    /// reads are verified.
    pub(crate) fn has_verity(&self) -> bool {
        self.flags().contains(InodeFlags::VERITY) && self.file_type == FileType::Regular
    }

    /// Returns the tree, if it is in memory.
    pub(crate) fn merkle_tree(&self) -> Option<&VerifiedTree> {
        self.merkle_tree.get()
    }

    /// Sets the tree that was read from the descriptor, unless another thread has. Returns the
    /// tree.
    pub(crate) fn set_merkle_tree(&self, tree: VerifiedTree) -> &VerifiedTree {
        let tree = self.merkle_tree.get_or_init(|| tree);
        self.recharge();
        tree
    }

    /// Keeps a verified block of the tree, if the volume's budget of metadata has room.
    pub(crate) fn keep_tree_block(&self, tree: &VerifiedTree, block: u64, bytes: &[u8]) {
        if self.charge.has_room() {
            tree.keep(block, bytes);
            self.recharge();
        }
    }
}
