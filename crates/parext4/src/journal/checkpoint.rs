//! Checkpoint: writes committed blocks to their home locations, so that their log blocks can be
//! used again.
//!
//! The module is responsible for the order of these writes and for room in the log. The module
//! `pending` decides which blocks a round writes.
//!
//! Checkpoints run concurrently with commits, in rounds, one at a time (the lock of `tail`). A
//! round:
//!
//! 1. chooses the oldest transactions of the log, with about 2048 blocks or 8 MiB, whichever is
//!    less;
//! 2. writes the newest committed version of each of their blocks, unless it is at its home
//!    location already, through a device queue with 16 requests in flight;
//! 3. flushes the device;
//! 4. writes into the journal's superblock that the log begins after these transactions, and
//!    flushes it;
//! 5. frees their log blocks.
//!
//! A background thread starts rounds when the log is half full, and runs them until at most a
//! quarter is in use. A commit that finds no room in the log waits for the round under way, or runs
//! one itself. Of a longer log, at most 256 MiB are used, because the committed blocks stay in
//! memory until a round has written them.
//!
//! Invariant: a freed block is not allocated again while a request writes it (H13,
//! [`Checkpoint::drop_freed`]).

use parext4_device::{Device, Done, Op, Request, Segment};
use parext4_format::LogBlock;

use super::checkpoint_thread::CheckpointThread;
use super::log::usable;
use super::pending::{LogSpan, PendingBlocks, RoundPlan, WriteRun};
use super::requests::{Requests, perform};
use super::tail::LogTail;
use super::transaction::{Freed, FrozenBlock};
use crate::convert::to_usize;
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::health::Health;
use crate::sync::Rank;
use crate::sync::{Arc, Condvar, Mutex};

/// Approximate number of blocks that a round writes. A commit that needs room in the log waits for
/// one round, and for a second one only if the first did not free enough.
const ROUND: u32 = 2048;
/// Approximate limit of the blocks of a round, in bytes.
const ROUND_BYTES: u32 = 8 << 20;
/// Number of requests in flight in a round.
const DEPTH: u32 = 16;

/// The committed blocks of a volume that are not at their home locations, and the thread that
/// writes them there.
#[derive(Debug)]
pub(super) struct Checkpoint {
    device: Arc<dyn Device>,
    health: Arc<Health>,
    block_size: u32,
    /// Number of log blocks that may be in use; 0 without a log.
    capacity: u32,
    /// The start of the log; `None` without a log. Each round holds the lock from its start to its
    /// end.
    tail: Mutex<Option<LogTail>>,
    pending: Mutex<PendingBlocks>,
    /// Signalled when a request of a round has completed.
    request_completed: Condvar,
    thread: CheckpointThread,
}

impl Checkpoint {
    pub(super) fn new(
        device: Arc<dyn Device>,
        health: Arc<Health>,
        block_size: u32,
        tail: Option<LogTail>,
    ) -> Self {
        Self {
            device,
            health,
            block_size,
            capacity: tail.as_ref().map_or(0, |tail| usable(tail.capacity(), block_size)),
            tail: Mutex::new(Rank::Checkpoint, tail),
            pending: Mutex::new(Rank::Pending, PendingBlocks::default()),
            request_completed: Condvar::default(),
            thread: CheckpointThread::default(),
        }
    }

    /// Blocks until `len` log blocks are free; runs rounds if no other thread does.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the log is too short; otherwise as [`round`](Self::round).
    pub(super) fn make_room(&self, len: u32) -> Result<()> {
        while !self.has_room(len) {
            let mut tail = self.tail.lock();
            // A round that ended before this thread acquired the lock may have freed enough.
            if !self.has_room(len) && !self.run_round(&mut tail)? {
                let capacity = self.capacity;
                return Err(Error::Unsupported(format!(
                    "a transaction of {len} blocks in a log of {capacity}"
                )));
            }
        }
        Ok(())
    }

    /// Writes the start of the log, block `start` with transaction `tid`, into the journal's
    /// superblock. Recovery replays the log from that block once the device is flushed. The log was
    /// empty, so no round is under way.
    pub(super) fn begin_log(&self, start: LogBlock, tid: u64) -> Result<()> {
        self.tail.lock().as_mut().map_or(Ok(()), |tail| tail.begin(start, tid))
    }

