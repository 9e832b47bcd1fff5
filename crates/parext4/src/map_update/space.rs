//! Retrying operations that run out of space, until no space can come back (H40).

use std::time::Duration;

use crate::allocator::{Failure, Waiter, forget_lacking, lacking};
use crate::clock::Instant;
use crate::engine::{Departure, Engine};
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};

/// The longest time that a thread waits for space, for example for requests that a device does not
/// answer.
const LONGEST: Duration = Duration::from_secs(10);
/// The longest time that a thread waits for space that may not come back: the last user of a
/// removed file may keep it, and the range of a dirty page may be held by the thread itself.
const LONGEST_IF_UNSURE: Duration = Duration::from_secs(1);

/// Number of attempts after which a waiting thread no longer retries at once after an event.
const TURNS: u32 = 16;

/// The wait for space of an operation, or of several that make up one request: they wait for 10
/// seconds in all, and no operation waits for as many blocks as an earlier one has waited for in
/// vain.
#[derive(Debug, Default)]
pub struct SpaceWait {
    /// When the first operation began to wait.
    began: Option<Instant>,
    /// The fewest blocks for which one has waited in vain.
    in_vain: Option<u64>,
}

impl SpaceWait {
    /// Returns a wait for space of which nothing has passed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs an attempt of an operation. Returns its result, and whether a wait for what it lacked
    /// may help.
    pub(crate) fn attempt<R>(&self, operation: impl FnOnce() -> Result<R>) -> (Result<R>, bool) {
        forget_lacking();
        let result = operation();
        let may_help = self.in_vain.is_none_or(|in_vain| lacking().is_some_and(|blocks| blocks < in_vain));
        (result, may_help)
    }

    /// Returns how long it has lasted.
    fn elapsed(&mut self) -> Duration {
        let now = Instant::now();
        now.saturating_duration_since(*self.began.get_or_insert(now))
    }
}

impl Engine {
    /// Runs `operation`, and while it fails with [`Error::NoSpace`], has space come back and
    /// retries it:
    ///
    /// 1. It frees the preallocated blocks of files that no operation extends, and commits if freed
    ///    blocks wait for that.
    /// 2. It retries, and if that fails, waits until as many blocks have come back as the operation
    ///    lacked.
    ///
    /// Gives up once all operations have ended that had claimed blocks when the attempt failed, no
    /// removed files are about to be deleted, and no flush threads write back pages that have more
    /// reserved than they will need; and after 10 seconds in any case. If a quota is exceeded, or
    /// no inode is free, retries while removed files are about to be deleted. A failed attempt must
    /// have changed nothing. The caller holds no handle, no lock or range of an inode without names
    /// and users, and no [reservation](crate::allocator::Reservation). It may hold ranges and the
    /// locks before `Rank::Handle`: a thread that has claimed blocks waits for none of them.
    ///
    /// # Errors
    /// Returns the error of `operation`, or of the commit.
    pub(crate) fn with_space<R>(&self, operation: impl FnMut() -> Result<R>) -> Result<R> {
        self.with_space_of(&mut SpaceWait::new(), operation)
    }

    /// Like [`with_space`](Self::with_space), for one of the operations that share a wait.
    pub(crate) fn with_space_of<R>(
        &self,
        wait: &mut SpaceWait,
        mut operation: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        match wait.attempt(&mut operation) {
            (Err(Error::NoSpace), true) => self.retry_for_space(wait, operation),
            // Preallocated blocks count for their user, too.
            (Err(Error::QuotaExceeded(_)), _) => {
                self.free_preallocated_of_idle()?;
                self.retry_after_deletions(operation)
            }
            (Err(Error::NoInodes), _) => self.retry_after_deletions(operation),
            (other, _) => other,
        }
    }

    /// Retries an operation that has exceeded a quota or found no free inode, while removed files
    /// are about to be deleted.
    fn retry_after_deletions<R>(&self, mut operation: impl FnMut() -> Result<R>) -> Result<R> {
        let (waiter, start) = (self.allocator().begin_waiting(), Instant::now());
        loop {
            let seen = waiter.events();
            // Before the attempt, which sees what was deleted by then.
            let (is_pending, departs) = (self.deletions().pending() > 0, self.has_departing_orphans());
            let error = match operation() {
                Err(error @ (Error::QuotaExceeded(_) | Error::NoInodes)) => error,
                other => return other,
            };
            let patience = if is_pending { LONGEST } else { LONGEST_IF_UNSURE };
            if !is_pending && !departs {
                return Err(error);
            }
            if Instant::now().saturating_duration_since(start) >= patience {
                self.await_no_more();
                return Err(error);
            }
            waiter.wait(seen);
        }
    }

