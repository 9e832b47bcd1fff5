//! Entries of a directory that are listed together, and their inodes.

use std::path::PathBuf;

use super::dir_path::DirPath;
use super::entry::{DirEntry, DirItem, ListedDir};
use crate::error::Result;
use crate::inode_ref::InodeRef;
use crate::sync::Arc;

/// Entries of a directory that were listed together.
#[derive(Debug)]
pub(super) struct Batch {
    /// The number of changes of the directory when it was listed.
    pub(super) changes: u64,
    pub(super) items: Vec<DirItem>,
}

/// Returns the changes of the directory up to the listing of `item`, or `None` if the item must be
/// looked up by name. `neighbours` are the cookies of the items before and after it.
///
/// A damaged directory may have a name twice. Every call must then find the first of them, as a
/// removal does. Equal names have equal hashes, and so one cookie, and lie side by side in a batch.
pub(super) fn changes_of(item: &DirItem, neighbours: [Option<u64>; 2], changes: u64) -> Option<u64> {
    (!neighbours.contains(&Some(item.cookie))).then_some(changes)
}

impl Batch {
    fn into_entries(self, dir: &InodeRef) -> Vec<DirEntry> {
        let listed = Arc::new(ListedDir { dir: dir.clone(), path: DirPath::top(PathBuf::new()) });
        let mut items = self.items.into_iter();
        let mut before = None;
        let mut entries = Vec::with_capacity(items.len());
        while let Some(item) = items.next() {
            let after = items.as_slice().first().map(|item| item.cookie);
            let changes = changes_of(&item, [before, after], self.changes);
            before = Some(item.cookie);
            entries.push(DirEntry::new(&listed, item, changes));
        }
        entries
    }
}

impl InodeRef {
    /// Returns a batch of entries of this directory, including `.` and `..`: from the start
    /// (`cookie` 0), or after the entry with `cookie`. Returns an empty batch at the end, and for a
    /// removed directory. [`read_dir`](Self::read_dir) iterates over all entries; a server whose
    /// clients keep positions continues here.
    ///
    /// If the caller continues with the last [cookie](DirEntry::cookie) of each batch, it gets each
    /// entry that exists throughout exactly once, whatever else is added or removed meanwhile. May
    /// block on the device.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// let (mut names, mut after) = (Vec::new(), 0);
    /// loop {
    ///     let batch = root.read_dir_after(after)?;
    ///     let Some(last) = batch.last() else { break };
    ///     after = last.cookie();
    ///     names.extend(batch.iter().map(|entry| entry.name().to_vec()));
    /// }
    /// names.sort();
    /// assert_eq!(names, [&b"."[..], b"..", b"lost+found"]);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotDirectory`](crate::Error::NotDirectory); failed reads; corruption. The entries
    /// before damage are a batch of their own, after which the next one has the error.
    pub fn read_dir_after(&self, cookie: u64) -> Result<Vec<DirEntry>> {
        Ok(self.batch_after(cookie)?.into_entries(self))
    }
}

#[cfg(test)]
mod tests {
    use parext4_format::InodeNo;
    use parext4_format::inode::FileType;

    use super::*;

    /// A directory has thousands of entries in a batch, and a look-up by name reads a leaf or all
    /// blocks.
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
