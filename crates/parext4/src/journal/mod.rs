//! The journal: handles, the running transaction, commit and checkpoint (jbd2's protocol).
//!
//! The journal makes changes of metadata atomic and durable, and decides when freed blocks may be
//! allocated again (I7). It does not know the contents of the blocks (`meta` and the objects that
//! join a transaction do), nor file data, except that the flush of a commit makes earlier data
//! writes durable.
//!
//! Invariant: one transaction runs and accepts changes; at most one commits. A block reaches its
//! home location only in a version that is durable in the log.
//!
//! A commit:
//!
//! 1. closes the gate and blocks until no handle is open;
//! 2. encodes the objects that joined, freezes the blocks, and opens the gate to the next
//!    transaction;
//! 3. waits for room in the log, writes the transaction there, and flushes it (`log`);
//! 4. adds its blocks to the blocks that wait for a checkpoint (`pending`);
//! 5. releases the blocks that it freed to the allocator.
//!
//! Checkpoint rounds write committed blocks to their home locations concurrently with commits
//! (`checkpoint`).
//!
//! On a volume without a journal, step 3 is a flush, and step 4 writes the blocks to their home
//! locations at once. A crash in between may leave the volume inconsistent.

mod checkpoint;
mod checkpoint_thread;
mod commit_lock;
mod empty;
mod fast_commit;
mod gate;
mod handle;
mod log;
mod log_index;
mod log_stream;
mod log_walk;
mod pending;
mod replay;
mod requests;
mod tail;
mod transaction;

use parext4_device::Device;
use parext4_format::jbd2::JournalSuperblock;

pub use empty::EmptiedLog;
pub(crate) use fast_commit::{FastCommits, log_replayed};
#[cfg(shuttle)]
pub use gate::{EnterResult, Gate, Permit};
pub(crate) use handle::Handle;
pub(crate) use log::{LogExtent, LogMap, usable};
pub(crate) use log_index::LogIndex;
pub(crate) use replay::{newest_sequence, read_log, read_superblock, replay, write_home};
pub(crate) use transaction::{Freed, Participant};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::health::Health;
use crate::meta::MetaCache;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use checkpoint::Checkpoint;
use commit_lock::CommitLock;
#[cfg(not(shuttle))]
use gate::{EnterResult, Gate};
use log::Log;
use pending::LogSpan;
use tail::LogTail;
use transaction::{FrozenTransaction, Transaction};

/// Limit of the blocks in one transaction on a volume without a journal, in bytes.
const MAX_UNLOGGED: u32 = 32 << 20;
/// Limit of the blocks in one transaction on a volume without a journal.
const MAX_UNLOGGED_BLOCKS: u32 = 8192;

/// Returns the limit of the number of blocks in one transaction on a volume without a journal.
fn max_unlogged(block_size: u32) -> u32 {
    MAX_UNLOGGED_BLOCKS.min(MAX_UNLOGGED / block_size)
}

