//! Operations by path.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use parext4_format::InodeNo;
use parext4_format::inode::FileType;

use crate::error::{Error, Result};
use crate::namespace::{Metadata, NewInode, ReadDir, RenameMode, show};
use crate::node::Node;
use crate::volume::Volume;
use crate::volume::path_walk::DirAndName;

/// Paths start at the volume's root, with or without a leading slash. `.`, `..` and symbolic links on the way
/// are followed as Linux does; what a call does about a symbolic link at the end of its path, it says.
impl Volume {
    /// The root directory.
    ///
    /// # Errors
    /// Corruption, a failed read.
    pub fn root(&self) -> Result<Node> {
        self.engine.in_flight.check_open()?;
        let root = self.engine.node(InodeNo::ROOT)?;
        if root.file_type() != FileType::Directory {
            return Err(Error::corrupt("the root inode is no directory"));
        }
        Ok(root)
    }

    /// The inode that a path leads to; a symbolic link at the end is followed.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::Loop`]; corruption, failed reads. Other calls with
    /// paths fail in the same ways.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<Node> {
        self.walk_path(path.as_ref(), true)
    }

    /// The inode that a path leads to; a symbolic link at the end is returned itself.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_no_follow(&self, path: impl AsRef<Path>) -> Result<Node> {
        self.walk_path(path.as_ref(), false)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Node::mkdir`].
    pub fn mkdir(&self, path: impl AsRef<Path>, mode: u16) -> Result<Node> {
        let place = self.place(path.as_ref())?;
        if place.name.is_empty() {
            return Err(Error::Exists(path.as_ref().display().to_string()));
        }
        place.dir.mkdir(&place.name, &NewInode { permissions: mode, ..NewInode::default() })
    }

    /// Makes a directory and those above it that are missing. Nothing happens if it is there.
    ///
    /// # Errors
    /// As [`Node::mkdir`]; [`Error::NotDirectory`] if something else is in the way.
    pub fn mkdir_all(&self, path: impl AsRef<Path>, mode: u16) -> Result<Node> {
        let mut path_so_far: Vec<&Path> =
            path.as_ref().ancestors().filter(|path| !path.as_os_str().is_empty()).collect();
        let mut dir = self.root()?;
        while let Some(path) = path_so_far.pop() {
            dir = match self.resolve(path) {
                Err(Error::NotFound(_)) => match self.mkdir(path, mode) {
                    // Another thread was faster.
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

    /// Makes a symbolic link at `path` to `target`, which may be any text.
    ///
    /// # Errors
    /// As [`Node::symlink`].
    pub fn symlink(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<Node> {
        let place = self.named(path.as_ref())?;
        place.dir.symlink(&place.name, target.as_ref().as_os_str().as_bytes(), &NewInode::default())
    }

    /// Gives the file at `existing` another name; a symbolic link there is itself linked.
    ///
    /// # Errors
    /// As [`Node::link`].
    pub fn link(&self, existing: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<()> {
        let target = self.resolve_no_follow(existing)?;
        let place = self.named(new.as_ref())?;
        place.dir.link(&place.name, &target)
    }

    /// Removes the name of anything but a directory; a symbolic link is itself removed.
    ///
    /// # Errors
    /// As [`Node::unlink`].
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
    /// # Errors
    /// As [`Node::rmdir`]; [`Error::Busy`] for the root.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let place = self.place_below_root(path.as_ref())?;
        place.dir.rmdir(&place.name)
    }

    /// Renames; what is at `to` is replaced. Symbolic links at the ends are themselves renamed and replaced.
    ///
    /// # Errors
    /// As [`Node::rename`]; [`Error::Busy`] for the root.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let mut old = self.place_below_root(from.as_ref())?;
        let new = self.place_below_root(to.as_ref())?;
        old.slash |= new.slash;
        old.check_slash()?;
        old.dir.rename(&old.name, &new.dir, &new.name, RenameMode::Replace)
    }

    /// The entries of a directory, without `.` and `..`; a symbolic link at the end is followed.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        ReadDir::new(self.resolve(path)?, path.to_owned())
    }

    /// The target of the symbolic link at the end of a path.
    ///
    /// # Errors
    /// As [`Node::read_link`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.resolve_no_follow(path)?.read_link()
    }

    /// The attributes of what a path leads to; a symbolic link at the end is followed.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(self.resolve(path)?.metadata())
    }

    /// The attributes of what a path leads to, be it a symbolic link.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(self.resolve_no_follow(path)?.metadata())
    }

    /// Where something that is no directory would be made.
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
    /// An error if the path ends in a slash but does not lead to a directory.
    fn check_slash(&self) -> Result<()> {
        if self.slash && self.dir.lookup(&self.name)?.file_type() != FileType::Directory {
            return Err(Error::NotDirectory(show(&self.name)));
        }
        Ok(())
    }
}
