//! Claims of blocks by operations in flight, and the threads that wait for these claims to end.
//!
//! This module tells a thread that found no space whether other threads may return blocks.
//! [`map_update::space`](crate::map_update) decides what the thread does meanwhile.
//!
//! An operation may claim more blocks than it uses: a conversion claims the most that it may need,
//! and a request that fails in part releases the rest. So a claim that fails while other claims are
//! in flight does not mean that the volume is full (H40).
//!
//! 1. A thread counts its claim before it subtracts blocks from the counter, and ends the claim
//!    after it has added unused blocks again. So a thread that finds too few unclaimed blocks also
//!    finds the claims that hold the others.
//! 2. A thread whose claim has failed becomes a [`Waiter`], and retries. From its attempt on, its
//!    [`Ledger`] counts the blocks that other threads return.
//! 3. If the attempt fails, the waiter blocks until all claims have ended that began before the
//!    failure. If these have returned fewer blocks than the attempt lacked, the volume is full.
//!    Claims that began later hold only blocks that the attempt has seen or that the earlier claims
//!    returned, so the waiter neither waits for them nor counts the blocks that they return. The
//!    exception are claims that get blocks which were claimed before: the waiter waits for all of
//!    these.
//!
//! **Epochs** tell earlier claims from later ones, as in sleepable RCU. A claim counts in the epoch
//! in which it began. A waiter notes the epoch `E` of its failure, and begins epoch `E + 1`, once
//! epoch `E - 1` has no claims in flight. When epoch `E` has no claims in flight either, all
//! earlier claims have ended. So claims in flight belong to the current epoch or to the one before,
//! two sets of counters are enough, and any number of waiters can use the same epochs.

use std::time::Duration;

use super::Allocator;
use crate::fault::{Fault, guarded};
use crate::stripes::{Stripes, number_of_thread};
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, Rank, thread_local, yield_now};

/// Interval at which a waiting thread checks for causes without an event, such as the last use of a
/// removed file.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

thread_local! {
    static ATTEMPT: std::cell::Cell<Attempt> = const { std::cell::Cell::new(Attempt::NEW) };
}

/// Numbers of blocks that the present attempt of a thread lacked and freed.
#[derive(Clone, Copy)]
struct Attempt {
    /// The fewest blocks that a failed claim lacked.
    lacking: Option<u64>,
    /// Number of blocks that were freed, which an earlier step of the attempt had allocated.
    freed: u64,
}

impl Attempt {
    const NEW: Self = Self { lacking: None, freed: 0 };
}

/// The epoch in which a claim began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Epoch(u64);

impl Epoch {
    fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The claims in flight, and their waiters.
#[derive(Debug)]
pub(super) struct Claims {
    /// Number of claims in flight, by the parity of their epoch.
    in_flight: [Stripes<AtomicI64, 16>; 2],
    /// Number of claims in flight, of any epoch, that hold blocks which were claimed before, as for
    /// dirty pages.
    attached: Stripes<AtomicI64, 16>,
    epoch: AtomicU64,
    waiters: AtomicU32,
    ledgers: Mutex<Vec<Ledger>>,
    changed: Condvar,
}

/// Changes by other threads since a waiting thread began its last attempt.
#[derive(Debug)]
struct Ledger {
    /// The number of the waiting thread. Claims that it returns itself do not count.
    thread: usize,
    /// The epoch in which the attempt failed; `None` before that.
    failed: Option<Epoch>,
    /// Number of blocks that were returned, except for blocks of claims that began after the
    /// failure.
    returned: u64,
    /// Number of changes by other threads so far. An increase wakes the thread.
    events: u64,
}

impl Claims {
    pub(super) fn new() -> Self {
        Self {
            in_flight: Default::default(),
            attached: Stripes::default(),
            epoch: AtomicU64::new(0),
            waiters: AtomicU32::new(0),
            ledgers: Mutex::new(Rank::Leaf, Vec::new()),
            changed: Condvar::default(),
        }
    }

