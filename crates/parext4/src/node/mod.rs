//! `Node`: a counted reference to an inode. The last one of an unlinked inode deletes it.

mod blocks;
mod delete;
mod flags;
mod id;
mod load;
mod sync;

use parext4_format::InodeNo;
use parext4_format::inode::FileType;

pub use id::NodeId;

use crate::engine::{Engine, Use};
use crate::error::Result;
use crate::fault::{Fault, planted};
use crate::inode::{Behind, Inode};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// A file, directory, symbolic link or other inode of an open [`Volume`](crate::Volume).
///
/// An inode that has lost its last name lives on until its last `Node` is dropped.
#[derive(Debug)]
pub struct Node {
    pub(crate) engine: Use,
    pub(crate) inode: Arc<Inode>,
}

impl Node {
    /// Takes a reference. The caller holds what keeps the inode from being deleted meanwhile: the lock of a
    /// directory that names it, or another `Node`.
    pub(crate) fn new(engine: &Arc<Engine>, inode: Arc<Inode>) -> Self {
        // Relaxed, as for `Arc`: a new reference comes from an existing one or from under the lock.
        inode.references.fetch_add(1, Ordering::Relaxed);
        Self { engine: Use::new(engine), inode }
    }

    /// As [`new`](Self::new), for a thread of the volume's own. `None` if the inode is being deleted: it has neither
    /// name nor user.
    pub(crate) fn for_own_thread(engine: &Arc<Engine>, inode: &Arc<Inode>) -> Option<Self> {
        let core = inode.core();
        if core.links == 0 && inode.references.load(Ordering::Acquire) == 0 {
            return None;
        }
        inode.references.fetch_add(1, Ordering::Relaxed);
        Some(Self { engine: Use::own_thread(engine), inode: Arc::clone(inode) })
    }

    /// The inode number.
    #[must_use]
    pub fn ino(&self) -> InodeNo {
        self.inode.ino()
    }

    /// Whether this is the only reference, as long as the inode's core is locked.
    fn is_only(&self) -> bool {
        self.inode.references.load(Ordering::Acquire) == 1
    }

    /// Whether nobody else may be writing the file, as [`is_only`](Self::is_only).
    fn is_idle(&self) -> bool {
        self.is_only() || planted(Fault::AheadUnheld)
    }

    /// What kind of inode this is.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.inode.file_type()
    }
}

impl Engine {
    /// A reference to inode `ino`, which the caller keeps from being deleted.
    pub(crate) fn node(self: &Arc<Self>, ino: InodeNo) -> Result<Node> {
        Ok(Node::new(self, self.inode(ino)?))
    }
}

impl Clone for Node {
    fn clone(&self) -> Self {
        // Relaxed, as for `new`.
        self.inode.references.fetch_add(1, Ordering::Relaxed);
        Self { engine: self.engine.clone(), inode: Arc::clone(&self.inode) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Under the lock, so that of the drops of an inode one alone sees the last reference gone and no link
        // left: links only go while somebody holds a reference. Between the two looks another thread could
        // otherwise take a reference, unlink the inode and delete it first.
        let (last, deleted) = {
            let mut core = self.inode.core();
            if self.inode.behind() == Behind::Ahead && core.links > 0 && self.is_idle() {
                // While this reference still keeps the inode.
                drop(core);
                self.engine.return_ahead_of_unused(&self.inode);
                core = self.inode.core();
            }
            // AcqRel: whoever sees zero sees all that was done through the other references.
            let last = self.inode.references.fetch_sub(1, Ordering::AcqRel) == 1;
            (last, last && core.links == 0)
        };
        if last {
            if self.inode.file_type() == FileType::Regular {
                // The map may have grown.
                self.inode.recharge();
            }
            self.engine.allocator.close_windows(&self.inode.windows, 0);
        }
        if deleted {
            // Nobody can be told here; the orphan list keeps the inode for the next open, and an error of
            // the device has stopped the volume.
            if let Err(error) = self.engine.delete_inode(&self.inode) {
                tracing::warn!("deleting inode {}: {error}", self.inode.ino());
            }
        }
    }
}
