//! The charges of one inode to its user, group and project.
//!
//! This module charges each change of the inode's space to the ids that the inode has at that time.
//! Protocol: a thread changes the space and the usage of the ids with the lock held shared, and the
//! ids with the lock held exclusively (H37).

use super::dquot::{Amount, Dquot};
use super::{Dquots, NewDquots};
use crate::credentials::Credentials;
use crate::error::Result;
use crate::fault::{Fault, guarded, when_planted};
use crate::journal::Handle;
use crate::sync::atomic::{AtomicI64, Ordering};
use crate::sync::{Arc, Rank, ReadGuard, RwLock};

/// The entries to which an inode is charged.
#[derive(Debug)]
pub(crate) struct Charges {
    dquots: RwLock<Dquots>,
    /// Space reserved for dirty pages, and for blocks that writes have claimed, in bytes.
    delayed: AtomicI64,
}

/// The entries of an inode, locked against a change of its owner.
#[must_use]
pub(crate) struct LockedCharges<'a> {
    dquots: ReadGuard<'a, Dquots>,
    delayed: &'a AtomicI64,
}

impl LockedCharges<'_> {
    /// Adds space in bytes and inodes to the usage. Registers up to three blocks.
    pub(crate) fn charge(&self, handle: &Handle<'_>, space: i64, inodes: i64) {
        let amount = Amount { space, inodes };
        self.dquots.iter().flatten().for_each(|dquot| dquot.charge(handle, amount));
    }

    /// Adds space in bytes to the usage that [`delay`](Charges::delay) has reserved. Registers up
    /// to three blocks.
    pub(crate) fn charge_delayed(&self, handle: &Handle<'_>, space: i64) {
        self.dquots.iter().flatten().for_each(|dquot| dquot.charge_reserved(handle, space));
        // Relaxed suffices: a transfer excludes this thread.
        self.delayed.fetch_sub(space, Ordering::Relaxed);
    }
}

/// Space and inodes reserved for a change. Dropping it ends the reservation, after the change was
/// charged or has failed.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct ReservedQuota {
    dquots: Vec<Arc<Dquot>>,
    amount: Amount,
}

impl ReservedQuota {
    /// Reserves space in bytes and inodes of all `dquots`.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded), with nothing reserved.
    pub(crate) fn new<'a>(
        dquots: impl IntoIterator<Item = &'a Arc<Dquot>>,
        space: u64,
        inodes: u64,
        credentials: Credentials,
    ) -> Result<Self> {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let mut reserved =
            Self { dquots: Vec::new(), amount: Amount { space: signed(space), inodes: signed(inodes) } };
        for dquot in dquots {
            dquot.reserve(reserved.amount, credentials)?;
            reserved.dquots.push(Arc::clone(dquot));
        }
        Ok(reserved)
    }
}

impl Drop for ReservedQuota {
    fn drop(&mut self) {
        self.dquots.iter().for_each(|dquot| dquot.release(self.amount));
    }
}

impl Charges {
    pub(crate) fn new(dquots: Dquots) -> Self {
        Self { dquots: RwLock::new(Rank::Charges, dquots), delayed: AtomicI64::new(0) }
    }

    /// Locks the ids shared, for a change of the inode's space under a handle.
    pub(crate) fn lock(&self) -> LockedCharges<'_> {
        LockedCharges { dquots: self.dquots.read(), delayed: &self.delayed }
    }

    /// Reserves space in bytes and inodes for a change.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded), with nothing reserved.
    pub(crate) fn reserve(&self, space: u64, inodes: u64, credentials: Credentials) -> Result<ReservedQuota> {
        ReservedQuota::new(self.dquots.read().iter().flatten(), space, inodes, credentials)
    }

    /// Reserves space in bytes for dirty pages, or for blocks that a write claims.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded), with nothing reserved.
    pub(crate) fn delay(&self, space: u64, credentials: Credentials) -> Result<()> {
        let dquots = self.dquots.read();
        let reserved = ReservedQuota::new(dquots.iter().flatten(), space, 0, credentials)?;
        self.change_delayed(&dquots, reserved.amount.space);
        Ok(())
    }

    /// Ends the reservation of space for pages that are no longer dirty, or whose blocks are about
    /// to be allocated.
    pub(crate) fn undelay(&self, space: u64) {
        self.change_delayed(&self.dquots.read(), -i64::try_from(space).unwrap_or(0));
    }

    /// Reserves space again that [`undelay`](Self::undelay) has released. Ignores limits.
    pub(crate) fn delay_again(&self, space: u64) {
        self.change_delayed(&self.dquots.read(), i64::try_from(space).unwrap_or(0));
    }

    fn change_delayed(&self, dquots: &Dquots, space: i64) {
        dquots.iter().flatten().for_each(|dquot| dquot.add_reserved(Amount { space, inodes: 0 }));
        // Relaxed suffices: a transfer excludes this thread.
        self.delayed.fetch_add(space, Ordering::Relaxed);
    }

    /// Moves the usage of the inode to other ids: `inodes`, and the space in bytes that `space`
    /// returns. Does nothing for an id that the inode has already. Registers up to six blocks.
    pub(crate) fn transfer(
        &self,
        handle: &Handle<'_>,
        new: &NewDquots,
        space: impl Fn() -> u64,
        inodes: u64,
    ) {
        let early = guarded!(Fault::TransferUnlocked, None, Some(space()));
        // This is long enough for another thread to charge the inode.
        when_planted!(Fault::TransferUnlocked, (0..50).for_each(|_| crate::sync::yield_now()));
        let mut dquots = self.dquots.write();
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let used = Amount { space: signed(early.unwrap_or_else(space)), inodes: signed(inodes) };
        let delayed = Amount { space: self.delayed.load(Ordering::Relaxed), inodes: 0 };
        for (kind, new) in &new.0 {
            let old = &mut dquots[*kind as usize];
            // To leave an entry and enter it again would end its grace, and let another thread
            // exceed its hard limit meanwhile.
            if old.as_ref().map(Arc::as_ptr) == new.as_ref().map(Arc::as_ptr) {
                continue;
            }
            if let Some(old) = old {
                old.charge(handle, Amount { space: -used.space, inodes: -used.inodes });
                old.release(delayed);
            }
            if let Some(new) = new {
                new.charge(handle, used);
                new.add_reserved(delayed);
            }
            old.clone_from(new);
        }
    }
}
