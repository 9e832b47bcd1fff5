//! The charges of inodes to quotas.

use parext4_format::InodeNo;
use parext4_format::inode::{Inode as RawInode, InodeFlags};

use super::Engine;
use crate::credentials::Credentials;
use crate::error::Result;
use crate::quota::{Charges, Dquots, QuotaIds, ReservedQuota};

impl Engine {
    /// Returns the charges of an inode with these fields; `None` if the volume has no quotas or
    /// does not count the inode.
    pub(crate) fn charges_of(&self, ino: InodeNo, raw: &RawInode) -> Result<Option<Charges>> {
        let is_counted = || self.superblock().is_counted(ino) && !raw.flags.contains(InodeFlags::EA_INODE);
        Ok(match &self.quotas {
            Some(_) if is_counted() => Some(Charges::new(self.dquots(QuotaIds::of(raw))?)),
            _ => None,
        })
    }

    /// Reserves an inode of the quotas of the ids of a new inode, for its creation.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded).
    pub(crate) fn reserve_new_inode(
        &self,
        raw: &RawInode,
        credentials: Credentials,
    ) -> Result<ReservedQuota> {
        ReservedQuota::new(self.dquots(QuotaIds::of(raw))?.iter().flatten(), 0, 1, credentials)
    }

    /// Returns the entries of `ids` in the quota files.
    fn dquots(&self, ids: QuotaIds) -> Result<Dquots> {
        match &self.quotas {
            Some(quotas) => quotas.dquots(ids, self.cache()),
            None => Ok(Dquots::default()),
        }
    }
}
