//! Names in the volume that files are copied to.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::error::{Result, bail, ensure};
use parext4::{Error, FileType, InodeId, InodeRef, NewInode};

/// The node of the copy of a file that has several names; set when the copy is complete.
pub type Slot = Arc<OnceLock<InodeId>>;

/// What happens to an entry that has the name of a copy, if one of the two is a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherKind {
    /// It stays, and the copy fails, as with cp.
    Stays,
    /// It is removed, unless it is a directory with entries, as with tar.
    IsReplaced,
}

/// A name in the volume.
pub struct Destination {
    pub parent: InodeRef,
    pub name: Vec<u8>,
    /// Its path, for messages and reports.
    pub path: PathBuf,
    pub other_kind: OtherKind,
}

/// A file or directory that was made at a place.
pub struct Made<R> {
    pub node: R,
    /// It replaces something.
    pub has_replaced: bool,
}

impl Destination {
    /// Makes this entry with `make`, which makes no directory; a file of this name is removed
    /// first.
    pub fn replace<R>(&self, make: impl Fn(&InodeRef, &[u8]) -> parext4::Result<R>) -> Result<Made<R>> {
        match make(&self.parent, &self.name) {
            Err(Error::Exists(_)) => {}
            made => return Ok(Made { node: made?, has_replaced: false }),
        }
        if self.parent.lookup(&self.name)?.file_type() == FileType::Directory {
            ensure!(
                self.other_kind == OtherKind::IsReplaced,
                "is a directory, and would have to be replaced by a file"
            );
            match self.parent.rmdir(&self.name) {
                Err(Error::NotEmpty(_)) => {
                    bail!("is a directory with entries, and would have to be replaced by a file");
                }
                removed => removed?,
            }
        } else {
            self.parent.unlink(&self.name)?;
        }
        Ok(Made { node: make(&self.parent, &self.name)?, has_replaced: true })
    }

    /// Makes this entry a name of `node`; a file of this name is removed first, unless it is `node`
    /// itself.
    pub fn link(&self, node: &InodeRef) -> Result<()> {
        match self.parent.lookup(&self.name) {
            Ok(existing) if existing.id() == node.id() => Ok(()),
            Ok(_) | Err(Error::NotFound(_)) => {
                self.replace(|parent, name| parent.link(name, node)).map(|_| ())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the directory of this name; makes it if it does not exist.
    pub fn directory(&self, new: &NewInode) -> Result<Made<InodeRef>> {
        match self.parent.mkdir(&self.name, new) {
            Err(Error::Exists(_)) => {}
            made => return Ok(Made { node: made?, has_replaced: false }),
        }
        let existing = self.parent.lookup(&self.name)?;
        if existing.file_type() == FileType::Directory {
            return Ok(Made { node: existing, has_replaced: false });
        }
        ensure!(
            self.other_kind == OtherKind::IsReplaced,
            "is not a directory, and would have to be replaced by one"
        );
        self.parent.unlink(&self.name)?;
        Ok(Made { node: self.parent.mkdir(&self.name, new)?, has_replaced: true })
    }
}
