//! The attributes of one inode in one place, with changes that were not carried out yet.

use parext4_format::xattr::{ValueInode, Xattr};

use crate::layout::Layout;

/// A part of the volume that stores attributes: the inode or the block.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    pub(super) list: Vec<Xattr>,
    /// The values in inodes that the attributes had before the changes.
    pub(super) old_values: Vec<ValueInode>,
    /// Size in bytes.
    pub(super) len: usize,
    pub(super) changed: bool,
}

impl Storage {
    /// Returns the storage of `len` bytes with the attributes that it has now.
    pub(super) fn new(list: Vec<Xattr>, len: usize) -> Self {
        let old_values = list.iter().filter_map(|xattr| xattr.value.inode()).collect();
        Self { list, old_values, len, changed: false }
    }

    /// Returns the values in inodes that the attributes have now.
    pub(super) fn values(&self) -> impl Iterator<Item = ValueInode> {
        self.list.iter().filter_map(|xattr| xattr.value.inode())
    }

    /// Returns how many blocks the values in inodes have now, less the number before the changes.
    pub(super) fn added_blocks(&self, layout: &Layout) -> i64 {
        let blocks = |value: ValueInode| layout.allocated_for(value.size.into()).cast_signed();
        self.values().map(blocks).sum::<i64>() - self.old_values.iter().copied().map(blocks).sum::<i64>()
    }

    /// Returns how many values in inodes there are now, less the number before the changes.
    pub(super) fn added_values(&self) -> i64 {
        self.values().count().cast_signed() as i64 - self.old_values.len().cast_signed() as i64
    }

    /// Returns an attribute.
    pub(super) fn get(&self, index: u8, name: &[u8]) -> Option<&Xattr> {
        self.list.iter().find(|xattr| is(xattr, index, name))
    }

    /// Removes an attribute. Returns false if there was none of this name.
    pub(super) fn remove(&mut self, index: u8, name: &[u8]) -> bool {
        let before = self.list.len();
        self.list.retain(|xattr| !is(xattr, index, name));
        let removed = self.list.len() < before;
        self.changed |= removed;
        removed
    }
}

/// Returns true if the attribute has this name.
fn is(xattr: &Xattr, index: u8, name: &[u8]) -> bool {
    xattr.name_index == index && xattr.name == name
}
