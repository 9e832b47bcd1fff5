//! Hard links.

use super::links::{DROP_CREDITS, add_link, drop_link, lock_links};
use super::{check_name, printable};
use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;
use crate::sync::Arc;

impl InodeRef {
    /// Adds another name of `target` to this directory.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// volume.write("/a", "text")?;
    /// root.link(b"b", &root.lookup(b"a")?)?;
    /// assert_eq!(volume.metadata("/b")?.links, 2);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`] if an entry of that name exists; [`Error::NotPermitted`] if `target` is a
    /// directory, immutable or append-only; [`Error::NotFound`] if it has lost its last name;
    /// [`Error::TooManyLinks`]; [`Error::NoSpace`]; [`Error::Invalid`] if it is on another volume;
    /// [`Error::NoKey`] if the directory is encrypted.
    pub fn link(&self, name: &[u8], target: &InodeRef) -> Result<()> {
        check_name(name)?;
        let dir = self.dir()?;
        if !Arc::ptr_eq(&self.engine, &target.engine) {
            return Err(Error::invalid("a hard link to another volume"));
        }
        if target.inode.is_dir() {
            return Err(Error::NotPermitted("a hard link to a directory".to_owned()));
        }
        target.inode.check_fixed()?;
        self.check_project(target)?;
        let _entries = self.inode.change_entries();
        dir.check_alive()?;
        dir.check_insertable()?;
        if dir.find(name)?.is_some() {
            return Err(Error::Exists(printable(name)));
        }
        let insertion = dir.plan_insertion(name)?;
        let credits = insertion.credits()? + DROP_CREDITS;
        let _links = lock_links(target);
        self.engine.with_space(|| {
            self.engine.transact(credits, |handle| {
                // The link first: another thread may be removing the target's last name.
                add_link(handle, &target.inode)?;
                if let Err(error) = insertion.allocate(handle) {
                    drop_link(&self.engine, handle, &target.inode)?;
                    return Err(error);
                }
                insertion.apply(handle, target.ino(), target.file_type())?;
                self.inode.touch_modified();
                Ok(())
            })
        })
    }
}
