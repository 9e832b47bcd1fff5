//! Projects of inodes, which directories with the flag `PROJINHERIT` pass on.

use parext4_format::features::RoCompat;
use parext4_format::inode::InodeFlags;

use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;

/// The size of the extra fields of an inode that include `i_projid`.
const EXTRA_PROJID: u16 = 32;

impl InodeRef {
    /// Returns the project; 0 if the inode has none.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// assert_eq!(volume.root()?.project(), 0);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn project(&self) -> u32 {
        self.inode.core().projid
    }

    /// Sets the project. The space and the inode count for it from now on. New inodes inherit the
    /// project of a directory with the flag [`PROJINHERIT`](InodeFlags::PROJINHERIT).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the volume lacks the feature `project`, or the inode has no room
    /// for the project. [`Error::QuotaExceeded`]; the errors of
    /// [`set_attributes`](Self::set_attributes).
    pub fn set_project(&self, project: u32) -> Result<()> {
        if self.project() == project {
            return Ok(());
        }
        let unsupported = |why: &str| Err(Error::Unsupported(format!("setting the project: {why}")));
        if !self.engine.superblock().ro_compat().contains(RoCompat::PROJECT) {
            return unsupported("the volume does not have the feature");
        }
        self.make_room_for_fields();
        if self.inode.core().extra_isize < EXTRA_PROJID {
            return unsupported("the inode has no room for it");
        }
        self.inode.check_flags(InodeFlags::IMMUTABLE)?;
        let xattrs = self.owns_values().then(|| self.lock_xattrs());
        let owner = self.prepare_owner([None, None, Some(project)], xattrs.as_ref(), 0)?;
        // One credit, for the inode's block.
        self.engine.transact(1, |handle| {
            self.inode.join(handle);
            let mut core = self.inode.core_with_times();
            owner.apply(handle, self);
            core.projid = project;
            core.ctime = self.inode.now();
            Ok(())
        })
    }

    /// Returns true if new inodes of this directory get its project.
    pub(super) fn inherits_project(&self) -> bool {
        self.inode.flags().contains(InodeFlags::PROJINHERIT)
            && self.engine.superblock().ro_compat().contains(RoCompat::PROJECT)
    }

    /// Returns [`Error::OtherProject`] if this directory accepts only names of inodes of its
    /// project, and `target` has another one.
    pub(super) fn check_project(&self, target: &Self) -> Result<()> {
        if self.inherits_project() && self.project() != target.project() {
            return Err(Error::OtherProject(format!("inode {}", target.ino())));
        }
        Ok(())
    }
}
