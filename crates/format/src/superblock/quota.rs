//! The inodes of quota files, the inodes that they count, and the inodes of the file system itself.

use super::Superblock;
use crate::features::{Compat, RoCompat};
use crate::number::InodeNo;
use crate::quota::QuotaKind;
use crate::{FormatError, Result};

impl Superblock {
    /// Returns the inode of the quota file of `kind`, if the volume has one.
    ///
    /// # Errors
    /// If the superblock names an inode that cannot be that file.
    pub fn quota_inode(&self, kind: QuotaKind) -> Result<Option<InodeNo>> {
        let (ino, field, feature) = match kind {
            QuotaKind::User => (self.raw.s_usr_quota_inum, "s_usr_quota_inum", RoCompat::QUOTA),
            QuotaKind::Group => (self.raw.s_grp_quota_inum, "s_grp_quota_inum", RoCompat::QUOTA),
            QuotaKind::Project => {
                (self.raw.s_prj_quota_inum, "s_prj_quota_inum", RoCompat::QUOTA.union(RoCompat::PROJECT))
            }
        };
        let ino = ino.get();
        if ino == 0 || !self.ro_compat().contains(feature) {
            return Ok(None);
        }
        let is_usual = match kind {
            QuotaKind::User => InodeNo(ino) == InodeNo::USER_QUOTA,
            QuotaKind::Group => InodeNo(ino) == InodeNo::GROUP_QUOTA,
            QuotaKind::Project => ino >= self.first_inode() && ino <= self.inodes_count(),
        };
        if !is_usual {
            return Err(FormatError::new("superblock", field, format_args!("is inode {ino}")));
        }
        Ok(Some(InodeNo(ino)))
    }

    /// Sets the inode of the quota file of `kind`.
    pub fn set_quota_inode(&mut self, kind: QuotaKind, ino: InodeNo) {
        let field = match kind {
            QuotaKind::User => &mut self.raw.s_usr_quota_inum,
            QuotaKind::Group => &mut self.raw.s_grp_quota_inum,
            QuotaKind::Project => &mut self.raw.s_prj_quota_inum,
        };
        field.set(ino.get());
    }

    /// Returns true if quota files count inode `ino`: it is not one of the file system's own. The
    /// caller excludes inodes of attribute values, which are counted with the inodes that have the
    /// attribute.
    #[must_use]
    pub fn is_counted(&self, ino: InodeNo) -> bool {
        !self.is_own_inode(ino)
    }

    /// Returns true if inode `ino` is one of the file system's own, which no directory entry names:
    /// an inode with a reserved number other than the root directory, the orphan file, or the quota
    /// file of projects.
    #[must_use]
    pub fn is_own_inode(&self, ino: InodeNo) -> bool {
        (ino.get() < self.first_inode() && ino != InodeNo::ROOT) || self.own_files().any(|own| own == ino)
    }

    /// Returns the own inodes of the file system that have no reserved number: the quota file of
    /// projects, and the orphan file.
    pub fn own_files(&self) -> impl Iterator<Item = InodeNo> {
        let has_quotas = self.ro_compat().intersects(RoCompat::QUOTA.union(RoCompat::PROJECT));
        let projects = has_quotas.then(|| self.raw.s_prj_quota_inum.get());
        let orphans = self.compat().contains(Compat::ORPHAN_FILE).then(|| self.orphan_file_inode());
        projects.into_iter().chain(orphans).filter(|&ino| ino != 0).map(InodeNo)
    }
}
