//! Operates on directories, names and attributes by path.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use parext4_format::InodeNo;
use parext4_format::inode::FileType;

use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;
use crate::namespace::{Metadata, NewInode, ReadDir, RenameMode, printable};
use crate::volume::Volume;
use crate::volume::path_walk::DirAndName;

/// Paths start at the volume's root, with or without a leading slash. The calls resolve `.`, `..`
/// and symbolic links within a path as Linux does. Each call states how it treats a symbolic link
/// at the end of its path.
impl Volume {
    /// Returns the root directory.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let root = volume.root()?;
    /// assert_eq!(root.lookup(b"lost+found")?.ino(), volume.resolve("/lost+found")?.ino());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// Corruption, a failed read.
    pub fn root(&self) -> Result<InodeRef> {
        self.engine.in_flight().check_open()?;
        let root = self.engine.inode_ref(InodeNo::ROOT)?;
        if root.file_type() != FileType::Directory {
            return Err(Error::corrupt("the root inode is no directory"));
        }
        Ok(root)
    }

    /// Returns the inode that a path leads to. Follows a symbolic link at the end.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/notes", "text")?;
    /// volume.symlink("/link", "notes")?;
    /// assert_eq!(volume.resolve("/link")?.ino(), volume.resolve("/notes")?.ino());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::Loop`]; corruption, failed reads. All
    /// calls with paths return these errors.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<InodeRef> {
        self.walk_path(path.as_ref(), true)
    }

    /// Returns the inode that a path leads to. Does not follow a symbolic link at the end.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::FileType;
    ///
    /// volume.symlink("/link", "missing")?;
    /// assert_eq!(volume.resolve_no_follow("/link")?.file_type(), FileType::Symlink);
    /// assert!(volume.resolve("/link").is_err());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`resolve`](Self::resolve).
    pub fn resolve_no_follow(&self, path: impl AsRef<Path>) -> Result<InodeRef> {
        self.walk_path(path.as_ref(), false)
    }

    /// Creates a directory.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let dir = volume.create_dir("/logs", 0o750)?;
    /// assert_eq!(dir.metadata().permissions, 0o750);
    /// assert!(volume.create_dir("/missing/logs", 0o750).is_err());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`InodeRef::mkdir`].
    pub fn create_dir(&self, path: impl AsRef<Path>, mode: u16) -> Result<InodeRef> {
        let place = self.place(path.as_ref())?;
        if place.name.is_empty() {
            return Err(Error::Exists(path.as_ref().display().to_string()));
        }
        place.dir.mkdir(&place.name, &NewInode::new().permissions(mode))
    }

    /// Creates a directory and its missing ancestors. Does nothing if the directory exists.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.create_dir_all("/a/b/c", 0o755)?;
    /// volume.create_dir_all("/a/b/c", 0o755)?;
    /// assert!(volume.exists("/a/b")?);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`InodeRef::mkdir`]; [`Error::NotDirectory`] if a component of the path is not
    /// a directory.
    pub fn create_dir_all(&self, path: impl AsRef<Path>, mode: u16) -> Result<InodeRef> {
        let mut path_so_far: Vec<&Path> =
            path.as_ref().ancestors().filter(|path| !path.as_os_str().is_empty()).collect();
        let mut dir = self.root()?;
        while let Some(path) = path_so_far.pop() {
            dir = match self.resolve(path) {
                Err(Error::NotFound(_)) => match self.create_dir(path, mode) {
                    // Another thread has created the directory first.
                    Err(Error::Exists(_)) => self.resolve(path)?,
                    made => made?,
                },
                found => found?,
            };
            if dir.file_type() != FileType::Directory {
                return Err(Error::NotDirectory(path.display().to_string()));
            }
        }
        Ok(dir)
    }

    /// Creates a symbolic link at `path` to `target`, which need not exist.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/v2", "new")?;
    /// volume.symlink("/current", "v2")?;
    /// assert_eq!(volume.read("/current")?, b"new");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`InodeRef::symlink`].
    pub fn symlink(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<InodeRef> {
        let place = self.named(path.as_ref())?;
        place.dir.symlink(&place.name, target.as_ref().as_os_str().as_bytes(), &NewInode::new())
    }

    /// Adds another name to the inode at `existing`. Links a symbolic link itself.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// volume.hard_link("/a", "/b")?;
    /// volume.remove_file("/a")?;
    /// assert_eq!(volume.read("/b")?, b"text");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`InodeRef::link`].
    pub fn hard_link(&self, existing: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<()> {
        let target = self.resolve_no_follow(existing)?;
        let place = self.named(new.as_ref())?;
        place.dir.link(&place.name, &target)
    }

    /// Removes a name of an inode that is not a directory. Removes a symbolic link itself.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// volume.remove_file("/a")?;
    /// assert!(!volume.exists("/a")?);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`InodeRef::unlink`].
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let place = self.place(path.as_ref())?;
        if place.name.is_empty() {
            return Err(Error::IsDirectory("/".to_owned()));
        }
        place.check_slash()?;
        place.dir.unlink(&place.name)
    }

    /// Removes an empty directory.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::Error;
    ///
    /// volume.create_dir_all("/a/b", 0o755)?;
    /// assert!(matches!(volume.remove_dir("/a"), Err(Error::NotEmpty(_))));
    /// volume.remove_dir("/a/b")?;
    /// volume.remove_dir("/a")?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`InodeRef::rmdir`]; [`Error::Busy`] for the root.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let place = self.place_below_root(path.as_ref())?;
        place.dir.rmdir(&place.name)
    }

    /// Renames `from` to `to`, and replaces an existing `to`. Renames and replaces symbolic links
    /// themselves.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/config.new", "b")?;
    /// volume.write("/config", "a")?;
    /// volume.rename("/config.new", "/config")?;
    /// assert_eq!(volume.read("/config")?, b"b");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`InodeRef::rename`]; [`Error::Busy`] for the root.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// Renames `from` to `to`. `mode` says what happens if `to` exists, as the flags of
    /// renameat2(2).
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::{Error, RenameMode};
    ///
    /// volume.write("/a", "one")?;
    /// volume.write("/b", "two")?;
    /// let refused = volume.rename_with("/a", "/b", RenameMode::NoReplace);
    /// assert!(matches!(refused, Err(Error::Exists(_))));
    /// volume.rename_with("/a", "/b", RenameMode::Exchange)?;
    /// assert_eq!((volume.read("/a")?, volume.read("/b")?), (b"two".to_vec(), b"one".to_vec()));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`rename`](Self::rename); [`Error::Exists`] for [`RenameMode::NoReplace`],
    /// [`Error::NotFound`] for [`RenameMode::Exchange`] if `to` does not exist. Blocks until other
    /// operations on the directories have completed.
    pub fn rename_with(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, mode: RenameMode) -> Result<()> {
        let mut old = self.place_below_root(from.as_ref())?;
        let new = self.place_below_root(to.as_ref())?;
        if mode == RenameMode::Exchange {
            new.check_slash()?;
        } else {
            old.slash |= new.slash;
        }
        old.check_slash()?;
        old.dir.rename(&old.name, &new.dir, &new.name, mode)
    }

    /// Returns the entries of a directory, without `.` and `..`. Follows a symbolic link at the
    /// end.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::FileType;
    ///
    /// volume.write("/a", "text")?;
    /// for entry in volume.read_dir("/")? {
    ///     let entry = entry?;
    ///     if entry.file_type() == FileType::Regular {
    ///         assert_eq!((entry.file_name(), entry.metadata()?.size), ("a".into(), 4));
    ///     }
    /// }
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`resolve`](Self::resolve).
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        ReadDir::new(self.resolve(path)?, path.to_owned())
    }

    /// Returns the target of the symbolic link at the end of a path.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.symlink("/link", "some/where")?;
    /// assert_eq!(volume.read_link("/link")?, std::path::Path::new("some/where"));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`InodeRef::read_link`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.resolve_no_follow(path)?.read_link()
    }

    /// Returns the attributes of the inode that a path leads to. Follows a symbolic link at the
    /// end.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// let metadata = volume.metadata("/a")?;
    /// assert_eq!((metadata.size, metadata.links), (4, 1));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`resolve`](Self::resolve).
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(self.resolve(path)?.metadata())
    }

    /// Returns the attributes of the inode that a path leads to. Does not follow a symbolic link at
    /// the end.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.symlink("/link", "target")?;
    /// assert_eq!(volume.symlink_metadata("/link")?.size, 6);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`resolve`](Self::resolve).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(self.resolve_no_follow(path)?.metadata())
    }

    /// Resolves the place of a new name for an inode that is not a directory.
    fn named(&self, path: &Path) -> Result<DirAndName> {
        let place = self.place(path)?;
        if place.name.is_empty() {
            return Err(Error::Exists("/".to_owned()));
        }
        if place.slash {
            return Err(Error::NotFound(path.display().to_string()));
        }
        Ok(place)
    }

    fn place_below_root(&self, path: &Path) -> Result<DirAndName> {
        let place = self.place(path)?;
        if place.name.is_empty() {
            return Err(Error::Busy("the root directory".to_owned()));
        }
        Ok(place)
    }
}

impl DirAndName {
    /// Returns an error if the path ends in a slash but does not lead to a directory.
    fn check_slash(&self) -> Result<()> {
        if self.slash && self.dir.lookup(&self.name)?.file_type() != FileType::Directory {
            return Err(Error::NotDirectory(printable(&self.name)));
        }
        Ok(())
    }
}
