//! What the operations of a mount share.

use std::sync::{Arc, OnceLock};

use fuser::{FileHandle, INodeNo, Notifier};
use parext4::{Node, Volume};

use crate::attr::Entry;
use crate::failure::Outcome;
use crate::handles::{Handles, OpenFile};
use crate::nodes::Nodes;
use crate::options::MountOptions;

/// A mounted volume. The operations are in the modules of their families.
#[derive(Debug)]
pub(crate) struct Server {
    pub volume: Volume,
    pub options: MountOptions,
    pub nodes: Nodes,
    pub handles: Handles,
    /// To tell the kernel something, once it is mounted.
    pub notifier: OnceLock<Notifier>,
    block_size: u32,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub uid: u32,
    pub gid: u32,
}

impl Caller {
    /// Whether the caller may do what only root may. The protocol does not tell of capabilities.
    pub fn is_root(self) -> bool {
        self.uid == 0
    }
}

impl Server {
    pub fn new(volume: Volume, options: MountOptions) -> parext4::Result<Self> {
        let (root, block_size) = (volume.root()?, volume.space().block_size);
        Ok(Self {
            nodes: Nodes::new(root),
            handles: Handles::default(),
            notifier: OnceLock::new(),
            block_size,
            volume,
            options,
        })
    }

    pub fn node(&self, ino: INodeNo) -> Outcome<Arc<Node>> {
        self.nodes.get(ino)
    }

    pub fn open_file(&self, handle: FileHandle) -> Outcome<Arc<OpenFile>> {
        self.handles.get(handle)
    }

    /// The inode as the kernel learns of it, without being told.
    pub fn entry(&self, node: &Node) -> Entry {
        Entry::new(node, self.block_size)
    }

    /// Tells the kernel of an inode.
    pub fn tell(&self, node: &Node) -> Entry {
        self.nodes.remember(node);
        self.entry(node)
    }

    /// Makes a change of a directory durable, if it is to be at once.
    pub fn changed(&self, dir: &Node) -> Outcome<()> {
        if self.options.sync || self.options.dirsync {
            dir.sync()?;
        }
        Ok(())
    }

    /// Lets go of everything, when the kernel asks no more.
    pub fn end(&self) {
        self.handles.clear();
        self.nodes.forget_all();
    }
}
