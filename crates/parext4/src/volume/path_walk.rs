//! Resolves paths.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use parext4_format::inode::FileType;

use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;
use crate::namespace::printable;
use crate::volume::Volume;

/// Limit of symbolic links followed in one path.
const MAX_FOLLOWED: u32 = 40;

/// A path whose directory is resolved and whose last component is not.
#[derive(Debug)]
pub(super) struct DirAndName {
    /// The directory that has, or would have, the entry.
    pub dir: InodeRef,
    /// The last component; empty if the path is the root itself.
    pub name: Vec<u8>,
    /// True if the path ends in a slash, as only a path of a directory may.
    pub slash: bool,
}

/// The state of one path resolution.
struct Walker {
    at: InodeRef,
    /// Components that are not resolved yet, the last one first.
    rest: Vec<Vec<u8>>,
    followed: u32,
    /// True if the last component must be a directory.
    slash: bool,
}

impl Walker {
    fn new(volume: &Volume, path: &Path) -> Result<Self> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() {
            return Err(Error::NotFound("the path is empty".to_owned()));
        }
        let mut walker = Self { at: volume.root()?, rest: Vec::new(), followed: 0, slash: false };
        walker.push(bytes);
        Ok(walker)
    }

    /// Inserts the components of `path` before the remaining ones.
    fn push(&mut self, path: &[u8]) {
        if self.rest.is_empty() {
            self.slash = path.ends_with(b"/");
        }
        let components = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        self.rest.extend(components.rev().map(<[u8]>::to_vec));
    }

    /// Resolves components until `keep` are left. Follows a symbolic link in the last component
    /// only if `follow` is set or the path ends in a slash.
    fn walk(&mut self, keep: usize, follow: bool) -> Result<()> {
        while self.rest.len() > keep {
            let Some(name) = self.rest.pop() else { break };
            let next = self.at.lookup(&name)?;
            let is_last = self.rest.is_empty();
            if next.file_type() == FileType::Symlink && (!is_last || follow || self.slash) {
                self.follow(&next)?;
            } else if !is_last && next.file_type() != FileType::Directory {
                return Err(Error::NotDirectory(printable(&name)));
            } else {
                self.at = next;
            }
        }
        Ok(())
    }

    fn follow(&mut self, link: &InodeRef) -> Result<()> {
        self.followed += 1;
        if self.followed > MAX_FOLLOWED {
            return Err(Error::Loop(format!("inode {}", link.ino())));
        }
        let target = link.link_target()?;
        if target.starts_with(b"/") {
            self.at = link.engine.inode_ref(parext4_format::InodeNo::ROOT)?;
        }
        let slash = self.slash;
        self.push(&target);
        self.slash |= slash;
        Ok(())
    }
}

impl Volume {
    /// Returns the inode that a path leads to.
    pub(super) fn walk_path(&self, path: &Path, follow: bool) -> Result<InodeRef> {
        let mut walker = Walker::new(self, path)?;
        walker.walk(0, follow)?;
        if walker.slash && walker.at.file_type() != FileType::Directory {
            return Err(Error::NotDirectory(path.display().to_string()));
        }
        Ok(walker.at)
    }

    /// Resolves the directory of a path's last component.
    pub(super) fn place(&self, path: &Path) -> Result<DirAndName> {
        let mut walker = Walker::new(self, path)?;
        walker.walk(1, true)?;
        let name = walker.rest.pop().unwrap_or_default();
        Ok(DirAndName { dir: walker.at, name, slash: walker.slash })
    }
}
