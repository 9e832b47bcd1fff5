//! The journal: handles, the running transaction, commit and checkpoint.
//!
//! One transaction runs and takes changes; at most one commits. A commit closes the running transaction
//! (waits for its handles, encodes, freezes) and opens the next before it does any I/O. Committed blocks
//! stay pending until a checkpoint writes them home, which goes on beside commits.
//!
//! A volume without a journal runs the same machinery; its commit writes the blocks home at once, with
//! no promise for a crash in between.

mod checkpoint;
mod commit_lock;
mod empty;
mod gate;
mod handle;
mod log;
mod pending;
mod replay;
mod tail;
mod thread;
mod transaction;

use parext4_device::Device;
use parext4_format::jbd2::JournalSuperblock;

pub use empty::EmptiedLog;
#[cfg(shuttle)]
pub use gate::{Entry, Gate, Pass};
pub(crate) use handle::Handle;
pub(crate) use log::{LogExtent, LogMap};
pub(crate) use replay::{newest_sequence, read_superblock, replay};
pub(crate) use transaction::{Freed, Participant};

use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::health::Health;
use crate::meta::MetaCache;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use checkpoint::Checkpoint;
use commit_lock::CommitLock;
#[cfg(not(shuttle))]
use gate::{Entry, Gate};
use log::Log;
use pending::LogSpan;
use tail::Tail;
use transaction::{Frozen, Transaction};

/// The most blocks of one transaction on a volume without a journal.
const MAX_UNLOGGED: u32 = 8192;

/// What the journal asks of the volume.
pub(crate) trait CommitHooks: Send + Sync + std::fmt::Debug {
    /// Adds what was left to ride along, such as timestamps, within the handle's credits.
    fn closing(&self, handle: &Handle<'_>);
    /// Blocks freed by a transaction that is durable now.
    fn released(&self, freed: &[Freed]);
}

/// The journal of an open volume.
#[derive(Debug)]
pub(crate) struct Journal {
    device: Arc<dyn Device>,
    cache: Arc<MetaCache>,
    health: Arc<Health>,
    block_size: u32,
    max_transaction: u32,
    hooks: Box<dyn CommitHooks>,
    /// Where handles enter the running transaction.
    gate: Gate,
    running: Transaction,
    /// The log, which only one committer at a time may write; `None` on a volume without a journal.
    log: CommitLock<Option<Log>>,
    checkpoint: Arc<Checkpoint>,
    /// The last transaction that is durable and whose freed blocks the allocator has. Written under the lock of `log`.
    committed: AtomicU64,
    first_tid: u64,
}

impl Journal {
    /// A journal over an empty log, or without a log; transactions count from `first_tid`.
    ///
    /// # Errors
    /// If the journal's superblock cannot be written.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        cache: Arc<MetaCache>,
        health: Arc<Health>,
        block_size: u32,
        log: Option<(LogMap, JournalSuperblock)>,
        first_tid: u64,
        hooks: Box<dyn CommitHooks>,
    ) -> Result<Self> {
        let (log, tail) = match log {
            Some((map, superblock)) => {
                let map = Arc::new(map);
                let log = Log::new(Arc::clone(&device), Arc::clone(&map), &superblock);
                (Some(log), Some(Tail::new(Arc::clone(&device), map, superblock, first_tid)?))
            }
            None => (None, None),
        };
        let checkpoint = Checkpoint::new(Arc::clone(&device), Arc::clone(&health), block_size, tail);
        let max_transaction = log.as_ref().map_or(MAX_UNLOGGED, Log::max_transaction);
        Ok(Self {
            device,
            cache,
            health,
            block_size,
            max_transaction,
            hooks,
            gate: Gate::new(first_tid, max_transaction),
            running: Transaction::new(),
            log: CommitLock::new(log),
            checkpoint: Arc::new(checkpoint),
            committed: AtomicU64::new(first_tid - 1),
            first_tid,
        })
    }

    pub(crate) fn cache(&self) -> &MetaCache {
        &self.cache
    }

    /// How many revoked blocks one block of the log names: 8 bytes each behind the header, before the tail.
    fn revokes_per_block(&self) -> usize {
        (self.block_size as usize - 20) / 8
    }

    /// The most credits one handle may ask for.
    pub(crate) fn max_credits(&self) -> u32 {
        self.max_transaction / 2
    }