    fn has_room(&self, len: u32) -> bool {
        self.pending.lock().used() + len < self.capacity
    }

    /// Returns true if rounds should run: they start when the log is half full and stop when a
    /// quarter is in use.
    fn is_round_due(&self, started: bool) -> bool {
        self.pending.lock().used() > self.capacity / if started { 4 } else { 2 }
    }

    /// Adds a transaction that is durable in the log.
    pub(super) fn add(&self, tid: u64, blocks: Vec<FrozenBlock>, span: LogSpan) {
        self.pending.lock().add(tid, blocks, span);
    }

    /// Drops blocks that a durable transaction has freed. Blocks until no request writes any of
    /// them.
    pub(super) fn drop_freed(&self, freed: &[Freed]) {
        let mut pending = self.pending.lock();
        pending.drop_freed(freed);
        while guarded!(Fault::FreedDuringCheckpoint, pending.is_writing(freed)) {
            self.request_completed.wait(&mut pending);
        }
    }

    /// Wakes the thread if the log is half full. Without a thread, the caller runs the rounds.
    ///
    /// # Errors
    /// As [`round`](Self::round), if the caller runs rounds.
    pub(super) fn start_rounds_if_due(self: &Arc<Self>) -> Result<()> {
        if !self.is_round_due(false) || self.thread.wake(self, Self::run_thread) {
            return Ok(());
        }
        while self.is_round_due(true) && self.round()? {}
        Ok(())
    }

    /// Runs rounds whenever the thread is woken, until it is stopped. A failure stops the volume,
    /// and the next commit reports it.
    fn run_thread(&self) {
        while self.thread.wait() {
            while self.is_round_due(true) && !self.thread.is_stopped() && matches!(self.round(), Ok(true)) {}
        }
    }

    /// Checkpoints everything and leaves an empty log without an error number, whose next
    /// transaction is `next_tid`. The volume is being closed.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub(super) fn finish(&self, next_tid: u64) -> Result<()> {
        self.checkpoint_all()?;
        self.tail.lock().as_mut().map_or(Ok(()), |tail| tail.close(next_tid))
    }

    /// Checkpoints everything and leaves an empty log, whose next transaction is `next_tid`. The
    /// volume stays open.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub(super) fn empty(&self, next_tid: u64) -> Result<()> {
        self.checkpoint_all()?;
        self.tail.lock().as_mut().map_or(Ok(()), |tail| tail.empty(next_tid))
    }

    /// Runs rounds until all committed blocks are at their home locations.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub(super) fn checkpoint_all(&self) -> Result<()> {
        while self.round()? {}
        Ok(())
    }

    /// Runs `work` while no round runs. Blocks until a running round has ended.
    pub(super) fn between_rounds(&self, work: impl FnOnce()) {
        let _tail = self.tail.lock();
        work();
    }

    /// Stops the thread and joins it.
    pub(super) fn stop(&self) {
        self.thread.stop();
    }

    /// Runs one round. Blocks first until a running round has ended. Returns false if the log had
    /// no transactions.
    ///
    /// # Errors
    /// A failed write or flush, which has stopped the volume (I8).
    fn round(&self) -> Result<bool> {
        self.run_round(&mut self.tail.lock())
    }

    /// Runs one round under the lock of `tail`, as [`round`](Self::round) does.
    fn run_round(&self, tail: &mut Option<LogTail>) -> Result<bool> {
        self.health.check()?;
        self.try_round(tail).map_err(|error| self.health.stop(error))
    }

    fn try_round(&self, tail: &mut Option<LogTail>) -> Result<bool> {
        let most = ROUND.min(ROUND_BYTES / self.block_size);
        let Some(mut plan) = self.pending.lock().plan(most as usize) else { return Ok(false) };
        let runs = self.write_home(&mut plan)?;
        guarded!(
            Fault::TailBeforeHome,
            self.device.flush().map_err(|e| Error::device("flushing the device", e))?
        );
        if let Some(tail) = tail {
            tail.advance(plan.start, plan.next_tid())?;
        }
        let mut pending = self.pending.lock();
        pending.remove_written(&runs);
        pending.release(&plan);
        Ok(true)
    }

    /// Writes the blocks of a plan to their home locations and returns the runs that it wrote.
    /// Blocks until all its requests have completed, also after a failure.
    fn write_home(&self, plan: &mut RoundPlan) -> Result<Vec<WriteRun>> {
        let _ended = ForgetRequests(self);
        let mut round = Round { checkpoint: self, plan, runs: Vec::new() };
        perform(&self.device, DEPTH, &mut round)?;
        Ok(round.runs)
    }
}

