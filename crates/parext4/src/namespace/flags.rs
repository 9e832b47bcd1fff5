//! Setting the flags of inodes, which in directories may change what their entries mean.

use parext4_format::inode::InodeFlags;

use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;

impl InodeRef {
    /// Sets the flags that users may change, as `chattr` does. Ignores the remaining visible flags
    /// in `flags`. Operations that begin afterwards respect immutable and append-only; a directory
    /// without entries can begin or cease to ignore case ([`InodeFlags::CASEFOLD`]), if the volume
    /// has `casefold`; parext4 only stores the remaining flags. The caller checks that the user may
    /// set them.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::{Error, InodeFlags};
    ///
    /// volume.write("/log", "started")?;
    /// let log = volume.resolve("/log")?;
    /// log.set_flags(log.flags() | InodeFlags::APPEND)?;
    /// assert!(matches!(volume.write("/log", "again"), Err(Error::NotPermitted(_))));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] for flags that the inode's type does not have, or that only the
    /// kernel's ext4 can change. [`Error::NotPermitted`] if the inode is immutable and stays so,
    /// and another flag changes. [`Error::NotEmpty`] if a directory with entries would begin or
    /// cease to ignore case.
    pub fn set_flags(&self, flags: InodeFlags) -> Result<()> {
        if !self.inode.is_dir() {
            return self.store_flags(flags);
        }
        let dir = self.dir()?;
        let _entries = self.inode.change_entries();
        if (self.inode.flags() ^ flags).contains(InodeFlags::CASEFOLD) {
            self.inode.check_key()?;
            if self.engine.superblock().encoding().is_none() {
                return Err(Error::Unsupported("casefold: the volume does not have it".to_owned()));
            }
            dir.check_alive()?;
            if !dir.is_empty()? {
                return Err(Error::NotEmpty(format!("directory inode {}", self.ino())));
            }
        }
        self.store_flags(flags)
    }
}
