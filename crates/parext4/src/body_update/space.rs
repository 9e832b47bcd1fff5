//! Retrying operations that run out of space, until no space can come back (H40).

use std::time::Duration;

use crate::clock::Instant;
use crate::engine::{Departure, Engine};
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};

/// The longest time that a thread waits for space, for example for requests that a device does not answer.
const LONGEST: Duration = Duration::from_secs(10);
/// The longest time that a thread waits for space that may not come back: the last user of a removed file may keep it, and the range of a
/// dirty page may be held by the thread itself.
const LONGEST_IF_UNSURE: Duration = Duration::from_secs(1);

/// Number of attempts after which a waiting thread no longer retries at once after an event.
const TURNS: u32 = 16;

impl Engine {
    /// Runs `operation`, and while it fails with [`Error::NoSpace`], has space come back and retries it:
    ///
    /// 1. It frees the preallocated blocks of files that no operation extends, and commits if freed blocks wait for that.
    /// 2. While other operations have claimed blocks, removed files are about to be deleted, or flush threads write back pages that have
    ///    more reserved than they will need, it waits for them.
    ///
    /// Gives up once nothing is in flight that may return blocks, and after 10 seconds in any case. If a quota is exceeded, or no inode is
    /// free, retries while removed files are about to be deleted. A failed attempt must have changed nothing. The caller holds no handle, no lock or range of
    /// an inode without names and users, and no [reservation](crate::allocator::Reservation). It may hold ranges and the locks before
    /// `Rank::Handle`: a thread that has claimed blocks waits for none of them.
    ///
    /// # Errors
    /// Returns the error of `operation`, or of the commit.
    pub(crate) fn with_space<R>(&self, operation: impl FnMut() -> Result<R>) -> Result<R> {
        self.with_space_besides(0, operation)
    }

    /// Like [`with_space`](Self::with_space), for a caller that holds `own` reservations.
    pub(crate) fn with_space_besides<R>(
        &self,
        own: i64,
        mut operation: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        match operation() {
            Err(Error::NoSpace) => self.retry_for_space(own, operation),
            // Preallocated blocks count for their user, too.
            Err(Error::QuotaExceeded(_)) => {
                self.free_preallocated_of_idle()?;
                self.retry_after_deletions(operation)
            }
            Err(Error::NoInodes) => self.retry_after_deletions(operation),
            other => other,
        }
    }

    /// Retries an operation that has exceeded a quota or found no free inode, while removed files are about to be deleted.
    fn retry_after_deletions<R>(&self, mut operation: impl FnMut() -> Result<R>) -> Result<R> {
        let (waiter, start) = (self.allocator.begin_waiting(), Instant::now());
        loop {
            let seen = waiter.events();
            // Before the attempt, which sees what was deleted by then.
            let (is_pending, departs) = (self.deletions.pending() > 0, self.has_departing_orphans());
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

    fn retry_for_space<R>(&self, own: i64, mut operation: impl FnMut() -> Result<R>) -> Result<R> {
        let (waiter, start) = (self.allocator.begin_waiting(), Instant::now());
        let flushes = self.allocator.delayed_blocks() > 0 && self.dirty.make_all_due();
        for turn in 0_u32.. {
            let seen = waiter.events();
            self.free_preallocated_of_idle()?;
            if self.allocator.has_held_blocks() {
                self.journal.commit_all()?;
            }
            match operation() {
                Err(Error::NoSpace) => {}
                other => return other,
            }
            let waited = Instant::now().saturating_duration_since(start);
            match self.patience(waiter.claims() - own, flushes) {
                Some(patience) if waited < patience => {}
                Some(_) => {
                    self.await_no_more();
                    return Err(Error::NoSpace);
                }
                // What ended before the check has caused an event.
                None if guarded!(Fault::EventsIgnored, waiter.events() != seen) && waited < LONGEST => {}
                None => return Err(Error::NoSpace),
            }
            // Attempts of several waiting threads are events for each other.
            if turn < TURNS { waiter.wait(seen) } else { waiter.pause() }
        }
        Err(Error::NoSpace)
    }

    /// Returns how long a thread waits at most for what is in flight; `None` if nothing is. Other threads have `claims`, and `flushes` says
    /// whether flush threads write back all files.
    fn patience(&self, claims: i64, flushes: bool) -> Option<Duration> {
        if guarded!(Fault::ClaimsIgnored, claims > 0) {
            return Some(LONGEST);
        }
        match self.departure() {
            Departure::Soon => Some(LONGEST),
            Departure::WithLastUser => Some(LONGEST_IF_UNSURE),
            Departure::None if flushes && self.allocator.delayed_blocks() > 0 => Some(LONGEST_IF_UNSURE),
            Departure::None => None,
        }
    }
}