/// The writes of a round.
struct Round<'a> {
    checkpoint: &'a Checkpoint,
    plan: &'a mut RoundPlan,
    /// The runs for which requests were made.
    runs: Vec<WriteRun>,
}

impl Requests for Round<'_> {
    fn next(&mut self) -> Option<Request> {
        let run = self.checkpoint.pending.lock().begin_run(self.plan)?;
        let segments = run.blocks.iter().map(|(frozen, _)| Segment::whole(Arc::clone(&frozen.bytes)));
        let (offset, segments) = (run.first * u64::from(self.checkpoint.block_size), segments.collect());
        let token = self.runs.len() as u64;
        self.runs.push(run);
        Some(Request { token, op: Op::Write { offset, segments } })
    }

    fn end(&mut self, done: Done) -> Result<()> {
        let run = &self.runs[to_usize(done.token)];
        self.checkpoint.pending.lock().end_run(run);
        self.checkpoint.request_completed.notify_all();
        done.result.map_err(|e| Error::device(format_args!("writing metadata block {}", run.first), e))
    }
}

/// Records, when dropped at any end of a round, that none of its requests is in flight.
struct ForgetRequests<'a>(&'a Checkpoint);

impl Drop for ForgetRequests<'_> {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            // A failed model is being torn down: its primitives no longer work.
            return;
        }
        self.0.pending.lock().end_all();
        self.0.request_completed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use parext4_format::FsBlock;
    use parext4_format::jbd2::JournalSuperblock;

    use super::*;
    use crate::MemDevice;
    use crate::clock::Clock;
    use crate::journal::log::{LogExtent, LogMap};

    /// Returns the checkpoint of an empty log of `blocks` blocks.
    fn checkpoint(block_size: u32, blocks: u32) -> Checkpoint {
        let device: Arc<dyn Device> = Arc::new(MemDevice::new(1 << 20));
        let extents = vec![LogExtent { log: LogBlock(0), physical: FsBlock(0), len: blocks }];
        let superblock = LogBlock::SUPERBLOCK;
        let map = LogMap { device: Arc::clone(&device), external: false, block_size, superblock, extents };
        let superblock = JournalSuperblock::new(block_size, blocks, 1, &[7; 16]);
        let tail = LogTail::new(Arc::new(map), superblock, 1).unwrap();
        Checkpoint::new(device, Arc::new(Health::new(0, Clock::system())), block_size, Some(tail))
    }

    #[test]
    fn committed_blocks_in_memory_are_limited_in_bytes_whatever_the_size_of_blocks_and_log() {
        const MIB: u32 = 1 << 20;
        // 1 GiB in each case, and a log of 16 GiB.
        let rows = [(1024, 1 << 20), (4096, 1 << 18), (65536, 1 << 14), (65536, 1 << 18)];
        for (block_size, blocks) in rows {
            let checkpoint = checkpoint(block_size, blocks);
            let use_mib = |mib: u32| {
                let span = LogSpan { len: mib * (MIB / block_size), end: LogBlock(1) };
                checkpoint.add(1, Vec::new(), span);
            };
            assert!(checkpoint.has_room(255 * (MIB / block_size)) && !checkpoint.is_round_due(false));
            use_mib(127);
            assert!(!checkpoint.is_round_due(false) && checkpoint.is_round_due(true));
            use_mib(2);
            assert!(checkpoint.is_round_due(false));
            use_mib(126);
            assert!(!checkpoint.has_room(MIB / block_size), "{blocks} blocks of {block_size} bytes");
        }
        // A short log has room for as much as before.
        assert!(checkpoint(65536, 1024).has_room(1000));
    }
}
