//! What the operations of a mount share.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use fuser::{FileHandle, INodeNo, Notifier};
use parext4::{Node, OnError, Volume, without_reserved_blocks};

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
    /// Whether nothing is changed any more once the volume turns out to be corrupt.
    pub stops_on_corruption: bool,
    /// The user and the group who may use reserved blocks; 0 for nobody but root.
    reserved_for: (u32, u32),
    /// The volume's image.
    pub image: PathBuf,
    pub started: Instant,
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
    pub fn new(volume: Volume, image: &Path, options: MountOptions) -> parext4::Result<Self> {
        let (root, info) = (volume.root()?, volume.info());
        let (resuid, resgid) = info.reserved_for;
        Ok(Self {
            nodes: Nodes::new(root),
            handles: Handles::default(),
            notifier: OnceLock::new(),
            block_size: info.block_size,
            stops_on_corruption: options.on_error.unwrap_or(info.on_error) == OnError::ReadOnly,
            reserved_for: (options.resuid.unwrap_or(resuid), options.resgid.unwrap_or(resgid)),
            image: image.to_owned(),
            started: Instant::now(),
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
        let mut entry = Entry::new(node, self.block_size);
        let attr = &mut entry.attr;
        Caller { uid: attr.uid, gid: attr.gid } = self.owner(Caller { uid: attr.uid, gid: attr.gid });
        entry
    }

    /// Tells the kernel of an inode.
    pub fn tell(&self, node: &Node) -> Entry {
        self.nodes.remember(node);
        self.entry(node)
    }

    /// Whose an inode that somebody has or makes is, as the options say.
    pub fn owner(&self, somebody: Caller) -> Caller {
        let Caller { uid, gid } = somebody;
        Caller { uid: self.options.uid.unwrap_or(uid), gid: self.options.gid.unwrap_or(gid) }
    }

    /// Whether the blocks that are reserved for root are for a caller, too. The protocol tells of one group of his.
    pub fn may_use_reserved(&self, caller: Caller) -> bool {
        let (uid, gid) = self.reserved_for;
        caller.is_root() || caller.uid == uid || gid != 0 && caller.gid == gid
    }

    /// Runs an operation that may use reserved blocks or not, and heeds what it comes to.
    pub fn carry_out<T>(&self, may_use_reserved: bool, operation: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let outcome = if may_use_reserved { operation() } else { without_reserved_blocks(operation) };
        self.heed(outcome)
    }

    /// Stops the volume if it turned out to be corrupt and the options want that.
    pub fn heed<T>(&self, outcome: Outcome<T>) -> Outcome<T> {
        if self.stops_on_corruption
            && let Err(failure) = &outcome
            && let Some(error) = failure.corruption()
        {
            self.volume.stop(error);
        }
        outcome
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
