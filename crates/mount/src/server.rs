//! What the operations of a mount share.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fuser::{FileHandle, INodeNo, Notifier};
use parext4::{Node, OnError, Space, Volume, without_reserved_blocks};

use crate::attr::Entry;
use crate::caller::Caller;
use crate::failure::{Failure, Outcome};
use crate::handles::{Handles, OpenFile};
use crate::nodes::Nodes;
use crate::options::{Cache, MountOptions};
use crate::under_way::UnderWay;

/// Bytes of an inode without fields for nanoseconds.
const SMALL_INODE: u16 = 128;

/// A mounted volume. The operations are in the modules of their families.
#[derive(Debug)]
pub(crate) struct Server {
    pub volume: Volume,
    pub options: MountOptions,
    pub nodes: Nodes,
    pub handles: Handles,
    pub under_way: Arc<UnderWay>,
    /// To tell the kernel something, once it is mounted.
    pub notifier: Arc<OnceLock<Notifier>>,
    block_size: u32,
    /// Whether nothing is changed any more once the volume turns out to be corrupt.
    pub stops_on_corruption: bool,
    /// The user and the group who may use reserved blocks; 0 for nobody but root.
    reserved_for: (u32, u32),
    /// The volume's image.
    pub image: PathBuf,
    pub started: Instant,
}

impl Server {
    pub fn new(volume: Volume, image: &Path, options: MountOptions) -> parext4::Result<Self> {
        let (root, info) = (volume.root()?, volume.info());
        let (resuid, resgid) = info.reserved_for;
        Ok(Self {
            nodes: Nodes::new(root, options.cache == Cache::Writeback),
            handles: Handles::default(),
            under_way: Arc::default(),
            notifier: Arc::default(),
            block_size: info.block_size,
            stops_on_corruption: options.on_error.unwrap_or(info.on_error) == OnError::ReadOnly,
            reserved_for: (options.resuid.unwrap_or(resuid), options.resgid.unwrap_or(resgid)),
            image: image.to_owned(),
            started: Instant::now(),
            volume,
            options,
        })
    }

    /// The smallest difference of times: small inodes have no nanoseconds.
    pub fn time_grain(&self) -> Duration {
        let has_nanoseconds = self.volume.info().inode_size > SMALL_INODE;
        if has_nanoseconds { Duration::from_nanos(1) } else { Duration::from_secs(1) }
    }

    /// Invalidates the attributes of an inode that the kernel caches. Blocks on no request if the sender of the request
    /// holds a reference to the inode, as by an open file; so the handler of such a request may call this. Without a
    /// reference the kernel may be evicting the inode, and this would block until its requests for that are answered.
    pub fn forget_attributes(&self, ino: INodeNo) {
        /// Less than zero: the attributes alone.
        const NO_DATA: i64 = -1;
        if let Some(notifier) = self.notifier.get() {
            // An error means that the kernel does not know the inode.
            let _ = notifier.inval_inode(ino, NO_DATA, 0);
        }
    }

    pub fn node(&self, ino: INodeNo) -> Outcome<Node> {
        self.nodes.get(&self.volume, ino)
    }

    pub fn open_file(&self, handle: FileHandle) -> Outcome<Arc<OpenFile>> {
        self.handles.get(handle)
    }

    /// The inode as the kernel learns of it, without being told.
    pub fn entry(&self, node: &Node) -> Entry {
        let mut entry = Entry::new(node, self.block_size);
        let attr = &mut entry.attr;
        (attr.uid, attr.gid) = self.owner(attr.uid, attr.gid);
        entry
    }

    /// Tells the kernel of an inode.
    pub fn tell(&self, node: &Node) -> Entry {
        self.nodes.remember(node);
        self.entry(node)
    }

    /// Returns the owner and the group that an inode shows and is created with: the given ones, unless the options name
    /// others.
    pub fn owner(&self, uid: u32, gid: u32) -> (u32, u32) {
        (self.options.uid.unwrap_or(uid), self.options.gid.unwrap_or(gid))
    }

    /// Returns true if a caller may use the blocks that are reserved for root. The protocol tells of one group of the
    /// caller. With the option `idmap` it tells of no caller, and nobody may use them.
    pub fn may_use_reserved(&self, caller: Caller) -> bool {
        let (uid, gid) = self.reserved_for;
        let may_use = |(user, group)| user == 0 || user == uid || gid != 0 && group == gid;
        !self.options.idmap && caller.new_owner().is_ok_and(may_use)
    }

    /// Runs an operation that may use reserved blocks or not, and heeds what it comes to.
    pub fn carry_out<T>(&self, may_use_reserved: bool, operation: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let outcome = if may_use_reserved { operation() } else { without_reserved_blocks(operation) };
        self.heed(outcome)
    }

    /// Handles corruption found by a request: stops the volume if the options say so.
    pub fn heed<T>(&self, outcome: Outcome<T>) -> Outcome<T> {
        match outcome.as_ref().err().and_then(Failure::corruption) {
            Some(error) if self.stops_on_corruption => self.volume.stop(error),
            Some(error) => self.volume.note_error(error),
            None => {}
        }
        outcome
    }

    /// The volume's space as statfs(2) tells it.
    pub fn space(&self) -> Space {
        let space = self.volume.space();
        let overhead = if self.options.minix_df { 0 } else { space.overhead_blocks };
        Space { blocks: space.blocks.saturating_sub(overhead), ..space }
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
