//! Entries of a directory that were listed together, and their inodes.

use std::ops::Deref;

use parext4_format::InodeNo;
use parext4_format::inode::FileType;

use super::check_name;
use crate::error::Result;
use crate::inode_ref::InodeRef;

/// One entry of a directory, from [`InodeRef::read_dir`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirItem {
    /// The name: 1 to 255 bytes.
    pub name: Vec<u8>,
    /// The inode that it names.
    pub ino: InodeNo,
    /// The type of that inode.
    pub file_type: FileType,
    /// The cookie with which [`InodeRef::read_dir`] continues after this entry. Cookies grow along a listing, and bit 63 is never set. The lower
    /// 32 bits are all set, so that the other 31 bits identify the cookie, unless the next name has the same hash.
    pub cookie: u64,
}

/// Entries of a directory that were listed together, from [`InodeRef::read_dir`]. Keeps the directory and the volume open.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// volume.write("/a", "text")?;
/// let batch = volume.root()?.read_dir(0)?;
/// let nth = batch.iter().position(|item| item.name == b"a").expect("an entry");
/// assert_eq!(batch.node(nth)?.metadata().size, 4);
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DirBatch {
    dir: InodeRef,
    /// The number of changes of the directory when it was listed.
    changes: u64,
    items: Vec<DirItem>,
}

/// Returns the changes of the directory up to the listing of `item`, or `None` if the item must be looked up by name. `neighbours` are the
/// cookies of the items before and after it.
///
/// A damaged directory may have a name twice. Every call must then find the first of them, as a removal does. Equal names have equal
/// hashes, and so one cookie, and lie side by side in a batch.
pub(super) fn changes_of(item: &DirItem, neighbours: [Option<u64>; 2], changes: u64) -> Option<u64> {
    (!neighbours.contains(&Some(item.cookie))).then_some(changes)
}

impl DirBatch {
    pub(super) fn new(dir: InodeRef, changes: u64, items: Vec<DirItem>) -> Self {
        Self { dir, changes, items }
    }

    /// Returns the inode that the name of the entry at index `nth` has now. Searches for the name only if the directory has changed since it
    /// was listed; until then a name that look-ups refuse, or that a damaged directory without an index has twice, leads to the entry's own
    /// inode.
    ///
    /// # Errors
    /// As [`InodeRef::lookup`].
    ///
    /// # Panics
    /// If there are not that many entries.
    pub fn node(&self, nth: usize) -> Result<InodeRef> {
        let item = &self.items[nth];
        let cookie = |nth: Option<usize>| self.items.get(nth?).map(|item| item.cookie);
        let neighbours = [cookie(nth.checked_sub(1)), cookie(nth.checked_add(1))];
        self.dir.listed_node(item, changes_of(item, neighbours, self.changes))
    }

    /// Returns the directory's number of changes when it was listed, and the entries.
    pub(super) fn into_parts(self) -> (u64, Vec<DirItem>) {
        (self.changes, self.items)
    }
}

impl Deref for DirBatch {
    type Target = [DirItem];

    fn deref(&self) -> &[DirItem] {
        &self.items
    }
}

impl IntoIterator for DirBatch {
    type Item = DirItem;
    type IntoIter = std::vec::IntoIter<DirItem>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl InodeRef {
    /// Returns the inode that the name of an entry has now. The entry was listed when this directory had changed `changes` times.
    pub(super) fn listed_node(&self, item: &DirItem, changes: Option<u64>) -> Result<InodeRef> {
        if !matches!(&item.name[..], b"." | b"..") {
            check_name(&item.name)?;
            let now = self.inode.read_entries();
            if Some(*now) == changes {
                return self.dir()?.node(item.ino);
            }
        }
        self.lookup(&item.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory has thousands of entries in a batch, and a look-up by name reads a leaf or all blocks.
    #[test]
    fn only_entries_that_share_a_cookie_are_looked_up_by_name() {
        let item = |cookie| DirItem {
            name: b"name".to_vec(),
            ino: InodeNo(12),
            file_type: FileType::Regular,
            cookie,
        };
        let of = |before, cookie, after| changes_of(&item(cookie), [before, after], 7);
        assert_eq!(of(None, 4, Some(5)), Some(7));
        assert_eq!(of(Some(4), 5, Some(5)), None);
        assert_eq!(of(Some(5), 5, Some(6)), None);
        assert_eq!(of(Some(5), 6, None), Some(7));
    }
}
