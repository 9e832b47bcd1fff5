//! Quotas in memory: the usage and the limits of users, groups and projects, and the charges of
//! inodes to them.
//!
//! This module counts usage, enforces limits, and encodes entries of quota files at commit. Other
//! modules find and add entries in the files. Invariant: at commit, the usage of an id is the sum
//! over the counted inodes that have it, if that was true when the volume was opened. So each
//! charge is made under the handle that changes the inode.

mod charges;
mod dquot;
mod rules;
mod table;

pub(crate) use charges::{Charges, ReservedQuota};
pub(crate) use dquot::{Amount, Dquot};
pub(crate) use table::{EntryLocation, QuotaTable};

use parext4_format::inode::Inode as RawInode;
use parext4_format::quota::QuotaKind;

use crate::error::Result;
use crate::meta::MetaCache;
use crate::sync::Arc;

/// Number of blocks that the charges of one handle may register: an entry of each kind for each of
/// three inodes. A change of owner charges one inode to two ids of each kind.
pub(crate) const QUOTA_CREDITS: u32 = 9;

/// A user, a group and a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuotaIds(pub [u32; 3]);

impl QuotaIds {
    /// Returns the ids of an inode.
    pub(crate) fn of(inode: &RawInode) -> Self {
        Self([inode.uid, inode.gid, inode.projid])
    }
}

/// The entries of a user, a group and a project; `None` for a kind that the volume does not count,
/// and for an entry that its file lacks although inodes have the id, which only e2fsck repairs.
pub(crate) type Dquots = [Option<Arc<Dquot>>; 3];

/// The new entries to which an inode is to be charged, for each kind that changes.
#[derive(Debug, Default)]
pub(crate) struct NewDquots(pub Vec<(QuotaKind, Option<Arc<Dquot>>)>);

/// The quota files of a volume.
#[derive(Debug)]
pub(crate) struct Quotas {
    tables: [Option<QuotaTable>; 3],
}

impl Quotas {
    pub(crate) fn new(tables: [Option<QuotaTable>; 3]) -> Self {
        Self { tables }
    }

    /// Returns the file of a kind, if the volume has one.
    pub(crate) fn table(&self, kind: QuotaKind) -> Option<&QuotaTable> {
        self.tables[kind as usize].as_ref()
    }

    /// Returns the reserved amount of all ids.
    pub(crate) fn reserved(&self) -> Amount {
        self.tables.iter().flatten().map(QuotaTable::reserved).sum()
    }

    /// Returns the existing entries of `ids`.
    ///
    /// # Errors
    /// A failed read; corruption.
    pub(crate) fn dquots(&self, ids: QuotaIds, cache: &MetaCache) -> Result<Dquots> {
        let mut dquots = Dquots::default();
        for (dquot, (table, id)) in dquots.iter_mut().zip(self.tables.iter().zip(ids.0)) {
            if let Some(table) = table {
                *dquot = table.dquot(id, cache)?;
            }
        }
        Ok(dquots)
    }
}
