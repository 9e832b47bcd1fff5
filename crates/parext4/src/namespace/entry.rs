//! An entry of a directory: what the directory says of it, and the way to its inode.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use parext4_format::InodeNo;
use parext4_format::inode::FileType;

use super::dir_path::DirPath;
use super::{Metadata, check_name};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::inode_ref::InodeRef;
use crate::sync::Arc;

/// What a directory has of one entry.
#[derive(Clone, Debug)]
pub(super) struct DirItem {
    pub(super) name: Vec<u8>,
    pub(super) ino: InodeNo,
    pub(super) file_type: FileType,
    /// The [cookie](super::cookie) that continues after this entry.
    pub(super) cookie: u64,
}

/// A directory that is listed, and its path.
#[derive(Debug)]
pub(super) struct ListedDir {
    pub(super) dir: InodeRef,
    pub(super) path: Arc<DirPath>,
}

/// An entry of a directory, from [`ReadDir`](super::ReadDir), [`Walk`](crate::Walk) or
/// [`InodeRef::read_dir_after`]. Keeps the directory and the volume open.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// volume.write("/a", "text")?;
/// for entry in volume.walk("/")? {
///     let entry = entry?;
///     println!("{} {}", entry.path().display(), entry.metadata()?.size);
/// }
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DirEntry {
    listed: Arc<ListedDir>,
    item: DirItem,
    /// The directory's number of changes when the entry was listed; `None` if it must be looked up
    /// by name.
    changes: Option<u64>,
}

impl DirEntry {
    pub(super) fn new(listed: &Arc<ListedDir>, item: DirItem, changes: Option<u64>) -> Self {
        Self { listed: Arc::clone(listed), item, changes }
    }

    /// Returns the path of the directory, which the paths of its subdirectories share.
    pub(super) fn dir_path_ref(&self) -> &Arc<DirPath> {
        &self.listed.path
    }

    /// Returns the path: that of the directory, as it was given, and the name.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.create_dir_all("/a/b", 0o755)?;
    /// let entry = volume.read_dir("/a")?.next().expect("one entry")?;
    /// assert_eq!(entry.path(), std::path::Path::new("/a/b"));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir_path().join(OsStr::from_bytes(&self.item.name))
    }

    /// Returns the path of the directory, as it was given. An entry does not keep its path as one
    /// string, so that deep trees need little memory: each call joins the names.
    #[must_use]
    pub fn dir_path(&self) -> PathBuf {
        self.listed.path.to_path()
    }

    /// Returns the name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        OsString::from_vec(self.item.name.clone())
    }

    /// Returns the name in bytes: 1 to 255.
    #[must_use]
    pub fn name(&self) -> &[u8] {
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

    /// Returns the cookie with which [`InodeRef::read_dir_after`] continues after this entry.
    /// Cookies grow along a listing, and bit 63 is never set. The lower 32 bits are all set, so
    /// that the other 31 bits identify the cookie, unless the next name has the same hash.
    #[must_use]
    pub fn cookie(&self) -> u64 {
        self.item.cookie
    }

    /// Returns the inode that has the name now. Symbolic links are not followed. Searches for the
    /// name only if the directory has changed since it was listed; until then a name that look-ups
    /// refuse, or that a damaged directory without an index has twice, leads to the entry's own
    /// inode.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.create_dir_all("/a/b", 0o755)?;
    /// let entry = volume.read_dir("/a")?.next().expect("one entry")?;
    /// assert_eq!(entry.inode_ref()?.ino(), entry.ino());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if the entry was removed; corruption, failed reads.
    pub fn inode_ref(&self) -> Result<InodeRef> {
        self.listed.dir.listed_node(&self.item, self.changes)
    }

    /// Returns the attributes of the inode that has the name now. Symbolic links are not followed.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// let sizes = volume.read_dir("/")?.map(|entry| Ok(entry?.metadata()?.size));
    /// assert!(sizes.collect::<parext4::Result<Vec<_>>>()?.contains(&4));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`inode_ref`](Self::inode_ref).
    pub fn metadata(&self) -> Result<Metadata> {
        Ok(self.inode_ref()?.metadata())
    }
}

impl InodeRef {
    /// Returns the inode that the name of an entry has now. The entry was listed when this
    /// directory had changed `changes` times.
    fn listed_node(&self, item: &DirItem, changes: Option<u64>) -> Result<InodeRef> {
        if !matches!(&item.name[..], b"." | b"..") {
            check_name(&item.name)?;
            let now = self.inode.read_entries();
            if Some(*now) == changes {
                return self.dir()?.inode_ref(item.ino);
            }
        }
        self.lookup(&item.name)
    }
}