/// The functions of the volume that the journal calls during a commit.
pub(crate) trait CommitHooks: Send + Sync + std::fmt::Debug {
    /// Makes deferred changes, such as timestamps, within the handle's credits. The commit calls it
    /// with the gate closed.
    fn closing(&self, handle: &Handle<'_>);
    /// Receives the blocks freed by a transaction that is durable now, so that they may be
    /// allocated again (I7).
    fn released(&self, freed: &[Freed]);
    /// Receives the objects that a durable transaction has encoded, and drops them where no thread
    /// waits: they may be the last references to thousands of deleted inodes. The commit calls it
    /// under the commit lock.
    fn encoded(&self, objects: Vec<Arc<dyn Participant>>);
}

/// The journal of an open volume.
#[derive(Debug)]
pub(crate) struct Journal {
    device: Arc<dyn Device>,
    cache: Arc<MetaCache>,
    health: Arc<Health>,
    block_size: u32,
    max_transaction: u32,
    /// Number of blocks that each handle may register beyond the credits that its caller asks for.
    spare: u32,
    hooks: Box<dyn CommitHooks>,
    /// Counts the handles in the running transaction.
    gate: Gate,
    running: Transaction,
    /// The log, locked by the committer; `None` on a volume without a journal.
    log: CommitLock<Option<Log>>,
    checkpoint: Arc<Checkpoint>,
    /// The last transaction that is durable and whose freed blocks the allocator has. It is written
    /// under the lock of `log`.
    committed: AtomicU64,
    first_tid: u64,
}

impl Journal {
    /// Opens a journal with an empty log, or without a log. The first transaction is `first_tid`.
    /// Writes the journal's superblock and flushes it.
    ///
    /// # Errors
    /// If the journal's superblock cannot be written.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        cache: Arc<MetaCache>,
        health: Arc<Health>,
        block_size: u32,
        log: Option<(LogMap, JournalSuperblock, Clock)>,
        first_tid: u64,
        hooks: Box<dyn CommitHooks>,
    ) -> Result<Self> {
        let (log, tail) = match log {
            Some((map, superblock, clock)) => {
                let map = Arc::new(map);
                let log = Log::new(Arc::clone(&device), Arc::clone(&map), &superblock, clock);
                (Some(log), Some(LogTail::new(map, superblock, first_tid)?))
            }
            None => (None, None),
        };
        let checkpoint = Checkpoint::new(Arc::clone(&device), Arc::clone(&health), block_size, tail);
        let max_transaction = log.as_ref().map_or(max_unlogged(block_size), Log::max_transaction);
        Ok(Self {
            device,
            cache,
            health,
            block_size,
            max_transaction,
            spare: 0,
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

    /// Returns the number of revoked blocks that one revoke block lists: 8 bytes each, between a
    /// header of 16 bytes and a tail of 4 bytes.
    fn revokes_per_block(&self) -> usize {
        (self.block_size as usize - 20) / 8
    }

    /// Returns the limit of credits of one handle, in blocks.
    pub(crate) fn max_credits(&self) -> u32 {
        (self.max_transaction / 2).saturating_sub(self.spare).max(1)
    }

    /// Permits each handle to register `spare` blocks beyond the credits that its caller asks for.
    pub(crate) fn with_spare(mut self, spare: u32) -> Self {
        self.spare = spare;
        self
    }

    /// Returns the number of blocks that each handle may register beyond the credits that its
    /// caller asks for.
    fn spare(&self) -> u32 {
        self.spare
    }

    /// Begins a handle in the running transaction that may register `credits` blocks. Blocks while
    /// a commit closes the transaction; if the transaction is full, commits it first.
    ///
    /// # Errors
    /// If the volume has stopped or is closed, or if the commit of a full transaction failed.
    pub(crate) fn begin(&self, credits: u32) -> Result<Handle<'_>> {
        debug_assert!(credits <= self.max_credits(), "{credits} credits exceed a transaction");
        loop {
            self.health.check()?;
            let tid = self.gate.tid();
            if self.running.is_crowded() {
                self.commit(tid)?;
            }
            match self.gate.enter(credits + self.spare) {
                EnterResult::Entered(permit) => return Ok(Handle::new(self, permit)),
                EnterResult::Full(tid) => self.commit(tid).map(drop)?,
                EnterResult::Shut => return Err(Error::Stopped("the volume is closed".into())),
            }
        }
    }

    /// Returns the number of open handles.
    pub(crate) fn open_handles(&self) -> u64 {
        self.gate.handles()
    }

    /// Returns true if transaction `tid` is durable and the allocator has its freed blocks.
    pub(crate) fn is_committed(&self, tid: u64) -> bool {
        // This load pairs with the Release in `commit_running`.
        self.committed.load(Ordering::Acquire) >= tid
    }

    /// Returns the number of transactions that became durable since the volume was opened.
    pub(crate) fn commits(&self) -> u64 {
        self.committed.load(Ordering::Relaxed) + 1 - self.first_tid
    }

    /// Makes all transactions up to `tid` durable. Blocks until they are; concurrent callers share
    /// one commit.
    ///
    /// Returns true if the device was flushed after the call began. Then data written before the
    /// call is durable, too.
    ///
    /// # Errors
    /// If the volume has stopped, or a failure of this commit stops it.
    pub(crate) fn commit(&self, tid: u64) -> Result<bool> {
        // If `tid` is this transaction or a newer one, the commit that makes it durable flushes the
        // device after this point, whichever thread runs the commit.
        let open = self.gate.open_tid();
        let log = self.log.lock_unless(|| self.is_committed(tid));
        self.health.check()?;
        let Some(mut log) = log else { return Ok(guarded!(Fault::ShareEveryFlush, tid >= open, true)) };
        self.commit_running(&mut log).map_err(|error| self.health.stop(error))
    }

    /// Makes all changes durable that were made under handles before the call. Deferred changes may
    /// not fit ([`CommitHooks::closing`]). Blocks as [`commit`](Self::commit) does.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn commit_all(&self) -> Result<bool> {
        self.commit(self.gate.tid())
    }

    /// Commits the running transaction. Returns false if it was empty.
    fn commit_running(&self, log: &mut Option<Log>) -> Result<bool> {
        let Some(frozen) = self.close_running()? else { return Ok(false) };
        let written = self.write_log(log, &frozen);
        // The device has old contents of these blocks, so a stopped volume must not read them
        // again.
        let span = written.inspect_err(|_| self.running.keep_in_memory(&frozen.blocks))?;
        self.checkpoint.add(frozen.tid, frozen.blocks, span);
        if log.is_none() {
            self.checkpoint.checkpoint_all()?;
        }
        self.checkpoint.drop_freed(&frozen.freed);
        self.hooks.released(&frozen.freed);
        self.committed.store(frozen.tid, Ordering::Release);
        self.hooks.encoded(frozen.encoded);
        self.checkpoint.start_rounds_if_due()?;
        Ok(true)
    }

    /// Makes a transaction durable in the log. Without a log, flushes the file data that the
    /// transaction may reveal.
    fn write_log(&self, log: &mut Option<Log>, frozen: &FrozenTransaction) -> Result<LogSpan> {
        let Some(log) = log else {
            self.flush()?;
            return Ok(LogSpan::default());
        };
        self.checkpoint.make_room(log.blocks_needed(frozen))?;
        if log.is_unused() {
            self.checkpoint.begin_log(log.head(), frozen.tid)?;
        }
        log.write(frozen)
    }

    /// Closes the running transaction and opens the next one. Returns `None` if the transaction was
    /// empty.
    fn close_running(&self) -> Result<Option<FrozenTransaction>> {
        let permit = self.gate.close();
        let tid = permit.tid();
        let _reopen = ReopenGate(self);
        let handle = Handle::new(self, permit);
        // The last handle that left may have failed between two of its changes, and has then
        // stopped the volume.
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

    /// Closes the gate for good, commits and checkpoints everything, leaves an empty log, and runs
    /// `finish` under the commit lock, so that no other commit runs before it returns.
    ///
    /// # Errors
    /// As [`commit`](Self::commit). The log then still holds the blocks that are not at their home
    /// locations.
    pub(crate) fn shut_down(&self, finish: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut log = self.log.lock();
        self.health.check()?;
        self.gate.shut();
        let next_tid = || self.committed.load(Ordering::Acquire) + 1;
        let result = self.commit_rest(&mut log).and_then(|()| self.checkpoint.finish(next_tid()));
        result.and_then(|()| finish()).map_err(|error| self.health.stop(error))
    }

    /// Commits the running transaction, and writes all committed blocks to their home locations.
    /// Holds the commit lock, as [`empty_log`](Self::empty_log) does, so that other commits add no
    /// blocks meanwhile.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) fn commit_home(&self) -> Result<()> {
        let mut log = self.log.lock();
        self.health.check()?;
        let committed = self.commit_running(&mut log);
        committed.and_then(|_| self.checkpoint.checkpoint_all()).map_err(|error| self.health.stop(error))
    }

    /// Runs `work` while neither a commit nor a checkpoint round runs, so that only `work` writes
    /// the superblocks.
    pub(crate) fn while_idle(&self, work: impl FnOnce()) {
        let _log = self.log.lock();
        self.checkpoint.between_rounds(work);
    }

    /// Commits until no change is left: the deferred changes may not fit into one transaction.
    fn commit_rest(&self, log: &mut Option<Log>) -> Result<()> {
        while self.commit_running(log)? {}
        Ok(())
    }

    /// Writes all committed blocks to their home locations.
    ///
    /// # Errors
    /// A failed write or flush stops the volume (I8).
    #[cfg(shuttle)]
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.checkpoint.checkpoint_all()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.checkpoint.stop();
    }
}

/// Opens the gate when dropped, whether or not the transaction could be closed.
struct ReopenGate<'a>(&'a Journal);

impl Drop for ReopenGate<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if cfg!(shuttle) {
                // A failed model is being torn down: its primitives no longer work.
                return;
            }
            // The transaction is half encoded. Stop the volume, and open the gate so that no thread
            // waits forever.
            self.0.health.stop(Error::corrupt("a commit was interrupted by a panic"));
        }
        self.0.gate.open();
    }
}
