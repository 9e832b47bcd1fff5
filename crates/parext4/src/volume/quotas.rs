//! Reports the quotas of a volume, and sets their limits.

use std::time::Duration;

use parext4_format::inode::InodeFlags;
use parext4_format::quota::QuotaKinds;
use parext4_format::quota::entry::QuotaEntry;
use parext4_format::quota::{QuotaHeader, QuotaKind};

use super::Volume;
use crate::convert::saturating_u32;
use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;
use crate::quota::QuotaTable;

/// The limits of a user, a group or a project. A limit of 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// The limit of space that is never exceeded, in bytes, which are rounded up to 1 KiB.
    pub space_hard: u64,
    /// The limit of space that may be exceeded for a time, in bytes, which are rounded up to 1 KiB.
    pub space_soft: u64,
    /// The limit of inodes that is never exceeded.
    pub inodes_hard: u64,
    /// The limit of inodes that may be exceeded for a time.
    pub inodes_soft: u64,
}

/// The usage and the limits of a user, a group or a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The number of the user, group or project.
    pub id: u32,
    /// Space in use, in bytes.
    pub space: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// The limits.
    pub limits: QuotaLimits,
    /// When the soft limit of space becomes a hard one, in seconds since 1970; `None` while it is
    /// not exceeded.
    pub space_until: Option<u64>,
    /// When the soft limit of inodes becomes a hard one, in seconds since 1970; `None` while it is
    /// not exceeded.
    pub inodes_until: Option<u64>,
}

/// The times for which soft limits may be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaGraces {
    /// The time for space.
    pub space: Duration,
    /// The time for inodes.
    pub inodes: Duration,
}

impl From<QuotaEntry> for Quota {
    fn from(entry: QuotaEntry) -> Self {
        let bytes = |kib: u64| kib.saturating_mul(1024);
        Self {
            id: entry.id,
            space: entry.space,
            inodes: entry.inodes,
            limits: QuotaLimits {
                space_hard: bytes(entry.space_hard),
                space_soft: bytes(entry.space_soft),
                inodes_hard: entry.inode_hard,
                inodes_soft: entry.inode_soft,
            },
            space_until: Some(entry.space_time).filter(|&time| time != 0),
            inodes_until: Some(entry.inode_time).filter(|&time| time != 0),
        }
    }
}

impl Volume {
    /// Returns the usage and the limits of all users, groups or projects that have an entry, by
    /// their numbers. `None` if the volume does not count by `kind`.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::QuotaKind;
    ///
    /// for user in volume.quotas(QuotaKind::User)?.unwrap_or_default() {
    ///     println!("user {}: {} bytes, {} inodes", user.id, user.space, user.inodes);
    /// }
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// Corruption of the quota file; a failed read.
    pub fn quotas(&self, kind: QuotaKind) -> Result<Option<Vec<Quota>>> {
        self.with_table(kind, |table| {
            let entry = |id| Ok(table.dquot(id, self.engine.cache())?.map(|dquot| dquot.entry().into()));
            table.ids().into_iter().filter_map(|id| entry(id).transpose()).collect()
        })
    }

    /// Returns the times for which soft limits may be exceeded. `None` if the volume does not count
    /// by `kind`.
    ///
    /// # Errors
    /// The errors of [`quotas`](Self::quotas).
    pub fn quota_graces(&self, kind: QuotaKind) -> Result<Option<QuotaGraces>> {
        self.with_table(kind, |table| {
            let QuotaHeader { space_grace, inode_grace, .. } = *table.lock_header();
            let time = |seconds: u32| Duration::from_secs(seconds.into());
            Ok(QuotaGraces { space: time(space_grace), inodes: time(inode_grace) })
        })
    }

    /// Sets the limits of a user, a group or a project. They are enforced while the volume is open
    /// with [`VolumeOptions::enforced_quotas`](crate::VolumeOptions::enforced_quotas).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the volume does not count by `kind`. [`Error::NoSpace`];
    /// corruption; the errors of the device.
    pub fn set_quota_limits(&self, kind: QuotaKind, id: u32, limits: &QuotaLimits) -> Result<()> {
        let table = self.table(kind)?;
        self.engine.add_quota_entry(table, id)?;
        let Some(dquot) = table.dquot(id, self.engine.cache())? else {
            return Err(Error::corrupt(format_args!(
                "quota file {}: the entry of id {id} is lost",
                table.ino()
            )));
        };
        let entry = QuotaEntry {
            space_hard: limits.space_hard.div_ceil(1024),
            space_soft: limits.space_soft.div_ceil(1024),
            inode_hard: limits.inodes_hard,
            inode_soft: limits.inodes_soft,
            ..dquot.entry()
        };
        // Every handle has credits for quotas.
        self.engine.transact(0, |handle| {
            dquot.set_limits(handle, &entry);
            Ok(())
        })
    }

    /// Sets the times for which soft limits may be exceeded, in whole seconds.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the volume does not count by `kind`. Corruption; the errors of the
    /// device.
    pub fn set_quota_graces(&self, kind: QuotaKind, graces: QuotaGraces) -> Result<()> {
        let seconds = |time: Duration| saturating_u32(time.as_secs());
        self.engine.set_quota_graces(self.table(kind)?, seconds(graces.space), seconds(graces.inodes))
    }

    /// Returns the quota of the project that the directory `node` passes on, if limits of projects
    /// are enforced: the kernel's statfs(2) shows its limits as the size of the file system.
    ///
    /// # Errors
    /// The errors of [`quotas`](Self::quotas).
    pub fn project_quota(&self, node: &InodeRef) -> Result<Option<Quota>> {
        let table = self.engine.quotas().and_then(|quotas| quotas.table(QuotaKind::Project));
        match table.filter(|table| table.is_enforced() && node.flags().contains(InodeFlags::PROJINHERIT)) {
            Some(table) => {
                Ok(table.dquot(node.project(), self.engine.cache())?.map(|dquot| dquot.entry().into()))
            }
            None => Ok(None),
        }
    }

    fn table(&self, kind: QuotaKind) -> Result<&QuotaTable> {
        self.engine.check_writable()?;
        let table = self.engine.quotas().and_then(|quotas| quotas.table(kind));
        table.ok_or_else(|| Error::Unsupported(format!("the volume has no quotas by {}", kind.name())))
    }

    /// Calls `with` for the file of a kind. A volume that is open read-only does not keep its files
    /// in memory.
    fn with_table<R>(
        &self,
        kind: QuotaKind,
        with: impl FnOnce(&QuotaTable) -> Result<R>,
    ) -> Result<Option<R>> {
        let read;
        let quotas = match self.engine.quotas() {
            Some(quotas) => Some(quotas),
            None => {
                read = self.engine.read_quotas(QuotaKinds::default())?;
                read.as_ref()
            }
        };
        quotas.and_then(|quotas| quotas.table(kind)).map(with).transpose()
    }
}
