//! Checkpoint: writes committed blocks home, so that their part of the log can be used again.
//!
//! It runs concurrently with commits, in *rounds*, one at a time: 1. the oldest transactions of the log are chosen; 2.
//! the newest committed version of each of their blocks is written, unless it is at home, by a device queue with many
//! requests under way; 3. the device is flushed; 4. the journal's superblock says that the log begins after them, and
//! is flushed;
//! 5. their log blocks are free. A thread runs rounds once the log is half full. A commit that finds no room in the log
//! waits for the round under way, or runs one.
//!
//! A block that a transaction frees is not allocated again while a request writes it (H13): [`Checkpoint::drop_freed`].

use parext4_device::{Device, Done, Op, Request, Segment, open_queue};

use super::pending::{LogSpan, Pending, Plan, Run};
use super::tail::Tail;
use super::thread::Thread;
use super::transaction::{Freed, FrozenBlock};
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::health::Health;
use crate::lock_order::Rank;
use crate::sync::{Arc, Condvar, Mutex};

/// Target of blocks written home in one round. A commit that needs room in the log waits for one round, and for more
/// only if that did not free enough.
const ROUND: usize = 2048;
/// Requests under way in a round.
const DEPTH: u32 = 16;

/// The committed blocks of a volume that are not at home, and the thread that writes them there.
#[derive(Debug)]
pub(super) struct Checkpoint {
    device: Arc<dyn Device>,
    health: Arc<Health>,
    block_size: u32,
    /// Blocks of the log.
    capacity: u32,
    /// Where the log begins; `None` without a log. Held by a round from its start to its end.
    tail: Mutex<Option<Tail>>,
    pending: Mutex<Pending>,
    /// Signalled when a request of a round has completed.
    arrived: Condvar,
    thread: Thread,
}

impl Checkpoint {
    pub(super) fn new(
        device: Arc<dyn Device>,
        health: Arc<Health>,
        block_size: u32,
        tail: Option<Tail>,
    ) -> Self {
        Self {
            device,
            health,
            block_size,
            capacity: tail.as_ref().map_or(0, Tail::capacity),
            tail: Mutex::new(Rank::Checkpoint, tail),
            pending: Mutex::new(Rank::Pending, Pending::default()),
            arrived: Condvar::default(),
            thread: Thread::default(),
        }
    }

    /// Waits until the log has `len` blocks free.
    ///
    /// # Errors
    /// If the log is too short; as of [`round`](Self::round).
    pub(super) fn make_room(&self, len: u32) -> Result<()> {
        while !self.has_room(len) {
            let mut tail = self.tail.lock();
            // The round that was under way may have been enough.
            if !self.has_room(len) && !self.bring_home(&mut tail)? {
                let capacity = self.capacity;
                return Err(Error::Unsupported(format!(
                    "a transaction of {len} blocks in a log of {capacity}"
                )));
            }
        }
        Ok(())
    }

    /// Has recovery look at the log, which begins at `start` with transaction `tid`, once the device is flushed. The log
    /// was empty, so no round is under way.
    pub(super) fn begin_log(&self, start: u32, tid: u64) -> Result<()> {
        self.tail.lock().as_mut().map_or(Ok(()), |tail| tail.begin(start, tid))
    }

    fn has_room(&self, len: u32) -> bool {
        self.pending.lock().used() + len < self.capacity
    }

    /// Returns true if rounds should run: once the log is half full, until a quarter is left in use.
    fn is_crowded(&self, begun: bool) -> bool {
        self.pending.lock().used() > self.capacity / if begun { 4 } else { 2 }
    }

    /// Adds a transaction that is durable in the log.
    pub(super) fn add(&self, tid: u64, blocks: Vec<FrozenBlock>, span: LogSpan) {
        self.pending.lock().add(tid, blocks, span);
    }

    /// Drops blocks that a durable transaction has freed, and waits while requests write any of them.
    pub(super) fn drop_freed(&self, freed: &[Freed]) {
        let mut pending = self.pending.lock();
        pending.drop_freed(freed);
        while pending.is_writing(freed) && !planted(Fault::FreedOnItsWayHome) {
            self.arrived.wait(&mut pending);
        }
    }

    /// Has the thread run rounds if the log is crowded; without a thread the caller runs them.
    ///
    /// # Errors
    /// As [`round`](Self::round), of the caller's own rounds.
    pub(super) fn relieve(self: &Arc<Self>) -> Result<()> {
        if !self.is_crowded(false) || self.thread.wake(self) {
            return Ok(());
        }
        while self.is_crowded(true) && self.round()? {}
        Ok(())
    }

