//! Removing entries.

use parext4_format::InodeNo;
use parext4_format::inode::InodeFlags;

use super::dir::Dir;
use super::links::{DROP_CREDITS, drop_all_links, drop_link, lock_losing_link};
use super::lock::lock_all;
use super::{check_name, printable};
use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;

/// Credits for the directory's block and inode.
const ENTRY_CREDITS: u32 = 2;

impl Dir<'_> {
    /// Returns an error if no entry may be added.
    pub(super) fn check_insertable(&self) -> Result<()> {
        self.inode.check_flags(InodeFlags::IMMUTABLE)
    }

    /// Returns an error if no entry may be removed or changed.
    pub(super) fn check_changeable(&self) -> Result<()> {
        self.inode.check_fixed()
    }
}

impl InodeRef {
    /// Removes the name of an inode that is not a directory. The inode is deleted when it has no
    /// names and its last `InodeRef` is dropped. A thread that has just written the file back may
    /// have the last one, so the space may be free a moment later.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// use parext4::NewInode;
    ///
    /// let file = root.create(b"scratch", &NewInode::new())?;
    /// root.unlink(b"scratch")?;
    /// // The inode exists until its last handle is dropped.
    /// assert_eq!(file.metadata().links, 0);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::IsDirectory`]; [`Error::NotPermitted`] for immutable and
    /// append-only inodes; [`Error::Corrupt`] if it is the last name of an inode that cannot be
    /// deleted. The name then stays.
    pub fn unlink(&self, name: &[u8]) -> Result<()> {
        self.remove_file_name(name)?;
        self.help_to_delete();
        Ok(())
    }

    fn remove_file_name(&self, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let dir = self.dir()?;
        // Dropped after the lock, because it may be the last reference.
        let victim;
        let _entries = self.inode.change_entries();
        dir.check_alive()?;
        let Some(found) = dir.find(name)? else { return Err(Error::NotFound(printable(name))) };
        victim = dir.inode_ref(found.ino)?;
        if victim.inode.is_dir() {
            return Err(Error::IsDirectory(printable(name)));
        }
        dir.check_changeable()?;
        victim.inode.check_fixed()?;
        let _links = lock_losing_link(&victim)?;
        self.engine.transact(ENTRY_CREDITS + DROP_CREDITS, |handle| {
            self.inode.join(handle);
            dir.remove_found(handle, name, &found)?;
            self.inode.touch_modified();
            drop_link(&self.engine, handle, &victim.inode)
        })
    }

    /// Removes an empty directory.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// use parext4::NewInode;
    ///
    /// root.mkdir(b"dir", &NewInode::new())?;
    /// root.rmdir(b"dir")?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::NotDirectory`]; [`Error::NotEmpty`], also for `..`;
    /// [`Error::Invalid`] for `.`; [`Error::NotPermitted`] for immutable and append-only
    /// directories; [`Error::Corrupt`] as for [`unlink`](Self::unlink).
    pub fn rmdir(&self, name: &[u8]) -> Result<()> {
        if name == b".." {
            return Err(Error::NotEmpty(printable(name)));
        }
        check_name(name)?;
        // Retries until the name means the same inode before and after the locks are acquired.
        while !self.try_rmdir(name)? {}
        self.help_to_delete();
        Ok(())
    }

    fn try_rmdir(&self, name: &[u8]) -> Result<bool> {
        let dir = self.dir()?;
        let victim = self.lookup(name)?;
        let inner = victim.dir().map_err(|_| Error::NotDirectory(printable(name)))?;
        let _locks = lock_all([&self.inode, &victim.inode]);
        dir.check_alive()?;
        if dir.find(name)?.map(|found| found.ino) != Some(victim.ino()) {
            return Ok(false);
        }
        if victim.ino() == InodeNo::ROOT {
            return Err(dir.corrupt("an entry names the root directory"));
        }
        dir.check_changeable()?;
        inner.check_changeable()?;
        if !inner.is_empty()? {
            return Err(Error::NotEmpty(printable(name)));
        }
        let _links = lock_losing_link(&victim)?;
        self.engine.transact(ENTRY_CREDITS + DROP_CREDITS, |handle| {
            self.inode.join(handle);
            dir.remove(handle, name)?;
            dir.drop_subdir();
            self.inode.touch_modified();
            drop_all_links(&self.engine, handle, &victim.inode)
        })?;
        Ok(true)
    }
}
