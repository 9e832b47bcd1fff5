//! The rules that all entries of one quota file share.

use parext4_format::quota::{QuotaHeader, QuotaKind};

use crate::clock::Clock;
use crate::sync::atomic::{AtomicU32, Ordering};

/// The rules that all entries of a file share.
#[derive(Debug)]
pub(super) struct Rules {
    pub kind: QuotaKind,
    /// True if limits are enforced.
    pub enforced: bool,
    pub clock: Clock,
    space_grace: AtomicU32,
    inode_grace: AtomicU32,
}

impl Rules {
    pub(super) fn new(kind: QuotaKind, enforced: bool, clock: Clock) -> Self {
        Self { kind, enforced, clock, space_grace: AtomicU32::new(0), inode_grace: AtomicU32::new(0) }
    }

    /// Sets the times for which soft limits may be exceeded.
    pub(super) fn note_graces(&self, header: &QuotaHeader) {
        self.space_grace.store(header.space_grace, Ordering::Relaxed);
        self.inode_grace.store(header.inode_grace, Ordering::Relaxed);
    }

    /// Returns the times for which the soft limits of space and of inodes may be exceeded, in
    /// seconds.
    pub(super) fn graces(&self) -> (u32, u32) {
        // Relaxed suffices: they are rarely set, and a change may take effect at any later time.
        (self.space_grace.load(Ordering::Relaxed), self.inode_grace.load(Ordering::Relaxed))
    }
}
