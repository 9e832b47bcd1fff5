//! Visits and removes whole directory trees.

use std::path::Path;

use parext4_format::inode::FileType;

use super::Volume;
use crate::error::{Error, Result};
use crate::namespace::{DirEntry, ReadDir};

impl Volume {
    /// Returns an iterator over all entries below a directory. Follows a symbolic link at the end of `path`, but no
    /// links below it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use parext4::{MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};
    /// # fn main() -> Result<(), parext4::Error> {
    /// # let device = Arc::new(MemDevice::new(16 << 20));
    /// # mkfs(&*device, &MkfsOptions::new())?;
    /// # let volume = Volume::open_device(device, &VolumeOptions::new())?;
    /// volume.mkdir_all("/a/b", 0o755)?;
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
        Ok(Walk { open: vec![self.read_dir(path)?] })
    }

    /// Removes a directory and all entries below it. Removes a symbolic link itself, and does not change its target.
    ///
    /// # Errors
    /// As [`read_dir`](Self::read_dir), [`remove_file`](Self::remove_file) and [`remove_dir`](Self::remove_dir);
    /// [`Error::NotDirectory`] if `path` leads to something else. After an error a part of the tree remains.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let root = self.resolve_no_follow(path)?;
        let mut open = vec![(ReadDir::new(root, path.to_owned())?, None)];
        while let Some((entries, _)) = open.last_mut() {
            match entries.next() {
                Some(entry) => {
                    let entry = entry?;
                    if entry.file_type() != FileType::Directory {
                        entries.dir().unlink(entry.name())?;
                        continue;
                    }
                    let child = ReadDir::new(entry.node()?, entry.path())?;
                    check_no_loop(open.iter().map(|(above, _)| above), &child, &entry)?;
                    open.push((child, Some(entry)));
                }
                None => {
                    let emptied = open.pop().and_then(|(_, entry)| entry);
                    if let (Some(entry), Some((above, _))) = (emptied, open.last()) {
                        above.dir().rmdir(entry.name())?;
                    }
                }
            }
        }
        self.remove_dir(path)
    }
}

/// An iterator over all entries below a directory, from [`Volume::walk`].
///
/// The walk is depth first, and yields a directory before its entries. It holds one batch of entries for each directory on
/// the path to the current directory. An error ends the listing of one directory, and the walk continues with the next.
///
/// On a sound volume no directory contains itself. On a damaged one, an entry that leads back to a directory on the path to it
/// is an [`Error::Loop`], and the walk does not follow it.
#[derive(Debug)]
pub struct Walk {
    /// The directories on the path to the current one, which is last.
    open: Vec<ReadDir>,
}

impl Walk {
    /// Makes the directory that an entry names the current one.
    fn enter(&mut self, entry: &DirEntry) -> Result<()> {
        let child = match entry.node().and_then(|node| ReadDir::new(node, entry.path())) {
            // Another thread has removed or replaced the directory.
            Err(Error::NotFound(_) | Error::NotDirectory(_)) => return Ok(()),
            opened => opened?,
        };
        check_no_loop(self.open.iter(), &child, entry)?;
        self.open.push(child);
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(entries) = self.open.last_mut() {
            match entries.next() {
                Some(Ok(entry)) if entry.file_type() == FileType::Directory => {
                    return Some(self.enter(&entry).map(|()| entry));
                }
                Some(entry) => return Some(entry),
                None => drop(self.open.pop()),
            }
        }
        None
    }
}

/// Returns an error if the directory that `entry` names is one of its own ancestors.
fn check_no_loop<'a>(
    mut above: impl Iterator<Item = &'a ReadDir>,
    child: &ReadDir,
    entry: &DirEntry,
) -> Result<()> {
    if above.any(|open| open.dir().ino() == child.dir().ino()) {
        return Err(Error::Loop(format!("{}: the directory contains itself", entry.path().display())));
    }
    Ok(())
}