    fn of(&self, epoch: Epoch) -> &Stripes<AtomicI64, 16> {
        &self.in_flight[usize::from(epoch.0 % 2 == 1)]
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::SeqCst))
    }

    /// Counts a claim that is about to be made.
    pub(super) fn begin(&self) -> Epoch {
        loop {
            let epoch = self.epoch();
            let count = self.of(epoch).mine();
            count.fetch_add(1, Ordering::SeqCst);
            // No claim begins in an epoch that is over, so the sum of its counters cannot hide one.
            if self.epoch() == epoch {
                return epoch;
            }
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Counts a claim, besides [`begin`](Self::begin), that gets blocks which were claimed before.
    pub(super) fn begin_attached(&self) {
        self.attached.mine().fetch_add(1, Ordering::SeqCst);
    }

    /// Undoes [`begin_attached`](Self::begin_attached), before the end of the claim.
    pub(super) fn end_attached(&self) {
        self.attached.mine().fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends a claim that began in `epoch`, whose blocks are used or [were
    /// returned](Self::note_returned).
    pub(super) fn end(&self, epoch: Epoch) {
        self.of(epoch).mine().fetch_sub(1, Ordering::SeqCst);
        self.note_event();
    }

    /// Wakes the waiting threads, because a claim has ended or blocks wait for a commit. Costs a
    /// load if no thread waits.
    pub(super) fn note_event(&self) {
        self.note_returned(0, None);
    }

    /// Counts `blocks` that can be claimed again, and wakes the waiting threads. `epoch` is the
    /// epoch in which their claim began; `None` if they were claimed or in use before that. Costs a
    /// load if no thread waits.
    pub(super) fn note_returned(&self, blocks: u64, epoch: Option<Epoch>) {
        self.note(|ledger, is_own| {
            ledger.events += u64::from(!is_own);
            let is_later = epoch.is_some_and(|epoch| ledger.failed.is_some_and(|failed| epoch > failed));
            if !is_own && guarded!(Fault::LaterClaimsAwaited, !is_later, true) {
                ledger.returned += blocks;
            }
        });
    }

    /// Counts `blocks` that a commit has made allocatable, whichever thread has freed them.
    pub(super) fn note_released(&self, blocks: u64) {
        self.note(|ledger, is_own| {
            ledger.events += u64::from(!is_own);
            ledger.returned += blocks;
        });
    }

    /// Calls `change` with each ledger, and with true if the ledger is the caller's own. Wakes the
    /// waiting threads.
    fn note(&self, change: impl Fn(&mut Ledger, bool)) {
        // SeqCst: a thread that begins to wait after this load sees the blocks that were returned
        // before it.
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return;
        }
        let thread = number_of_thread();
        for ledger in &mut *self.ledgers.lock() {
            let is_own = ledger.thread == thread;
            change(ledger, is_own);
        }
        self.changed.notify_all();
    }

    /// Returns true if no claim of `epoch`, the current one or an earlier one, is in flight. The
    /// answer is exact only for an epoch that is over.
    fn is_empty(&self, epoch: Epoch) -> bool {
        self.of(epoch).iter().map(|claims| claims.load(Ordering::SeqCst)).sum::<i64>() == 0
    }

    /// Returns true if all claims have ended that began in `epoch` or earlier. Begins the next
    /// epoch if possible.
    fn have_ended(&self, epoch: Epoch) -> bool {
        let next = epoch.next();
        if self.epoch() == epoch {
            // This is the epoch before, which has the same parity as the next one.
            if guarded!(Fault::EpochUnfinished, !self.is_empty(next)) {
                return false;
            }
            // A failure means that another waiter was faster.
            let _ = self.epoch.compare_exchange(epoch.0, next.0, Ordering::SeqCst, Ordering::SeqCst);
        }
        let only_later = self.epoch() > next || self.is_empty(epoch);
        guarded!(Fault::LaterClaimsAwaited, only_later, self.is_empty(epoch) && self.is_empty(next))
    }
}

/// A thread that has found no space.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    claims: &'a Claims,
    thread: usize,
}

/// The events that a thread has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u64);

/// A failed attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    epoch: Epoch,
    /// The fewest blocks that a claim of the attempt lacked.
    pub lacking: u64,
    /// Number of blocks that the attempt has freed.
    freed: u64,
}

