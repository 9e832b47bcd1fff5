//! Encoding changed pointer blocks, when a transaction closes.

use parext4_format::indirect::{self, PointerBlock};

use super::IndirectMap;

impl IndirectMap {
    /// Encodes the pointers in the inode into its `i_block`, and each changed pointer block into
    /// its block. Locks the map exclusively. No handle is open, so no block is being converted.
    pub(crate) fn encode(&self, i_block: &mut [u8; 60]) {
        let _changing = self.changing.write();
        let nodes = self.nodes.read();
        let dirty = std::mem::take(&mut self.in_memory.lock().dirty);
        indirect::encode(i_block, self.direct.stored().chain(nodes.root));
        for (block, meta) in dirty {
            if let PointerBlock::Leaf(number) = block {
                let leaf = self.leaves.get(number);
                meta.change(|bytes| leaf.iter().for_each(|leaf| indirect::encode(bytes, leaf.stored())));
            } else if let Some(node) = nodes.node(block) {
                meta.change(|bytes| indirect::encode(bytes, node.pointers.iter().copied()));
            }
        }
    }
}
