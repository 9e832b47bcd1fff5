//! The files that a rename writes back before it changes the names, so that after a crash a name
//! has the old or the new contents.

use parext4_format::InodeNo;
use smallvec::SmallVec;

use crate::error::Result;
use crate::inode_ref::InodeRef;

/// Files with dirty pages that get the name of another file: one, or both of an exchange.
pub(super) type DirtyFiles = SmallVec<[InodeRef; 2]>;

/// The files that this rename has written back. The rename does not wait for later writes to them.
#[derive(Default)]
pub(super) struct Written(SmallVec<[InodeNo; 2]>);

impl Written {
    /// Writes files back. The caller holds no lock of a directory.
    ///
    /// # Errors
    /// Returns an error if data cannot be written.
    pub(super) fn write_back(&mut self, files: DirtyFiles) -> Result<()> {
        for file in files {
            file.write_back_data()?;
            self.0.push(file.ino());
        }
        Ok(())
    }

    pub(super) fn contains(&self, file: &InodeRef) -> bool {
        self.0.contains(&file.ino())
    }
}
