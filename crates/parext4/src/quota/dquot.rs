//! The usage and the limits of one user, group or project.

use parext4_format::quota::QuotaKind;
use parext4_format::quota::entry::QuotaEntry;

use super::rules::Rules;
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded, when_planted};
use crate::journal::{Handle, Participant};
use crate::meta::MetaBlock;
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, Rank};

/// An amount of space in bytes, and of inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub space: i64,
    pub inodes: i64,
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |sum, amount| Self {
            space: sum.space + amount.space,
            inodes: sum.inodes + amount.inodes,
        })
    }
}

/// The entry of one id. The usage in memory is authoritative; it is encoded when a transaction that
/// changed it closes.
#[derive(Debug)]
pub(crate) struct Dquot {
    kind: QuotaKind,
    id: u32,
    /// The block that contains the entry, and the offset of the entry in it.
    block: Arc<MetaBlock>,
    offset: usize,
    space: AtomicI64,
    inodes: AtomicI64,
    /// Space of dirty pages that have no blocks, and of changes in progress.
    reserved_space: AtomicI64,
    reserved_inodes: AtomicI64,
    rules: Arc<Rules>,
    /// True if a limit is set and limits are enforced.
    is_limited: AtomicBool,
    /// The limits and the times. The usage in this entry is not current.
    limits: Mutex<QuotaEntry>,
    joined: AtomicU64,
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Returns a limit of space in bytes.
fn kib(limit: u64) -> u64 {
    limit.saturating_mul(1024)
}

/// Returns true if a soft limit is set and `used` is above it.
fn is_exceeded(used: i64, soft: u64) -> bool {
    soft != 0 && unsigned(used) > soft
}

/// Adds to a usage. The sum stays between 0 and `i64::MAX`, even if the quota file had wrong
/// numbers.
fn add_usage(used: &AtomicI64, more: i64) {
    let add = |used: i64| Some(used.saturating_add(more).max(0));
    // Relaxed suffices: `encode` reads these sums, and the commit orders it after the handle.
    let _ = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
}

impl Dquot {
    pub(super) fn new(rules: &Arc<Rules>, block: Arc<MetaBlock>, offset: usize, entry: &QuotaEntry) -> Self {
        let mut limits = *entry;
        // A reservation that kept the grace running may have ended since the entry was encoded.
        if !is_exceeded(signed(entry.space), kib(entry.space_soft)) {
            limits.space_time = 0;
        }
        if !is_exceeded(signed(entry.inodes), entry.inode_soft) {
            limits.inode_time = 0;
        }
        let dquot = Self {
            kind: rules.kind,
            id: entry.id,
            block,
            offset,
            space: AtomicI64::new(signed(entry.space)),
            inodes: AtomicI64::new(signed(entry.inodes)),
            reserved_space: AtomicI64::new(0),
            reserved_inodes: AtomicI64::new(0),
            rules: Arc::clone(rules),
            is_limited: AtomicBool::new(false),
            limits: Mutex::new(Rank::Leaf, limits),
            joined: AtomicU64::new(0),
        };
        dquot.note_limits(entry);
        dquot
    }

    fn note_limits(&self, entry: &QuotaEntry) {
        let any = entry.space_hard | entry.space_soft | entry.inode_hard | entry.inode_soft != 0;
        // Relaxed suffices: an operation that begins while a limit is being set may use either
        // value.
        self.is_limited.store(any && self.rules.enforced, Ordering::Relaxed);
    }

    /// Adds to the usage, under the handle that makes the change. Registers one block.
    pub(super) fn charge(self: &Arc<Self>, handle: &Handle<'_>, amount: Amount) {
        handle.register(&self.block);
        handle.join(self);
        add_usage(&self.space, amount.space);
        add_usage(&self.inodes, amount.inodes);
        self.update_graces();
    }