impl Failure {
    /// Returns the number of blocks that must come back before another attempt can succeed. It
    /// includes the blocks that the failed attempt has freed itself, which come back in any case.
    pub(crate) fn missing(&self) -> u64 {
        self.lacking.saturating_add(self.freed)
    }
}

impl Waiter<'_> {
    fn with<R>(&self, look: impl FnOnce(&mut Ledger) -> R) -> R {
        let mut ledgers = self.claims.ledgers.lock();
        let own = ledgers.iter_mut().rfind(|ledger| ledger.thread == self.thread);
        look(own.expect("a waiter has a ledger"))
    }

    /// Begins an attempt. From now on counts all blocks that other threads return, and all that
    /// commits make allocatable.
    pub(crate) fn begin_attempt(&self) {
        forget_lacking();
        self.with(|ledger| (ledger.failed, ledger.returned) = (None, 0));
    }

    /// Records that the attempt has failed. Returns `None` if no claim failed, so that more blocks
    /// would not help.
    pub(crate) fn fail_attempt(&self) -> Option<Failure> {
        let Attempt { lacking, freed } = ATTEMPT.with(std::cell::Cell::get);
        let lacking = lacking?;
        let epoch = self.with(|ledger| *ledger.failed.insert(self.claims.epoch()));
        Some(Failure { epoch, lacking, freed })
    }

    /// Returns true if all claims have ended that were in flight when the attempt failed, and all
    /// that have blocks which were claimed before.
    pub(crate) fn has_outlasted_claims(&self, failure: Failure) -> bool {
        let attached: i64 = self.claims.attached.iter().map(|claims| claims.load(Ordering::SeqCst)).sum();
        attached == 0 && self.claims.have_ended(failure.epoch)
    }

    /// Returns the number of blocks that other threads have returned since the attempt began, plus
    /// the blocks that commits have made allocatable. Blocks that were claimed after the attempt
    /// had failed do not count.
    pub(crate) fn returned(&self) -> u64 {
        self.with(|ledger| ledger.returned)
    }

    /// Returns a value that changes with each event that another thread causes.
    pub(crate) fn events(&self) -> Seen {
        self.with(|ledger| Seen(ledger.events))
    }

    /// Blocks until another thread has caused an event since `seen`, but at most for
    /// [`CHECK_INTERVAL`].
    pub(crate) fn wait(&self, seen: Seen) {
        self.block_while(|ledger| ledger.events == seen.0);
    }

    /// Blocks for [`CHECK_INTERVAL`], whatever happens. The caller has paused `times` before.
    pub(crate) fn pause(&self, times: u32) {
        if cfg!(shuttle) {
            // In a model no time passes, so the thread yields instead.
            (0..=times).for_each(|_| yield_now());
        } else {
            self.block_while(|_| true);
        }
    }

    fn block_while(&self, condition: impl Fn(&Ledger) -> bool) {
        let own = |ledger: &&Ledger| ledger.thread == self.thread;
        let waits = |ledgers: &mut Vec<Ledger>| ledgers.iter().rfind(own).is_some_and(&condition);
        self.claims.changed.wait_while_for(&mut self.claims.ledgers.lock(), waits, CHECK_INTERVAL);
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.claims.waiters.fetch_sub(1, Ordering::SeqCst);
        let mut ledgers = self.claims.ledgers.lock();
        if let Some(own) = ledgers.iter().rposition(|ledger| ledger.thread == self.thread) {
            ledgers.remove(own);
        }
    }
}

impl Allocator {
    /// Begins to count events, for a thread that has found no space and is about to retry.
    pub(crate) fn begin_waiting(&self) -> Waiter<'_> {
        let thread = number_of_thread();
        let ledger = Ledger { thread, failed: None, returned: 0, events: 0 };
        self.claims.ledgers.lock().push(ledger);
        self.claims.waiters.fetch_add(1, Ordering::SeqCst);
        Waiter { claims: &self.claims, thread }
    }
}

