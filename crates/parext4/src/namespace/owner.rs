//! Changes of the user, the group or the project of an inode, and so of the quotas that count it.

use parext4_format::quota::QuotaKind;

use crate::error::Result;
use crate::inode_ref::InodeRef;
use crate::journal::Handle;
use crate::quota::{NewDquots, QuotaIds, ReservedQuota};
use crate::xattr::XattrsLock;

/// A change of owner, as far as quotas are concerned.
#[derive(Debug, Default)]
pub(crate) struct OwnerChange {
    dquots: NewDquots,
    /// Number of attributes whose values have inodes of their own, which count for the owner.
    values: u64,
    _reserved: ReservedQuota,
}

impl OwnerChange {
    /// Charges the inode to its new ids, under the handle that sets them. The caller has locked the
    /// inode's core, so that of several changes the last one sets both.
    pub(crate) fn apply(&self, handle: &Handle<'_>, node: &InodeRef) {
        node.inode.transfer_charges(handle, &self.dquots, self.values);
    }
}

impl InodeRef {
    /// Returns true if a change of owner needs the lock of the attributes, because values of
    /// attributes count for the owner.
    pub(crate) fn owns_values(&self) -> bool {
        self.engine.quotas().is_some()
    }

    /// Prepares a change to the `ids` that are given, in the order of [`QuotaKind::ALL`]. `xattrs`
    /// is locked if the inode [may own values](Self::owns_values), and `added_values` is by how
    /// many a change of the attributes in the same transaction changes the number of these. The
    /// caller holds no handle.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded),
    /// [`Error::NoSpace`](crate::Error::NoSpace); corruption; the errors of the device.
    pub(crate) fn prepare_owner(
        &self,
        ids: [Option<u32>; 3],
        xattrs: Option<&XattrsLock<'_>>,
        added_values: i64,
    ) -> Result<OwnerChange> {
        let Some(quotas) = self.engine.quotas() else { return Ok(OwnerChange::default()) };
        let values = match xattrs {
            Some(xattrs) if self.owns_values() => {
                xattrs.load()?.value_count().saturating_add_signed(added_values)
            }
            _ => 0,
        };
        let own = QuotaIds::of(&self.inode.core());
        let (mut dquots, mut entered) = (NewDquots::default(), Vec::new());
        for (kind, id) in QuotaKind::ALL.into_iter().zip(ids) {
            let (Some(table), Some(id)) = (quotas.table(kind), id) else { continue };
            self.engine.add_quota_entry(table, id)?;
            let dquot = table.dquot(id, self.engine.cache())?;
            if own.0[kind as usize] != id {
                entered.extend(dquot.clone());
            }
            dquots.0.push((kind, dquot));
        }
        let space = self.inode.sectors().saturating_mul(512);
        let reserved = ReservedQuota::new(&entered, space, 1 + values, self.engine.credentials())?;
        Ok(OwnerChange { dquots, values, _reserved: reserved })
    }
}