    /// Adds reserved space to the usage, under the handle that makes the change. Registers one
    /// block. The lock of the limits excludes new reservations, so that each of them counts the
    /// space once, as reserved or as used (H39).
    pub(super) fn charge_reserved(self: &Arc<Self>, handle: &Handle<'_>, space: i64) {
        handle.register(&self.block);
        handle.join(self);
        let lock = || self.is_limited.load(Ordering::Relaxed).then(|| self.limits.lock());
        let mut limits = guarded!(Fault::ChargeUnlocked, lock(), None);
        self.count_reserved(Amount { space: -space, inodes: 0 });
        when_planted!(Fault::ChargeUnlocked, (0..50).for_each(|_| crate::sync::yield_now()));
        add_usage(&self.space, space);
        if let Some(limits) = &mut limits {
            self.set_graces(limits, false);
        }
    }

    /// Ends the grace of each soft limit that is no longer exceeded, and begins the grace of each
    /// one that is exceeded now: the end of a reservation that is charged next may have ended that
    /// grace.
    fn update_graces(&self) {
        if self.is_limited.load(Ordering::Relaxed) {
            self.set_graces(&mut self.limits.lock(), false);
        }
    }

    /// Sets the ends of the graces. If `renew` is true, running graces begin again.
    fn set_graces(&self, limits: &mut QuotaEntry, renew: bool) {
        let (graces, Amount { space, inodes }) = (self.rules.graces(), self.taken());
        let set = |until: &mut u64, used: i64, soft: u64, grace: u32| {
            if !is_exceeded(used, soft) {
                *until = 0;
            } else if *until == 0 || renew {
                *until = unsigned(self.rules.clock.now().seconds) + u64::from(grace);
            }
        };
        set(&mut limits.space_time, space, kib(limits.space_soft), graces.0);
        set(&mut limits.inode_time, inodes, limits.inode_soft, graces.1);
    }

    /// Returns the reserved amount.
    pub(super) fn reserved(&self) -> Amount {
        let [space, inodes] =
            [&self.reserved_space, &self.reserved_inodes].map(|reserved| reserved.load(Ordering::Relaxed));
        Amount { space, inodes }
    }

    /// Returns the amount that the limits apply to: the usage and the reservations.
    fn taken(&self) -> Amount {
        let sum = |used: &AtomicI64, reserved: &AtomicI64| {
            used.load(Ordering::Relaxed).saturating_add(reserved.load(Ordering::Relaxed))
        };
        Amount {
            space: sum(&self.space, &self.reserved_space),
            inodes: sum(&self.inodes, &self.reserved_inodes),
        }
    }

    /// Reserves space and inodes for a change, if the limits permit it.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`], with nothing reserved.
    pub(super) fn reserve(&self, amount: Amount, credentials: Credentials) -> Result<()> {
        if !self.is_limited.load(Ordering::Relaxed) {
            self.count_reserved(amount);
            return Ok(());
        }
        let mut limits = self.limits.lock();
        let Amount { space, inodes } = self.taken();
        let now = unsigned(self.rules.clock.now().seconds);
        let (space_grace, inode_grace) = self.rules.graces();
        let mut space_limit = Limit {
            hard: kib(limits.space_hard),
            soft: kib(limits.space_soft),
            until: limits.space_time,
            grace: space_grace,
        };
        let mut inode_limit = Limit {
            hard: limits.inode_hard,
            soft: limits.inode_soft,
            until: limits.inode_time,
            grace: inode_grace,
        };
        let permitted =
            space_limit.permits(space, amount.space, now) & inode_limit.permits(inodes, amount.inodes, now);
        if !permitted && !credentials.exceeds_quotas() {
            return Err(Error::QuotaExceeded(format!("{} {}", self.kind.name(), self.id)));
        }
        (limits.space_time, limits.inode_time) = (space_limit.until, inode_limit.until);
        self.count_reserved(amount);
        Ok(())
    }

