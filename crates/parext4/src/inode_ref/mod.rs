//! `InodeRef`: a counted reference to an inode.
//!
//! Responsible for the life of inodes in use: referring to and deleting them. Not responsible for
//! names and data. Invariant: dropping the last `InodeRef` of an inode without names deletes the
//! inode, exactly once.

mod blocks;
mod delete;
mod discard;
mod flags;
mod hold;
mod id;
mod sync;
mod units;
mod value;

use parext4_format::inode::FileType;
use parext4_format::{FileBlock, InodeNo};

pub(crate) use hold::{HeldPages, Hold};
pub use id::InodeId;
pub(crate) use units::Units;

use delete::delete_unused;

use crate::credentials::Credentials;
use crate::engine::{Engine, EngineRef};
use crate::error::Result;
use crate::fault::{Fault, guarded};
use crate::inode::Inode;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// A file, directory, symbolic link or other inode of an open [`Volume`](crate::Volume).
///
/// An inode without names exists until its last `InodeRef` is dropped.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// # let root = volume.root()?;
/// use parext4::NewInode;
///
/// let dir = root.mkdir(b"dir", &NewInode::new().permissions(0o755))?;
/// // The handle keeps the directory, whatever it is called.
/// volume.rename("/dir", "/elsewhere")?;
/// dir.symlink(b"up", b"..", &NewInode::new())?;
/// assert!(volume.exists("/elsewhere/up")?);
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Debug)]
pub struct InodeRef {
    pub(crate) engine: EngineRef,
    pub(crate) inode: Arc<Inode>,
}

impl InodeRef {
    /// Creates a reference with the credentials of `engine`. The caller prevents a concurrent
    /// deletion: it holds the lock of a directory that names the inode, or another `InodeRef`.
    pub(crate) fn new(engine: &EngineRef, inode: Arc<Inode>) -> Self {
        Self::counted(engine.clone(), inode)
    }

    /// Counts a new reference. The caller has another one, or the lock of a directory or of the
    /// inode's core.
    fn counted(engine: EngineRef, inode: Arc<Inode>) -> Self {
        if engine.departs() {
            inode.departing.fetch_add(1, Ordering::Relaxed);
        }
        // Relaxed suffices, as for `Arc`: a new reference is created from an existing one or under
        // the lock.
        inode.references.fetch_add(1, Ordering::Relaxed);
        Self { engine, inode }
    }

    /// Like [`new`](Self::new), for a background thread of the volume. Returns `None` if the inode
    /// is being deleted: it has neither names nor users.
    pub(crate) fn for_own_thread(engine: &Arc<Engine>, inode: &Arc<Inode>) -> Option<Self> {
        let core = inode.core();
        if core.links == 0 && inode.references.load(Ordering::Acquire) == 0 {
            return None;
        }
        Some(Self::counted(EngineRef::own_thread(engine), Arc::clone(inode)))
    }

    /// Implements [`ServerInode::departing`](crate::server::ServerInode::departing).
    #[must_use]
    pub(crate) fn departing(mut self) -> Self {
        if !self.engine.departs() {
            self.engine.set_departs();
            self.inode.departing.fetch_add(1, Ordering::Release);
        }
        self
    }

    /// Returns this reference, to act on behalf of a caller with `credentials`.
    #[must_use]
    pub fn with_credentials(mut self, credentials: Credentials) -> Self {
        self.engine.set_credentials(credentials);
        self
    }

    /// Returns the inode number.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// assert_eq!(volume.root()?.ino().get(), 2);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn ino(&self) -> InodeNo {
        self.inode.ino()
    }

    /// Returns true if this is the only reference. Stays true while the inode's core is locked.
    fn is_only(&self) -> bool {
        self.inode.references.load(Ordering::Acquire) == 1
    }

    /// Returns true if no other thread can be writing to the file; see [`is_only`](Self::is_only).
    fn is_idle(&self) -> bool {
        guarded!(Fault::PreallocationFreedInUse, self.is_only(), true)
    }

    /// Returns the type of the inode.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::FileType;
    ///
    /// assert_eq!(volume.root()?.file_type(), FileType::Directory);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.inode.file_type()
    }
}

impl EngineRef {
    /// Returns a reference to inode `ino`. The caller prevents a concurrent deletion.
    pub(crate) fn inode_ref(&self, ino: InodeNo) -> Result<InodeRef> {
        Ok(InodeRef::new(self, self.inode(ino)?))
    }
}

impl Clone for InodeRef {
    fn clone(&self) -> Self {
        Self::counted(self.engine.clone(), Arc::clone(&self.inode))
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        // Under the lock, so that exactly one drop finds both no reference and no link left: links
        // are removed only by a holder of a reference. Otherwise another thread could, between the
        // two checks, create a reference, unlink the inode and delete it first.
        let (last, deleted) = {
            let mut core = self.inode.core();
            if self.inode.has_spare_blocks() && core.links > 0 && self.is_idle() {
                // This reference still keeps the inode.
                drop(core);
                self.engine.free_preallocated_of_unused(&self.inode);
                core = self.inode.core();
            }
            // AcqRel: the thread that reads zero sees everything done through the other references.
            let last = self.inode.references.fetch_sub(1, Ordering::AcqRel) == 1;
            if self.engine.departs() {
                self.inode.departing.fetch_sub(1, Ordering::AcqRel);
            }
            if core.links == 0 && self.inode.has_only_departing_references() {
                self.inode.stays.store(false, Ordering::Relaxed);
            }
            (last, last && core.links == 0)
        };
        if last {
            if self.inode.file_type() == FileType::Regular {
                // The map may have grown.
                self.inode.recharge();
            }
            self.engine.allocator().close_windows(&self.inode.windows, FileBlock::ZERO);
        }
        if deleted && !self.engine.deletions().defer(&self.engine, &self.inode, delete_unused) {
            delete_unused(&self.engine, &self.inode);
        }
    }
}
