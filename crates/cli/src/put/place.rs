//! Names in the volume that files are copied to.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anyhow::{Result, bail};
use parext4::{Error, FileType, NewInode, Node, NodeId};

/// The node of the copy of a file that has several names; set when the copy is complete.
pub type Slot = Arc<OnceLock<NodeId>>;

/// A name in the volume.
pub struct Place {
    pub parent: Node,
    pub name: Vec<u8>,
    /// Its path, for messages and reports.
    pub path: PathBuf,
}

impl Place {
    /// Makes this entry with `make`; a file of this name is removed first.
    pub fn replace<R>(&self, make: impl Fn(&Node, &[u8]) -> parext4::Result<R>) -> Result<R> {
        match make(&self.parent, &self.name) {
            Err(Error::Exists(_)) => {}
            made => return Ok(made?),
        }
        if self.parent.lookup(&self.name)?.file_type() == FileType::Directory {
            bail!("is a directory, and would have to be replaced by a file");
        }
        self.parent.unlink(&self.name)?;
        Ok(make(&self.parent, &self.name)?)
    }

    /// Makes this entry a name of `node`; a file of this name is removed first, unless it is `node` itself.
    pub fn link(&self, node: &Node) -> Result<()> {
        match self.parent.lookup(&self.name) {
            Ok(existing) if existing.id() == node.id() => Ok(()),
            Ok(_) | Err(Error::NotFound(_)) => self.replace(|parent, name| parent.link(name, node)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the directory of this name; makes it if it does not exist.
    pub fn directory(&self, new: &NewInode) -> Result<Node> {
        match self.parent.mkdir(&self.name, new) {
            Err(Error::Exists(_)) => {}
            made => return Ok(made?),
        }
        let existing = self.parent.lookup(&self.name)?;
        if existing.file_type() != FileType::Directory {
            bail!("is not a directory, and would have to be replaced by one");
        }
        Ok(existing)
    }
}
