//! A handle: one operation's share in the running transaction.

use std::cell::Cell;

use parext4_format::FsBlock;

use super::Journal;
use super::gate::Pass;
use super::transaction::{Freed, Participant};
use crate::lock_order::{Held, Rank, hold};
use crate::meta::MetaBlock;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// The right to change metadata in the running transaction. All that is changed under one handle becomes
/// durable together.
///
/// A handle must not be held while waiting for a range, a directory or data I/O (I6).
#[derive(Debug)]
#[must_use]
pub(crate) struct Handle<'a> {
    journal: &'a Journal,
    /// The place in the running transaction, and the blocks this handle may still add to it.
    pass: Pass<'a>,
    /// Whether anything was changed under this handle.
    changed: Cell<bool>,
    _held: Held,
}

impl<'a> Handle<'a> {
    pub(super) fn new(journal: &'a Journal, pass: Pass<'a>) -> Self {
        Self { journal, pass, changed: Cell::new(false), _held: hold(Rank::Handle) }
    }

    /// Whether anything was changed under this handle. An error after that leaves the transaction half-way,
    /// unless the operation has undone its changes.
    pub(crate) fn has_changes(&self) -> bool {
        self.changed.get()
    }

    /// The transaction that will carry this handle's changes.
    pub(crate) fn tid(&self) -> u64 {
        self.pass.tid()
    }

    /// Makes sure that at least `credits` are left, from what the transaction has free. Never waits; `false`
    /// means that the rest of the work belongs to a new handle.
    pub(crate) fn ensure(&self, credits: u32) -> bool {
        self.pass.ensure(credits)
    }

    /// Makes `block` part of the transaction, before its contents change.
    pub(crate) fn register(&self, block: &Arc<MetaBlock>) {
        self.changed.set(true);
        if block.register_in(self.tid()) {
            let reserved = self.pass.spend();
            debug_assert!(reserved, "a handle registered more blocks than it reserved");
            self.journal.running.add_block(block);
        }
    }

    /// Registers `block` and changes its contents.
    pub(crate) fn change<R>(&self, block: &Arc<MetaBlock>, f: impl FnOnce(&mut [u8]) -> R) -> R {
        self.register(block);
        block.change(f)
    }

    /// Has `participant` encode itself when the transaction closes.
    pub(crate) fn join<P: Participant + 'static>(&self, participant: &Arc<P>) {
        // Relaxed, as in `MetaBlock::register_in`, and looked at first for the same reason.
        let (joined, tid) = (participant.joined(), self.tid());
        if joined.load(Ordering::Relaxed) != tid && joined.swap(tid, Ordering::Relaxed) != tid {
            self.journal.running.add_participant(Arc::clone(participant) as Arc<dyn Participant>);
        }
    }

    /// Gives data blocks back; the allocator gets them when the transaction is durable (I7).
    pub(crate) fn release_data(&self, start: FsBlock, len: u32) {
        self.journal.running.add_freed(Freed { start, len });
    }

    /// Gives a metadata block back and revokes what older transactions logged of it, so that a replay
    /// does not write over its next use.
    pub(crate) fn release_metadata(&self, block: FsBlock) {
        self.journal.cache().forget(block);
        let revoked = self.journal.running.add_revoked(block);
        if revoked % self.journal.revokes_per_block() == 1 {
            // One more block of the log.
            self.pass.spend();
        }
        self.journal.running.add_freed(Freed { start: block, len: 1 });
    }
}
