//! A journal handle: the part of the running transaction that belongs to one operation.
//!
//! It registers the blocks that the operation changes and lists the blocks that it frees. It does
//! not encode or write anything: the commit does. Invariant: everything that is changed under one
//! handle becomes durable in one transaction.

use std::cell::Cell;

use parext4_format::FsBlock;

use super::Journal;
use super::gate::Permit;
use super::transaction::{Freed, Participant};
use crate::meta::MetaBlock;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::sync::{Held, Rank, hold};

/// The right to change metadata in the running transaction.
///
/// The caller must not wait for a range, a directory lock or data I/O while it holds a handle (I6).
#[derive(Debug)]
#[must_use]
pub(crate) struct Handle<'a> {
    journal: &'a Journal,
    /// Membership in the running transaction, and the blocks that this handle may still register.
    permit: Permit<'a>,
    /// True once this handle has registered a block.
    changed: Cell<bool>,
    _held: Held,
}

impl<'a> Handle<'a> {
    pub(super) fn new(journal: &'a Journal, permit: Permit<'a>) -> Self {
        Self { journal, permit, changed: Cell::new(false), _held: hold(Rank::Handle) }
    }

    /// Returns true if this handle has registered a block. An operation that then fails leaves the
    /// transaction inconsistent, unless it has undone its changes.
    pub(crate) fn has_changes(&self) -> bool {
        self.changed.get()
    }

    /// Returns the number of the transaction that will carry this handle's changes.
    pub(crate) fn tid(&self) -> u64 {
        self.permit.tid()
    }

    /// Acquires credits until the handle has at least `credits`. Does not block on a commit.
    /// Returns false if the transaction has too few left; the caller must then do the rest of its
    /// work under a new handle.
    pub(crate) fn ensure(&self, credits: u32) -> bool {
        self.permit.ensure(credits.saturating_add(self.journal.spare()))
    }

    /// Returns true if the transaction has its limit of participants. Changes that can wait should
    /// join the next one.
    pub(crate) fn is_crowded(&self) -> bool {
        self.journal.running.is_crowded()
    }

    /// Adds `block` to the transaction. The caller calls it before the block's contents change.
    /// Uses one credit for a block that was not in the transaction.
    pub(crate) fn register(&self, block: &Arc<MetaBlock>) {
        self.changed.set(true);
        if block.register_in(self.tid()) {
            let reserved = self.permit.spend();
            debug_assert!(reserved, "a handle registered more blocks than it reserved");
            self.journal.running.add_block(block);
        }
    }

    /// Registers `block`, and changes its contents with `f`.
    pub(crate) fn change<R>(&self, block: &Arc<MetaBlock>, f: impl FnOnce(&mut [u8]) -> R) -> R {
        self.register(block);
        block.change(f)
    }

    /// Adds `participant` to the objects that are encoded when the transaction closes.
    pub(crate) fn join<P: Participant + 'static>(&self, participant: &Arc<P>) {
        // This load is relaxed and comes first, for the reasons given in `MetaBlock::register_in`.
        let (joined, tid) = (participant.joined(), self.tid());
        if joined.load(Ordering::Relaxed) != tid && joined.swap(tid, Ordering::Relaxed) != tid {
            self.journal.running.add_participant(Arc::clone(participant) as Arc<dyn Participant>);
        }
    }

    /// Frees blocks. The allocator gets them once the transaction is durable (I7).
    pub(crate) fn release_data(&self, start: FsBlock, len: u32) {
        self.journal.running.add_freed(Freed { start, len });
    }

    /// Revokes the logged copies of metadata blocks that are no longer in use, so that a replay
    /// does not overwrite the later contents of these blocks.
    pub(crate) fn revoke(&self, start: FsBlock, len: u32) {
        for nth in 0..u64::from(len) {
            let block = start + nth;
            self.journal.cache().forget(block);
            let revoked = self.journal.running.add_revoked(block);
            if revoked % self.journal.revokes_per_block() == 1 {
                // The revoke list grows by one block of the log.
                self.permit.spend();
            }
        }
    }
}
