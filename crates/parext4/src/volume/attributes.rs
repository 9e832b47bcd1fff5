//! Sets attributes by path, as std::fs and std::os::unix::fs do.

use std::path::Path;

use super::Volume;
use crate::error::Result;
use crate::namespace::{FileTimes, SetAttributes};

impl Volume {
    /// Sets the permission bits of the inode that a path leads to, `0o7777` at most, as chmod(2).
    /// Follows a symbolic link at the end.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/script", "text")?;
    /// volume.set_permissions("/script", 0o755)?;
    /// assert_eq!(volume.metadata("/script")?.permissions, 0o755);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`resolve`](Self::resolve) and of
    /// [`InodeRef::set_attributes`](crate::InodeRef::set_attributes). Blocks on a read if the inode
    /// is not in memory, and while the journal has no space.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: u16) -> Result<()> {
        self.resolve(path)?.set_attributes(&SetAttributes::new().permissions(permissions))
    }

    /// Sets the owner and the group of the inode that a path leads to, as
    /// [`std::os::unix::fs::chown`] does. `None` leaves one unchanged. Follows a symbolic link at
    /// the end. Clears the set-ID bits of a file.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// volume.chown("/a", Some(1000), None)?;
    /// let metadata = volume.metadata("/a")?;
    /// assert_eq!((metadata.uid, metadata.gid), (1000, 0));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`set_permissions`](Self::set_permissions);
    /// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded). Blocks as that does.
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.resolve(path)?.set_attributes(&SetAttributes::new().uid(uid).gid(gid))
    }

    /// Like [`chown`](Self::chown), but does not follow a symbolic link at the end.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.symlink("/link", "missing")?;
    /// volume.lchown("/link", Some(1000), Some(1000))?;
    /// assert_eq!(volume.symlink_metadata("/link")?.uid, 1000);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`chown`](Self::chown). Blocks as that does.
    pub fn lchown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.resolve_no_follow(path)?.set_attributes(&SetAttributes::new().uid(uid).gid(gid))
    }

    /// Sets times of the inode that a path leads to. Follows a symbolic link at the end.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use parext4::FileTimes;
    ///
    /// volume.write("/a", "text")?;
    /// volume.set_times("/a", FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(86_400)))?;
    /// assert_eq!(volume.metadata("/a")?.mtime.seconds, 86_400);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`set_permissions`](Self::set_permissions). Blocks as that does.
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        self.resolve(path)?.set_attributes(&times.into())
    }
}
