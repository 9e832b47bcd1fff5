//! Iterates over the entries of a directory.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use parext4_format::InodeNo;

use super::batch::{Batch, changes_of};
use super::dir_path::DirPath;
use super::entry::{DirEntry, DirItem, ListedDir};
use crate::engine::EngineRef;
use crate::error::{Error, Result};
use crate::inode_ref::{InodeId, InodeRef};
use crate::sync::Arc;

/// An iterator over the entries of a directory, without `.` and `..`, from
/// [`Volume::read_dir`](crate::Volume::read_dir) and [`InodeRef::read_dir`].
///
/// It sees every entry exactly once that exists all the time, whatever else is added or removed
/// meanwhile. It ends after the first error. Memory: the entries of at most one directory block, or
/// of the leaves of one hash.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// let entries = volume.read_dir("/")?.collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(entries[0].file_name(), "lost+found");
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Debug)]
pub struct ReadDir {
    listed: Arc<ListedDir>,
    batch: std::vec::IntoIter<DirItem>,
    /// The directory's number of changes when the batch was listed; `None` if the entries must be
    /// looked up by name.
    changes: Option<u64>,
    /// The cookie of the last entry that was returned.
    returned: u64,
    /// The cookie of the last entry of the batch.
    after: u64,
    ended: bool,
}

/// A listing that was interrupted. It keeps no [`InodeRef`].
#[derive(Debug)]
pub(crate) struct PausedDir {
    dir: InodeId,
    path: Arc<DirPath>,
    /// The cookie of the last entry that was returned.
    returned: u64,
    /// The entries with this cookie that were not returned.
    same_cookie: Vec<DirItem>,
    ended: bool,
}

impl ReadDir {
    /// Begins at the first entry of a directory, whose path the entries' paths begin with.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub(crate) fn new(dir: InodeRef, path: PathBuf) -> Result<Self> {
        Self::with_path(dir, DirPath::top(path))
    }

    /// Begins at the first entry of the directory that `entry` names.
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; the errors of [`DirEntry::inode_ref`].
    pub(crate) fn below(entry: &DirEntry) -> Result<Self> {
        Self::with_path(entry.inode_ref()?, DirPath::below(entry.dir_path_ref(), entry.file_name()))
    }

    fn with_path(dir: InodeRef, path: Arc<DirPath>) -> Result<Self> {
        dir.dir()?;
        let listed = Arc::new(ListedDir { dir, path });
        Ok(Self { listed, batch: Vec::new().into_iter(), changes: None, returned: 0, after: 0, ended: false })
    }

    /// Interrupts the listing.
    pub(crate) fn pause(self) -> PausedDir {
        let Self { listed, batch, returned, ended, .. } = self;
        PausedDir {
            dir: listed.dir.id(),
            path: Arc::clone(&listed.path),
            returned,
            same_cookie: batch.take_while(|item| item.cookie == returned).collect(),
            ended,
        }
    }

    /// Returns the directory's name in bytes.
    pub(crate) fn name(&self) -> &[u8] {
        self.listed.path.name().as_bytes()
    }

    /// Returns the directory.
    pub(crate) fn dir(&self) -> &InodeRef {
        &self.listed.dir
    }

    /// Reads the next batch. Returns false at the end.
    fn refill(&mut self) -> Result<bool> {
        let Batch { changes, items } = self.dir().batch_after(self.after)?;
        let Some(last) = items.last() else { return Ok(false) };
        self.after = last.cookie;
        (self.changes, self.batch) = (Some(changes), items.into_iter());
        Ok(true)
    }
}

impl PausedDir {
    /// Returns the number of the directory.
    pub(crate) fn ino(&self) -> InodeNo {
        self.dir.ino
    }

    /// Continues the listing.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the directory was removed; corruption, failed reads.
    pub(crate) fn resume(self, engine: &EngineRef) -> Result<ReadDir> {
        let Self { dir: InodeId { ino, generation }, path, returned, same_cookie, ended } = self;
        let dir = engine
            .inode_by_number(ino, |core| core.generation == generation)?
            .ok_or_else(|| Error::NotFound(path.to_path().display().to_string()))?;
        let listing = ReadDir::with_path(dir, path)?;
        Ok(ReadDir { batch: same_cookie.into_iter(), returned, after: returned, ended, ..listing })
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.batch.find(|item| !matches!(&item.name[..], b"." | b"..")) {
                let next = self.batch.as_slice().first().map(|item| item.cookie);
                let neighbours = [Some(self.returned), next];
                let changes = self.changes.and_then(|changes| changes_of(&item, neighbours, changes));
                self.returned = item.cookie;
                return Some(Ok(DirEntry::new(&self.listed, item, changes)));
            }
            if self.ended {
                return None;
            }
            match self.refill() {
                Ok(more) => self.ended = !more,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl InodeRef {
    /// Returns the entries of this directory, without `.` and `..`. Their paths are their names.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.create_dir_all("/a/b", 0o755)?;
    /// let entries = volume.resolve("/a")?.read_dir()?.collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!((entries.len(), entries[0].name()), (1, &b"b"[..]));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotDirectory`]. The iterator returns the errors of reads, which may block on the
    /// device.
    pub fn read_dir(&self) -> Result<ReadDir> {
        ReadDir::new(self.clone(), PathBuf::new())
    }
}