    /// Reserves an amount without regard to limits.
    pub(super) fn add_reserved(&self, amount: Amount) {
        self.count_reserved(amount);
        self.update_graces();
    }

    fn count_reserved(&self, amount: Amount) {
        // Relaxed suffices: a limit applies only to the sums.
        self.reserved_space.fetch_add(amount.space, Ordering::Relaxed);
        self.reserved_inodes.fetch_add(amount.inodes, Ordering::Relaxed);
    }

    /// Ends a reservation, and the grace of soft limits that are not exceeded without it.
    pub(super) fn release(&self, amount: Amount) {
        self.add_reserved(Amount { space: -amount.space, inodes: -amount.inodes });
    }

    /// Sets the limits of `entry`, under a handle. The grace of a soft limit that is exceeded
    /// begins again, as in the kernel (`do_set_dqblk`). Registers one block.
    pub(crate) fn set_limits(self: &Arc<Self>, handle: &Handle<'_>, entry: &QuotaEntry) {
        self.charge(handle, Amount::default());
        let mut limits = self.limits.lock();
        *limits = *entry;
        self.note_limits(entry);
        self.set_graces(&mut limits, true);
    }

    /// Returns the current entry.
    pub(crate) fn entry(&self) -> QuotaEntry {
        let limits = *self.limits.lock();
        let space = unsigned(self.space.load(Ordering::Relaxed));
        let inodes = unsigned(self.inodes.load(Ordering::Relaxed));
        QuotaEntry { id: self.id, space, inodes, ..limits }
    }
}

impl Participant for Dquot {
    fn encode(&self) -> Result<()> {
        let entry = self.entry();
        self.block.change(|bytes| entry.encode(&mut bytes[self.offset..]));
        Ok(())
    }

    fn joined(&self) -> &AtomicU64 {
        &self.joined
    }
}

/// A hard and a soft limit; 0 means no limit.
#[derive(Clone, Copy, Debug)]
struct Limit {
    hard: u64,
    soft: u64,
    /// The time at which the grace of the soft limit ends; 0 if it is not exceeded.
    until: u64,
    /// The time for which the soft limit may be exceeded, in seconds.
    grace: u32,
}

impl Limit {
    /// Returns true if `used` may grow by `more` (the rules of `dquot_add_space`). Begins the grace
    /// if this exceeds the soft limit for the first time.
    fn permits(&mut self, used: i64, more: i64, now: u64) -> bool {
        if more <= 0 {
            return true;
        }
        let total = unsigned(used.saturating_add(more));
        if self.hard != 0 && total > self.hard {
            return false;
        }
        if !is_exceeded(used.saturating_add(more), self.soft) {
            return true;
        }
        if self.until == 0 {
            self.until = now + u64::from(self.grace);
            return true;
        }
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_never_wraps() {
        let used = AtomicI64::new(i64::MAX - 1);
        add_usage(&used, 5);
        assert_eq!(used.load(Ordering::Relaxed), i64::MAX);
        add_usage(&used, -5);
        assert_eq!(used.load(Ordering::Relaxed), i64::MAX - 5);
        add_usage(&used, -i64::MAX);
        assert_eq!(used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn soft_limits_are_exceeded_for_a_time() {
        let mut limit = Limit { hard: 100, soft: 50, until: 0, grace: 10 };
        assert!(limit.permits(0, 50, 1000));
        assert_eq!(limit.until, 0);
        assert!(limit.permits(50, 1, 1000));
        assert_eq!(limit.until, 1010);
        assert!(limit.permits(51, 49, 1009));
        assert!(!limit.permits(51, 1, 1010), "the grace has ended");
        assert!(limit.permits(51, -1, 1010));
        assert!(!limit.permits(51, 50, 1009), "the hard limit");
        let mut none = Limit { hard: 0, soft: 0, until: 0, grace: 0 };
        assert!(none.permits(i64::MAX, i64::MAX, 1));
    }
}