    /// Body of the thread. A failure stops the volume, and the next commit reports it.
    pub(super) fn serve(&self) {
        while self.thread.wait() {
            while self.is_crowded(true) && !self.thread.is_stopped() && matches!(self.round(), Ok(true)) {}
        }
    }

    /// Writes everything home, and leaves an empty log whose next transaction is `next_tid`.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub(super) fn finish(&self, next_tid: u64) -> Result<()> {
        self.bring_all_home()?;
        self.tail.lock().as_mut().map_or(Ok(()), |tail| tail.close(next_tid))
    }

    /// Writes everything home, and leaves an empty log whose next transaction is `next_tid`. The volume goes on.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub(super) fn empty(&self, next_tid: u64) -> Result<()> {
        self.bring_all_home()?;
        self.tail.lock().as_mut().map_or(Ok(()), |tail| tail.empty(next_tid))
    }

    /// Runs rounds until everything is at home.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub(super) fn bring_all_home(&self) -> Result<()> {
        while self.round()? {}
        Ok(())
    }

    /// Runs `work` while no round is under way.
    pub(super) fn between_rounds(&self, work: impl FnOnce()) {
        let _tail = self.tail.lock();
        work();
    }

    /// Stops the thread and joins it.
    pub(super) fn stop(&self) {
        self.thread.stop();
    }

    /// Runs one round. Returns true if there was anything to write home.
    ///
    /// # Errors
    /// A failed write or flush, which has stopped the volume (I8).
    fn round(&self) -> Result<bool> {
        self.bring_home(&mut self.tail.lock())
    }

    /// [`round`](Self::round), while no other is under way.
    fn bring_home(&self, tail: &mut Option<Tail>) -> Result<bool> {
        self.health.check()?;
        self.bring_some_home(tail).map_err(|error| self.health.stop(error))
    }

    fn bring_some_home(&self, tail: &mut Option<Tail>) -> Result<bool> {
        let Some(mut plan) = self.pending.lock().plan(ROUND) else { return Ok(false) };
        let runs = self.write_home(&mut plan)?;
        if !planted(Fault::TailBeforeHome) {
            self.device.flush().map_err(|e| Error::device("flushing the device", e))?;
        }
        if let Some(tail) = tail {
            tail.advance(plan.start, plan.next_tid())?;
        }
        let mut pending = self.pending.lock();
        pending.came_home(&runs);
        pending.release(&plan);
        Ok(true)
    }

    /// Writes the blocks of a plan, and returns what it wrote.
    fn write_home(&self, plan: &mut Plan) -> Result<Vec<Run>> {
        // Dropped after the queue, which waits for its requests.
        let _over = Over(self);
        let mut queue = open_queue(&self.device, DEPTH);
        let (mut runs, mut done, mut result) = (Vec::new(), Vec::new(), Ok(()));
        loop {
            while result.is_ok() && queue.in_flight() < DEPTH as usize {
                let Some(run) = self.pending.lock().begin_run(plan) else { break };
                queue.submit(self.request(&run, runs.len()));
                runs.push(run);
            }
            if queue.in_flight() == 0 {
                return result.map(|()| runs);
            }
            queue.harvest(true, &mut done).map_err(|e| Error::device("writing metadata blocks", e))?;
            for done in done.drain(..) {
                result = result.and(self.arrive(&runs, done));
            }
        }
    }

    fn request(&self, run: &Run, token: usize) -> Request {
        let segments = run.blocks.iter().map(|(frozen, _)| Segment::whole(Arc::clone(&frozen.bytes)));
        let (offset, segments) = (run.first * u64::from(self.block_size), segments.collect());
        Request { token: token as u64, op: Op::Write { offset, segments } }
    }

    /// Notes that a request has completed.
    fn arrive(&self, runs: &[Run], done: Done) -> Result<()> {
        let run = &runs[usize::try_from(done.token).unwrap_or(usize::MAX)];
        self.pending.lock().end_run(run);
        self.arrived.notify_all();
        done.result.map_err(|e| Error::device(format_args!("writing metadata block {}", run.first), e))
    }
}

/// Notes at the end of a round, however it ends, that none of its requests is under way.
struct Over<'a>(&'a Checkpoint);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            // A model that failed is torn down; its primitives work no more.
            return;
        }
        self.0.pending.lock().end_all();
        self.0.arrived.notify_all();
    }
}
