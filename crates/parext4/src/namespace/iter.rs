//! An iterator over the entries of a directory.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use parext4_format::InodeNo;
use parext4_format::inode::FileType;

use super::{DirItem, Metadata};
use crate::error::Result;
use crate::node::Node;
use crate::sync::Arc;

/// A directory that is listed, and its path.
#[derive(Debug)]
struct Listed {
    dir: Node,
    path: PathBuf,
}

/// An iterator over the entries of a directory, without `.` and `..`, from [`Volume::read_dir`](crate::Volume::read_dir).
///
/// It sees every entry exactly once that exists all the time, whatever else is added or removed meanwhile. It ends after the
/// first error. Memory: the entries of at most one directory block, or of the leaves of one hash.
#[derive(Debug)]
pub struct ReadDir {
    listed: Arc<Listed>,
    batch: std::vec::IntoIter<DirItem>,
    after: u64,
    ended: bool,
}

impl ReadDir {
    /// Begins at the first entry of a directory, whose path the entries' paths begin with.
    ///
    /// # Errors
    /// [`Error::NotDirectory`](crate::Error::NotDirectory).
    pub(crate) fn new(dir: Node, path: PathBuf) -> Result<Self> {
        dir.dir()?;
        let listed = Arc::new(Listed { dir, path });
        Ok(Self { listed, batch: Vec::new().into_iter(), after: 0, ended: false })
    }

    /// Returns the directory.
    pub(crate) fn dir(&self) -> &Node {
        &self.listed.dir
    }

    /// Reads the next batch. Returns false at the end.
    fn refill(&mut self) -> Result<bool> {
        let batch = self.dir().read_dir(self.after)?;
        let Some(last) = batch.last() else { return Ok(false) };
        self.after = last.cookie;
        self.batch = batch.into_iter();
        Ok(true)
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.batch.find(|item| !matches!(&item.name[..], b"." | b"..")) {
                return Some(Ok(DirEntry { listed: Arc::clone(&self.listed), item }));
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

/// An entry of a directory, from [`ReadDir`] or [`Walk`](crate::Walk).
#[derive(Clone, Debug)]
pub struct DirEntry {
    listed: Arc<Listed>,
    item: DirItem,
}

impl DirEntry {
    /// Returns the path: that of the directory, as it was given, and the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir_path().join(OsStr::from_bytes(&self.item.name))
    }

    /// Returns the path of the directory, as it was given.
    #[must_use]
    pub fn dir_path(&self) -> &Path {
        &self.listed.path
    }

    /// Returns the name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        OsString::from_vec(self.item.name.clone())
    }

    /// Returns the name in bytes.
    pub(crate) fn name(&self) -> &[u8] {
        &self.item.name
    }

    /// Returns the inode number.
    #[must_use]
    pub fn ino(&self) -> InodeNo {
        self.item.ino
    }

    /// Returns the kind of the inode, as the entry states it. Symbolic links are not followed.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.item.file_type
    }

    /// Returns the inode that has the name now. Symbolic links are not followed.
    ///
    /// # Errors
    /// [`Error::NotFound`](crate::Error::NotFound) if the entry was removed; corruption, failed reads.
    pub fn node(&self) -> Result<Node> {
        self.listed.dir.lookup(&self.item.name)
    }

    /// Returns the attributes of the inode that has the name now. Symbolic links are not followed.
    ///
    /// # Errors
    /// As [`node`](Self::node).
    pub fn metadata(&self) -> Result<Metadata> {
        Ok(self.node()?.metadata())
    }
}
