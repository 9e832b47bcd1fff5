//! One volume with its owner and its standby.

use std::time::Duration;

use parext4::device::LockOwner;
use parext4_standby::{Mmp, PollResult, Verdict, Watch};
use testkit::rng::Rng;

use crate::END;
use crate::storage::Storage;

/// Time between two signs of life of an owner: `mmp_update_interval`.
const UPDATE: Duration = Duration::from_secs(5);
/// The wait that the MMP block asks for with this interval.
const WAIT: Duration = Duration::from_secs(21);
/// The time after which the servers of RBD give up a client that they do not hear from.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// What happens to a volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct Volume {
    /// When the owner is killed.
    pub killed: Option<Duration>,
    /// When the owner is stopped, and for how long.
    pub owner_stops: Option<(Duration, Duration)>,
    /// When the standby is stopped, and for how long.
    pub standby_stops: Option<(Duration, Duration)>,
}

/// Polls and takeover of one standby.
#[derive(Debug)]
pub struct Outcome {
    /// When it polled.
    pub polls: Vec<Duration>,
    /// When it had taken the volume over.
    pub takeover: Option<Duration>,
}

impl Volume {
    /// Simulates the owner and the standby to the end, or to the takeover.
    pub fn simulate(&self, poll: Duration, storage: Storage, rng: &mut Rng) -> Outcome {
        let signs = self.signs_of_life(storage, rng);
        let mut watch = Watch::new(poll);
        let mut polls = Vec::new();
        let mut now = milliseconds(rng.below(poll.as_millis() as u64));
        while now < END {
            let start = now;
            polls.push(start);
            // The standby may be stopped while it waits for the answer.
            let answered = storage.done(start, rng);
            let end = resumed(answered, self.standby_stops);
            match watch.saw(self.poll_result(&signs, answered), start, end) {
                Verdict::Gone(_) => return Outcome { polls, takeover: Some(end + time_to_open(end, rng)) },
                _ => now = resumed(end + watch.next_poll(end), self.standby_stops),
            }
        }
        Outcome { polls, takeover: None }
    }

    /// Returns when the owner's updates of the MMP block reach the storage.
    fn signs_of_life(&self, storage: Storage, rng: &mut Rng) -> Vec<Duration> {
        let mut signs = vec![Duration::ZERO];
        let mut next = milliseconds(rng.below(UPDATE.as_millis() as u64));
        while next < self.killed.unwrap_or(END) {
            let done = storage.done(next, rng);
            signs.push(done);
            next = resumed((next + UPDATE).max(done), self.owner_stops);
        }
        signs
    }

    fn poll_result(&self, signs: &[Duration], at: Duration) -> PollResult {
        let sequence = signs.partition_point(|sign| *sign <= at) as u32;
        let alive = self.killed.is_none_or(|killed| at < killed + LOCK_TIMEOUT);
        let lock = LockOwner { name: "owner".into(), alive };
        let mmp = Mmp::Open { node: "owner".into(), sequence, wait: WAIT, silent_after: 2 * UPDATE };
        PollResult { lock: Some(lock), mmp }
    }
}

/// Returns the time from the standby's decision to its mount: the monitors of Ceph put the owner on
/// their blocklist, once a second for all takeovers of that second; the volume's journal is
/// replayed, and the volume is mounted.
fn time_to_open(decided: Duration, rng: &mut Rng) -> Duration {
    let to_next_second = Duration::from_secs(decided.as_secs() + 1) - decided;
    to_next_second + milliseconds(100 + rng.below(900))
}

/// Returns when a process continues that does something at `time`, if it is stopped then.
fn resumed(time: Duration, stop: Option<(Duration, Duration)>) -> Duration {
    match stop {
        Some((begin, length)) if (begin..begin + length).contains(&time) => begin + length,
        _ => time,
    }
}

fn milliseconds(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
