//! Changes in a fast commit that come before the inode which they change.
//!
//! The kernel logs the names and ranges of an inode before its fields, except for one that was
//! created with a name. A file that was created without a name (`O_TMPFILE`) has no such record. If
//! the replay ignored what comes before its fields, it would have neither name nor data, although
//! fsync(2) has returned: the replays of Linux 6.18 and e2fsck 1.47 lose it.

use std::collections::HashMap;

use parext4_format::InodeNo;
use parext4_format::fast_commit::Change;

use crate::error::{Error, Result};

/// Limit of the changes that are kept: of more extents than a file gets in one commit.
const MAX_CHANGES: usize = 1 << 17;

/// Changes of inodes that are not in use, or that have lost their last name and may be replaced by
/// another of the same number.
#[derive(Debug, Default)]
pub(super) struct EarlyChanges {
    of: HashMap<InodeNo, Vec<Change>>,
    count: usize,
}

impl EarlyChanges {
    /// Returns true if changes of the inode are kept. All its further changes must be kept then.
    pub fn has(&self, ino: InodeNo) -> bool {
        self.of.contains_key(&ino)
    }

    /// Keeps a change of an inode's names or ranges, except for the removal of a name that no kept
    /// change has added.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if too many are kept.
    pub fn add(&mut self, ino: InodeNo, change: &Change) -> Result<()> {
        if matches!(change, Change::Unlink(_)) && !self.has(ino) {
            return Ok(());
        }
        if self.count == MAX_CHANGES {
            return Err(Error::Unsupported(format!(
                "fast commits with {MAX_CHANGES} changes of files that they do not create; run e2fsck"
            )));
        }
        self.of.entry(ino).or_default().push(change.clone());
        self.count += 1;
        Ok(())
    }

    /// Returns the changes of an inode in their order, and forgets them.
    pub fn take(&mut self, ino: InodeNo) -> Vec<Change> {
        let changes = self.of.remove(&ino).unwrap_or_default();
        self.count -= changes.len();
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parext4_format::FileBlock;
    use parext4_format::fast_commit::Name;

    #[test]
    fn the_number_of_kept_changes_is_limited() {
        let mut early = EarlyChanges::default();
        let change = |ino| Change::DelRange { ino, start: FileBlock(1), len: 1 };
        let add = |early: &mut EarlyChanges, ino| early.add(ino, &change(ino));
        (0..MAX_CHANGES).for_each(|_| add(&mut early, InodeNo(20)).unwrap());
        assert!(matches!(add(&mut early, InodeNo(21)), Err(Error::Unsupported(_))));
        assert_eq!(early.take(InodeNo(20)).len(), MAX_CHANGES);
        add(&mut early, InodeNo(21)).unwrap();
        assert_eq!(early.take(InodeNo(21)), [change(InodeNo(21))]);
        let name = Name { parent: InodeNo(2), ino: InodeNo(22), name: Box::from(*b"name") };
        early.add(InodeNo(22), &Change::Unlink(name)).unwrap();
        assert!(!early.has(InodeNo(22)), "nothing had added the name");
    }
}
