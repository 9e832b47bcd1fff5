//! Adding the entry of a new leaf to the index of a hash tree.
//!
//! As in `ext4_dx_add_entry`: full index blocks split in the middle, from the bottom up to the
//! first one with room. If none has room, the root's entries move to a new node, and the tree gets
//! one more level of nodes.

use std::iter;

use parext4_format::FileBlock;
use parext4_format::htree::{self, DxEntry};

use super::dir::Dir;
use super::htree::{Frame, Walk};
use crate::convert::saturating_u32;
use crate::error::{Error, Result};
use crate::journal::Handle;

/// Maximum number of index blocks that one insertion changes: three levels of which the two lower
/// ones split.
pub(super) const MAX_CHANGED: u32 = 5;

/// A planned insertion into the index blocks on the path to a leaf.
#[derive(Debug)]
pub(super) struct IndexInsertion {
    /// The index blocks, the root first.
    path: Vec<Frame>,
    /// The number of index blocks at the end of the path that are full.
    full: usize,
}

impl IndexInsertion {
    /// Plans to insert one entry after the current one of the lowest index block of a walk.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if all index blocks are full and the tree has the maximum number of
    /// levels, as in the kernel.
    pub(super) fn plan(walk: Walk<'_>, max_levels: u8) -> Result<Self> {
        let path: Vec<Frame> = iter::once(walk.root).chain(walk.nodes).collect();
        let full = path.iter().rev().take_while(|frame| frame.entries.len() >= frame.limit).count();
        if full == path.len() && path.len() > max_levels.into() {
            return Err(Error::NoSpace);
        }
        Ok(Self { path, full })
    }

    /// Returns the number of blocks by which the directory grows: each full index block moves
    /// entries to a new one.
    pub(super) fn new_blocks(&self) -> u32 {
        saturating_u32(self.full)
    }

    /// Inserts the entry. The new blocks of the directory, from `next` on, are mapped.
    pub(super) fn apply(
        &self,
        dir: Dir<'_>,
        handle: &Handle<'_>,
        mut new: DxEntry,
        mut next: FileBlock,
    ) -> Result<()> {
        let tail = dir.has_tail();
        for (level, frame) in self.path.iter().enumerate().rev() {
            let mut entries = with_entry(frame, new);
            let is_full = entries.len() > frame.limit;
            match (is_full, level) {
                (false, 0) => {
                    handle.change(&frame.block, |bytes| htree::encode_root_entries(bytes, tail, &entries));
                    return Ok(());
                }
                (false, _) => {
                    handle.change(&frame.block, |bytes| htree::encode_node(bytes, tail, &entries));
                    return Ok(());
                }
                (true, 0) => return self.deepen(dir, handle, next, &entries),
                (true, _) => {
                    let high = entries.split_off(entries.len() / 2);
                    new_node(dir, handle, next, &high)?;
                    handle.change(&frame.block, |bytes| htree::encode_node(bytes, tail, &entries));
                    let hash = high.first().map_or(0, |entry| entry.hash);
                    new = DxEntry { hash, block: next };
                    next += 1;
                }
            }
        }
        Ok(())
    }

    /// Moves the root's entries to a new node. A node has room for more entries than a root.
    fn deepen(&self, dir: Dir<'_>, handle: &Handle<'_>, n: FileBlock, entries: &[DxEntry]) -> Result<()> {
        let Some(root) = self.path.first() else { return Ok(()) };
        let (tail, levels) = (dir.has_tail(), u8::try_from(self.path.len()).unwrap_or(u8::MAX));
        new_node(dir, handle, n, entries)?;
        handle.change(&root.block, |bytes| {
            htree::set_levels(bytes, levels);
            htree::encode_root_entries(bytes, tail, &[DxEntry { hash: 0, block: n }]);
        });
        Ok(())
    }
}

fn new_node(dir: Dir<'_>, handle: &Handle<'_>, n: FileBlock, entries: &[DxEntry]) -> Result<()> {
    let tail = dir.has_tail();
    dir.init_block(handle, n, |bytes| {
        htree::encode_node(bytes, tail, entries);
        Ok(())
    })
}

/// Returns the entries of an index block with `new` inserted after the current one.
fn with_entry(frame: &Frame, new: DxEntry) -> Vec<DxEntry> {
    let mut entries = frame.entries.clone();
    entries.insert((frame.at + 1).min(entries.len()), new);
    entries
}
