//! [`Watch`]: decides from the polls of a shared device whether the owner of its volume is gone.
//!
//! This module does no I/O and reads no clock, so that a simulation of many standbys can use it.
//! Times are durations since a moment that the caller chooses, on a clock that never jumps.
//!
//! Invariant: the owner counts as silent only from the end of one poll to the start of a later
//! poll, if all polls from the first to the last show the same sign of life, and none of them
//! failed or was slow. So a standby that was stopped, or that could not reach the storage, does not
//! mistake its own absence for the owner's.

use std::time::Duration;

use crate::poll_result::{Mmp, PollResult, SLOW};

/// Time between two polls of a standby.
pub const POLL: Duration = Duration::from_secs(2);
/// Shortest time between two polls.
const SHORTEST_POLL: Duration = Duration::from_millis(100);
/// Time for which the servers of a device must not hear from the owner of its lock.
const LOCK_LAPSES_AFTER: Duration = Duration::from_secs(5);

/// State of the owner, according to the polls so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The owner's last sign of life was this long ago, which is not long enough.
    Owned(Duration),
    /// e2fsck checks the volume, or was killed while it did. No wait is long enough.
    Checked,
    /// Neither a lock nor MMP shows whether there is an owner.
    Unknown,
    /// The volume can be taken over.
    Gone(Gone),
}

/// Why a volume can be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gone {
    /// The last owner closed the volume.
    Closed,
    /// The owner gave no sign of life for this time.
    Silent(Duration),
    /// The servers of the device have not heard from the owner of its lock for this time, and the
    /// MMP block has not changed for as long as a living owner may need.
    LockLapsed(Duration),
}

/// The polls of one volume, and what they prove.
#[derive(Debug)]
pub struct Watch {
    /// Time between two polls.
    poll: Duration,
    /// The latest poll.
    last: Option<PollResult>,
    /// Time since which each poll has shown the same sign of life.
    unchanged_since: Duration,
    /// Time since which, in addition, the servers have not heard from the lock's owner.
    unheard_since: Option<Duration>,
    /// True once a poll has shown a lock, so that the device is known to have locks.
    has_locks: bool,
}

impl Watch {
    /// Returns a watch without polls yet, for polls at intervals of `poll`, such as [`POLL`].
    #[must_use]
    pub fn new(poll: Duration) -> Self {
        Self { poll, last: None, unchanged_since: Duration::ZERO, unheard_since: None, has_locks: false }
    }

    /// Returns the result of the latest poll; `None` before the first one and after a failed one.
    #[must_use]
    pub fn last(&self) -> Option<&PollResult> {
        self.last.as_ref()
    }

    /// Records that a poll failed.
    pub fn failed(&mut self) {
        self.last = None;
        self.unheard_since = None;
    }

    /// Records the result of a poll that began at `start` and ended at `end`.
    pub fn saw(&mut self, poll_result: PollResult, start: Duration, end: Duration) -> Verdict {
        let is_slow = end.saturating_sub(start) > SLOW;
        if is_slow || !self.last.as_ref().is_some_and(|last| shows_no_life_since(last, &poll_result)) {
            self.unchanged_since = end;
            self.unheard_since = None;
        }
        match &poll_result.lock {
            Some(owner) if !owner.alive => drop(self.unheard_since.get_or_insert(end)),
            _ => self.unheard_since = None,
        }
        self.has_locks |= poll_result.lock.is_some();
        let verdict = self.judge(&poll_result, start);
        self.last = Some(poll_result);
        verdict
    }

    fn judge(&self, poll_result: &PollResult, now: Duration) -> Verdict {
        let silent = now.saturating_sub(self.unchanged_since);
        if let Some(since) = self.unheard_since {
            let unheard = now.saturating_sub(since);
            let is_silent = match poll_result.mmp {
                Mmp::Checked => false,
                Mmp::Open { silent_after, .. } => silent >= silent_after,
                _ => true,
            };
            if unheard >= LOCK_LAPSES_AFTER && is_silent {
                return Verdict::Gone(Gone::LockLapsed(unheard));
            }
        }
        match &poll_result.mmp {
            Mmp::Checked => Verdict::Checked,
            Mmp::Open { .. } if poll_result.wait().is_some_and(|wait| silent >= wait) => {
                Verdict::Gone(Gone::Silent(silent))
            }
            Mmp::Absent if poll_result.lock.is_none() && !self.has_locks => Verdict::Unknown,
            Mmp::Closed | Mmp::Absent if poll_result.lock.is_none() => Verdict::Gone(Gone::Closed),
            _ => Verdict::Owned(silent),
        }
    }

    /// Returns the time from `now` to the next poll: the interval, or less if the owner will have
    /// been silent for long enough before.
    #[must_use]
    pub fn next_poll(&self, now: Duration) -> Duration {
        let enough = self.last.as_ref().and_then(PollResult::wait).map(|wait| self.unchanged_since + wait);
        let left = enough.map_or(self.poll, |enough| enough.saturating_sub(now));
        left.clamp(SHORTEST_POLL, self.poll)
    }
}

/// Returns true if no sign shows that an owner lived between two polls.
fn shows_no_life_since(last: &PollResult, poll_result: &PollResult) -> bool {
    let mut last = last.clone();
    // If the servers no longer hear from the owner, that is not a sign of life.
    if let (Some(last), Some(now)) = (&mut last.lock, &poll_result.lock) {
        last.alive = now.alive;
    }
    last == *poll_result
}

#[cfg(test)]
mod tests;
