//! Finds inodes by number.

use parext4_format::InodeNo;

use super::Volume;
use crate::error::{Error, Result};
use crate::inode_ref::{InodeId, InodeRef};

impl Volume {
    /// Returns the inode that `id` names.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let id = volume.create_dir("/dir", 0o755)?.id();
    /// assert_eq!(volume.inode_ref(id)?.ino(), id.ino);
    /// volume.remove_dir("/dir")?;
    /// assert!(volume.inode_ref(id).is_err());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if the inode was deleted, has lost its last name and its last
    /// [`InodeRef`], or is one of the file system's own. Corruption, a failed read.
    pub fn inode_ref(&self, id: InodeId) -> Result<InodeRef> {
        self.engine.in_flight().check_open()?;
        let InodeId { ino, generation } = id;
        let gone = || Error::NotFound(format!("inode {ino} of generation {generation}"));
        self.engine.inode_by_number(ino, |core| core.generation == generation)?.ok_or_else(gone)
    }

    /// Implements [`ServerVolume::inode_by_number`](crate::server::ServerVolume::inode_by_number).
    pub(crate) fn inode_by_number(&self, ino: InodeNo) -> Result<InodeRef> {
        self.engine.in_flight().check_open()?;
        let gone = || Error::NotFound(format!("inode {ino}"));
        self.engine.inode_by_number(ino, |core| core.links > 0)?.ok_or_else(gone)
    }
}