    fn retry_for_space<R>(
        &self,
        wait: &mut SpaceWait,
        mut operation: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        let waiter = self.allocator().begin_waiting();
        let flushes = self.allocator().delayed_blocks() > 0 && self.dirty().make_all_due();
        for turn in 0_u32.. {
            self.free_preallocated_of_idle()?;
            if self.allocator().has_held_blocks() {
                self.journal().commit_all()?;
            }
            waiter.begin_attempt();
            match operation() {
                Err(Error::NoSpace) => {}
                other => return other,
            }
            let Some(failure) = waiter.fail_attempt() else { break };
            if !self.await_space(&waiter, failure, wait, flushes)? {
                wait.in_vain = wait.in_vain.into_iter().chain([failure.lacking]).min();
                break;
            }
            // Several waiting threads take blocks from each other, which all of them return.
            if let Some(pauses) = turn.checked_sub(TURNS) {
                waiter.pause(pauses);
            }
        }
        Err(Error::NoSpace)
    }

    /// Blocks until other threads have returned as many blocks as a failed attempt lacked. Returns
    /// false if they will not, or if the longest time has passed. `flushes` says whether flush
    /// threads write back all files.
    ///
    /// # Errors
    /// The error of a transaction that frees preallocated blocks.
    fn await_space(
        &self,
        waiter: &Waiter<'_>,
        failure: Failure,
        wait: &mut SpaceWait,
        flushes: bool,
    ) -> Result<bool> {
        let suffices = || {
            // Held blocks first: they wait for a commit until they are returned.
            let held = self.allocator().held_clusters();
            guarded!(Fault::EventsIgnored, held + waiter.returned() >= failure.missing())
        };
        loop {
            let seen = waiter.events();
            // Before the blocks are counted, because a claim or a deletion returns its blocks
            // before it ends. Delayed blocks first, because they count as a claim before they end
            // to be delayed.
            let delays = self.allocator().delayed_blocks() > 0;
            let patience = self.patience(!waiter.has_outlasted_claims(failure), flushes && delays);
            let waited = wait.elapsed();
            if suffices() {
                return Ok(waited < LONGEST);
            }
            match patience {
                Some(patience) if waited < patience => waiter.wait(seen),
                Some(_) => {
                    self.await_no_more();
                    return Ok(false);
                }
                None => {
                    // A claim that has ended may have preallocated blocks.
                    self.free_preallocated_of_idle()?;
                    return Ok(suffices() && waited < LONGEST);
                }
            }
        }
    }

    /// Returns how long a thread waits at most for what is in flight; `None` if nothing is.
    /// `has_claims` says whether other threads have claims, and `flushes` whether flush threads
    /// write back all files.
    fn patience(&self, has_claims: bool, flushes: bool) -> Option<Duration> {
        if guarded!(Fault::ClaimsIgnored, has_claims) {
            return Some(LONGEST);
        }
        match self.departure() {
            Departure::Soon => Some(LONGEST),
            Departure::WithLastUser => Some(LONGEST_IF_UNSURE),
            Departure::None if flushes => Some(LONGEST_IF_UNSURE),
            Departure::None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::allocator::tests::volume;

    #[test]
    fn operations_that_share_a_wait_wait_in_vain_once() {
        let volume = volume();
        let engine = &volume.engine;
        let mut wait = SpaceWait::new();
        let mut attempts = |blocks: u32| {
            let count = Cell::new(0);
            let result = engine.with_space_of(&mut wait, || {
                count.set(count.get() + 1);
                engine.allocator().reserve(blocks).map(drop)
            });
            (result.is_ok(), count.get())
        };
        assert_eq!(attempts(u32::MAX), (false, 2));
        assert_eq!(attempts(u32::MAX), (false, 1));
        assert_eq!(attempts(u32::MAX - 1), (false, 2), "fewer blocks may come back");
        assert_eq!(attempts(u32::MAX), (false, 1));
        assert_eq!(attempts(1), (true, 1));
    }
}
