//! Visits and removes whole directory trees.

use std::collections::HashSet;
use std::path::Path;

use parext4_format::inode::FileType;

use super::Volume;
use super::dir_stack::DirStack;
use crate::error::{Error, Result};
use crate::inode_ref::InodeId;
use crate::namespace::{DirEntry, ReadDir};

impl Volume {
    /// Returns an iterator over all entries below a directory. Follows a symbolic link at the end
    /// of `path`, but no links below it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use parext4::{MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};
    /// # fn main() -> Result<(), parext4::Error> {
    /// # let device = Arc::new(MemDevice::new(16 << 20));
    /// # mkfs(&*device, &MkfsOptions::new())?;
    /// # let volume = Volume::open_device(device, &VolumeOptions::new())?;
    /// volume.create_dir_all("/a/b", 0o755)?;
    /// volume.write("/a/b/file", "text")?;
    /// let mut paths = Vec::new();
    /// for entry in volume.walk("/a")? {
    ///     paths.push(entry?.path());
    /// }
    /// assert_eq!(paths, [std::path::Path::new("/a/b"), std::path::Path::new("/a/b/file")]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`read_dir`](Self::read_dir).
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let dirs = DirStack::new(self.read_dir(path)?);
        Ok(Walk { dirs, entered: HashSet::new() })
    }

    /// Removes a directory and all entries below it. Removes a symbolic link itself, and does not
    /// change its target.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.create_dir_all("/a/b/c", 0o755)?;
    /// volume.write("/a/b/file", "text")?;
    /// volume.remove_dir_all("/a")?;
    /// assert!(!volume.exists("/a")?);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`read_dir`](Self::read_dir), [`remove_file`](Self::remove_file) and
    /// [`remove_dir`](Self::remove_dir); [`Error::NotDirectory`] if `path` leads to something else.
    /// After an error a part of the tree remains.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let root = self.resolve_no_follow(path)?;
        let mut dirs = DirStack::new(ReadDir::new(root, path.to_owned())?);
        while let Some(current) = dirs.current()? {
            match current.next().transpose()? {
                Some(entry) if entry.file_type() == FileType::Directory => {
                    let below = dirs.open(&entry)?;
                    dirs.enter(below);
                }
                Some(entry) => current.dir().unlink(entry.name())?,
                None => {
                    let emptied = dirs.leave();
                    if let (Some(emptied), Some(above)) = (emptied, dirs.current()?) {
                        above.dir().rmdir(emptied.name())?;
                    }
                }
            }
        }
        self.remove_dir(path)
    }
}

/// An iterator over all entries below a directory, from [`Volume::walk`].
///
/// The walk is depth first, and yields a directory before its entries. An error ends the listing of
/// one directory, and the walk continues with the next.
///
/// The walk enters a directory once: if it finds one again, because another thread has moved it or
/// because it has several names on a damaged volume, it yields the entry only.
///
/// Memory: the number of each directory; for each directory on the path to the current one its name
/// and position, and for at most 64 of them an open inode and one batch of entries.
///
/// On a sound volume no directory contains itself. On a damaged one, an entry that leads back to a
/// directory on the path to it is an [`Error::Loop`], and the walk does not follow it.
#[derive(Debug)]
pub struct Walk {
    dirs: DirStack,
    entered: HashSet<InodeId>,
}

impl Walk {
    /// Makes the directory that an entry names the current one, unless the walk has entered it
    /// before.
    fn enter(&mut self, entry: &DirEntry) -> Result<()> {
        let below = match self.dirs.open(entry) {
            // Another thread has removed or replaced the directory.
            Err(Error::NotFound(_) | Error::NotDirectory(_)) => return Ok(()),
            opened => opened?,
        };
        if self.entered.insert(below.dir().id()) {
            self.dirs.enter(below);
        }
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let current = match self.dirs.current() {
                Ok(current) => current?,
                // Another thread has removed the directory.
                Err(Error::NotFound(_)) => continue,
                Err(error) => return Some(Err(error)),
            };
            match current.next() {
                Some(Ok(entry)) if entry.file_type() == FileType::Directory => {
                    return Some(self.enter(&entry).map(|()| entry));
                }
                Some(entry) => return Some(entry),
                None => drop(self.dirs.leave()),
            }
        }
    }
}