/// Records that a claim of this thread failed because `blocks` were lacking.
pub(super) fn note_lacking(blocks: u64) {
    ATTEMPT.with(|attempt| {
        let Attempt { lacking, freed } = attempt.get();
        attempt.set(Attempt { lacking: Some(lacking.map_or(blocks, |least| least.min(blocks))), freed });
    });
}

/// Records that this thread has freed `blocks`, which wait for a commit.
pub(super) fn note_freed(blocks: u64) {
    ATTEMPT.with(|attempt| attempt.set(Attempt { freed: attempt.get().freed + blocks, ..attempt.get() }));
}

/// Returns the fewest blocks that a failed claim of this thread lacked since [`forget_lacking`];
/// `None` if no claim failed.
pub(crate) fn lacking() -> Option<u64> {
    ATTEMPT.with(std::cell::Cell::get).lacking
}

/// Forgets the claims of this thread that have failed.
pub(crate) fn forget_lacking() {
    ATTEMPT.with(|attempt| attempt.set(Attempt::NEW));
}

#[cfg(test)]
mod tests {
    use super::super::tests::volume;
    use super::*;

    /// Claims more blocks than there are, and returns how the attempt failed.
    fn fail(allocator: &Allocator, waiter: &Waiter<'_>) -> Failure {
        waiter.begin_attempt();
        assert!(allocator.reserve(u32::MAX).is_err());
        waiter.fail_attempt().expect("the claim was too large")
    }

    #[test]
    fn a_waiter_outlasts_earlier_claims_and_counts_only_their_blocks() {
        let volume = volume();
        let allocator = volume.engine.allocator();
        let early = allocator.reserve(3).unwrap();
        let waiter = allocator.begin_waiting();
        let failure = fail(allocator, &waiter);
        assert!(!waiter.has_outlasted_claims(failure));
        std::thread::scope(|scope| {
            let later = allocator.reserve(5).unwrap();
            scope.spawn(move || drop(later)).join().unwrap();
            assert_eq!((waiter.has_outlasted_claims(failure), waiter.returned()), (false, 0));
            scope.spawn(move || drop(early)).join().unwrap();
        });
        let _later = allocator.reserve(1).unwrap();
        assert_eq!((waiter.has_outlasted_claims(failure), waiter.returned()), (true, 3));
    }

    #[test]
    fn waiters_share_epochs() {
        let volume = volume();
        let allocator = volume.engine.allocator();
        let first = allocator.reserve(1).unwrap();
        let waiter = allocator.begin_waiting();
        let failures = [(); 2].map(|()| {
            let failure = fail(allocator, &waiter);
            assert!(!waiter.has_outlasted_claims(failure));
            failure
        });
        let second = allocator.reserve(1).unwrap();
        let third = fail(allocator, &waiter);
        assert!(!waiter.has_outlasted_claims(third));
        drop(first);
        assert_eq!(failures.map(|failure| waiter.has_outlasted_claims(failure)), [true, false]);
        assert!(!waiter.has_outlasted_claims(third));
        drop(second);
        assert_eq!(failures.map(|failure| waiter.has_outlasted_claims(failure)), [true; 2]);
        assert!(waiter.has_outlasted_claims(third));
    }

    #[test]
    fn blocks_that_were_claimed_before_count_whenever_they_return() {
        let volume = volume();
        let allocator = volume.engine.allocator();
        let delayed = allocator.reserve(4).unwrap().detach();
        let waiter = allocator.begin_waiting();
        let failure = fail(allocator, &waiter);
        assert!(waiter.has_outlasted_claims(failure));
        let returned = || drop(allocator.attach(delayed));
        std::thread::scope(|scope| scope.spawn(returned).join().unwrap());
        assert_eq!(waiter.returned(), 4);
    }
}