    /// Joins the running transaction with room for `credits` blocks; commits it first when it is full.
    ///
    /// # Errors
    /// If the volume has stopped, or the commit that made room failed.
    pub(crate) fn begin(&self, credits: u32) -> Result<Handle<'_>> {
        debug_assert!(credits <= self.max_credits(), "{credits} credits exceed a transaction");
        loop {
            self.health.check()?;
            match self.gate.enter(credits) {
                Entry::Inside(pass) => return Ok(Handle::new(self, pass)),
                Entry::Full(tid) => self.commit(tid).map(drop)?,
                Entry::Shut => return Err(Error::Stopped("the volume is closed".into())),
            }
        }
    }

    /// Whether transaction `tid` is durable.
    pub(crate) fn is_committed(&self, tid: u64) -> bool {
        // Pairs with the Release in `commit_running`.
        self.committed.load(Ordering::Acquire) >= tid
    }

    /// Transactions that became durable since the volume was opened.
    pub(crate) fn commits(&self) -> u64 {
        self.committed.load(Ordering::Relaxed) + 1 - self.first_tid
    }

    /// Makes everything up to transaction `tid` durable. Callers that come together share one commit.
    /// Returns true if the device was flushed after the call began, so that data written before it is durable too.
    ///
    /// # Errors
    /// If the volume has stopped or stops now.
    pub(crate) fn commit(&self, tid: u64) -> Result<bool> {
        // The commit that closes this one, in whichever thread, flushes the device after it has closed it.
        let open = self.gate.open_tid();
        let log = self.log.lock_unless(|| self.is_committed(tid));
        self.health.check()?;
        let Some(mut log) = log else { return Ok(tid >= open || planted(Fault::ShareEveryFlush)) };
        self.commit_running(&mut log).map_err(|error| self.health.stop(error))
    }

    /// Makes everything done so far durable.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn commit_all(&self) -> Result<bool> {
        self.commit(self.gate.tid())
    }

    fn commit_running(&self, log: &mut Option<Log>) -> Result<bool> {
        let Some(frozen) = self.close_running()? else { return Ok(false) };
        match log {
            Some(log) => {
                self.checkpoint.make_room(log.blocks_needed(&frozen))?;
                if log.is_unused() {
                    self.checkpoint.begin_log(log.head(), frozen.tid)?;
                }
                let span = log.write(&frozen)?;
                self.checkpoint.add(frozen.tid, frozen.blocks, span);
            }
            None => {
                // Data first: a home write may reveal it.
                self.flush()?;
                self.checkpoint.add(frozen.tid, frozen.blocks, LogSpan::default());
                self.checkpoint.bring_all_home()?;
            }
        }
        self.checkpoint.drop_freed(&frozen.freed);
        self.hooks.released(&frozen.freed);
        self.committed.store(frozen.tid, Ordering::Release);
        self.checkpoint.relieve()?;
        Ok(true)
    }

    /// Closes the running transaction and opens the next. `None` if there was nothing in it.
    fn close_running(&self) -> Result<Option<Frozen>> {
        let pass = self.gate.close();
        let tid = pass.tid();
        let _reopen = Reopen(self);
        let handle = Handle::new(self, pass);
        // The handle that was the last may have failed half-way.
        self.health.check()?;
        self.hooks.closing(&handle);
        drop(handle);
        if self.running.is_empty() {
            return Ok(None);
        }
        let frozen = self.running.freeze(tid)?;
        self.gate.advance();
        Ok(Some(frozen))
    }

    /// Flushes the device.
    ///
    /// # Errors
    /// A failed flush stops the volume (I8).
    pub(crate) fn flush(&self) -> Result<()> {
        self.device.flush().map_err(|e| self.health.stop(Error::device("flushing the device", e)))
    }

    /// Lets no handle begin any more, commits, brings everything home, leaves a clean log, and runs `finish`
    /// before anybody can commit again.
    ///
    /// # Errors
    /// As [`commit`](Self::commit); the log then still holds what is not at home.
    pub(crate) fn shut_down(&self, finish: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut log = self.log.lock();
        self.health.check()?;
        self.gate.shut();
        let next_tid = || self.committed.load(Ordering::Acquire) + 1;
        let result = self.commit_rest(&mut log).and_then(|()| self.checkpoint.finish(next_tid()));
        result.and_then(|()| finish()).map_err(|error| self.health.stop(error))
    }

    /// Runs `work` while neither a commit nor a checkpoint round is under way, so that nobody else writes the superblocks.
    pub(crate) fn while_idle(&self, work: impl FnOnce()) {
        let _log = self.log.lock();
        self.checkpoint.between_rounds(work);
    }

    /// Commits until nothing is left: what rides along may not fit one transaction.
    fn commit_rest(&self, log: &mut Option<Log>) -> Result<()> {
        while self.commit_running(log)? {}
        Ok(())
    }

    /// Writes everything home that is committed.
    ///
    /// # Errors
    /// A failed write or flush stops the volume (I8).
    #[cfg(shuttle)]
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.checkpoint.bring_all_home()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.checkpoint.stop();
    }
}

/// Lets handles begin again when a transaction was closed, or closing it failed.
struct Reopen<'a>(&'a Journal);

impl Drop for Reopen<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if cfg!(shuttle) {
                // A model that failed is torn down; its primitives work no more.
                return;
            }
            // The transaction is half encoded: nobody may go on, but nobody may hang either.
            self.0.health.stop(Error::corrupt("a commit was cut off by a panic"));
        }
        self.0.gate.open();
    }
}
