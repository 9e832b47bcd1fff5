//! `InodeId`: names an inode by number, for callers that know many inodes and hold none.

use parext4_format::InodeNo;
use parext4_format::inode::Inode as RawInode;

use crate::engine::EngineRef;
use crate::error::{Error, Result};
use crate::fault::{Fault, when_planted};
use crate::inode_ref::InodeRef;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, yield_now};

/// An inode by number. It stays valid until the inode is deleted, and takes no memory of the
/// volume.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// let ids = [volume.create_dir("/a", 0o755)?.id(), volume.create_dir("/b", 0o755)?.id()];
/// assert_eq!(volume.inode_ref(ids[1])?.ino(), volume.metadata("/b")?.ino);
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InodeId {
    /// The inode number.
    pub ino: InodeNo,
    /// The generation, which differs if the number was allocated again.
    pub generation: u32,
}

impl InodeRef {
    /// Returns the name under which [`Volume::inode_ref`](crate::Volume::inode_ref) finds the
    /// inode.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let id = volume.create_dir("/dir", 0o755)?.id();
    /// volume.rename("/dir", "/elsewhere")?;
    /// assert_eq!(volume.inode_ref(id)?.ino(), volume.metadata("/elsewhere")?.ino);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> InodeId {
        InodeId { ino: self.ino(), generation: self.inode.core().generation }
    }
}

impl EngineRef {
    /// Returns the inode of a number. `None` if no inode has it, if it is one of the file system's
    /// own, if the inode is being deleted, or if it is not `wanted`.
    pub(crate) fn inode_by_number(
        &self,
        ino: InodeNo,
        wanted: impl FnOnce(&RawInode) -> bool,
    ) -> Result<Option<InodeRef>> {
        let own = self.superblock().is_own_inode(ino);
        if own || ino.get() == 0 || ino.get() > self.superblock().inodes_count() {
            return Ok(None);
        }
        let unused = || Error::NotFound(format!("inode {ino} is not in use"));
        let loaded = self.inodes().get(ino, || {
            // The table may still hold the old contents of an inode that is not in use.
            if self.allocator().inode_in_use(ino)? {
                // Long enough for another thread to create, commit and delete an inode.
                when_planted!(Fault::InsertUnmarked, (0..5000).for_each(|_| yield_now()));
                self.load_made(ino)?.ok_or_else(unused)
            } else {
                Err(unused())
            }
        });
        let inode = match loaded {
            Ok(inode) => inode,
            Err(Error::NotFound(_)) => return Ok(None),
            Err(error) => return Err(self.health().note(ino, error)),
        };
        let core = inode.core();
        // Checked under the inode's lock, as in the drop of a `InodeRef`: an inode without names
        // and users is being deleted.
        let alive = core.links > 0 || inode.references.load(Ordering::Acquire) > 0;
        if !alive || inode.has_value() || !wanted(&core) {
            return Ok(None);
        }
        let node = InodeRef::new(self, Arc::clone(&inode));
        drop(core);
        Ok(Some(node))
    }
}
