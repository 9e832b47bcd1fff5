//! Decides whether a thread polls for the next request before it blocks, based on the arrival of
//! earlier requests. The kernel decides in a similar way whether to poll before it halts a
//! processor (guest halt polling).

use std::time::{Duration, Instant};

use parext4_sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The longest time between two requests that counts as following closely.
const MAX_GAP: Duration = Duration::from_micros(200);
/// The longest duration of a short request. A longer one has most likely waited for the device or
/// for a lock.
const MAX_SHORT: Duration = Duration::from_micros(40);
/// Score from which on threads poll.
const POLL_SCORE: i32 = 16;
/// Upper limit of each of the two scores.
const MAX_SCORE: i32 = 64;
/// Amount by which a long request, a late one, or a poll without a request reduces the score. A
/// short request that was not late adds one.
const PENALTY: i32 = 8;

/// Amount by which a request reduces the pending score if no other request is pending when it ends.
/// Otherwise it adds one. So the score grows if a request is pending after more than seven of eight
/// requests.
const IDLE_PENALTY: i32 = 7;
/// Pending score from which on all threads read requests.
const SATURATED_SCORE: i32 = 32;

/// Two scores of the recent load. Threads update them without a lock and may lose updates: both are
/// estimates.
#[derive(Debug)]
pub(crate) struct PollPolicy {
    start: Instant,
    /// A score that grows with short requests that follow each other closely.
    score: AtomicI32,
    /// A score that grows with requests after which another one is pending already.
    pending_score: AtomicI32,
    /// Time at which the last request ended, in nanoseconds from `start`.
    last_end: AtomicU64,
}

impl PollPolicy {
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            score: AtomicI32::new(0),
            pending_score: AtomicI32::new(0),
            last_end: AtomicU64::new(0),
        }
    }

    /// Returns true if the next request is likely to arrive soon and to be short.
    pub fn should_poll(&self) -> bool {
        self.score.load(Ordering::Relaxed) >= POLL_SCORE
    }

    /// Records a request that a thread read at `received` and finished at `end`.
    pub fn record_request(&self, received: Instant, end: Instant) {
        let last_end = Duration::from_nanos(self.last_end.load(Ordering::Relaxed));
        let nanoseconds = u64::try_from((end - self.start).as_nanos()).unwrap_or(u64::MAX);
        self.last_end.store(nanoseconds, Ordering::Relaxed);
        let gap = (received - self.start).saturating_sub(last_end);
        let change = if end - received > MAX_SHORT || gap > MAX_GAP { -PENALTY } else { 1 };
        add(&self.score, change, -POLL_SCORE);
    }

    /// Records that a thread polled and no request arrived.
    pub fn record_timeout(&self) {
        add(&self.score, -PENALTY, -POLL_SCORE);
    }

    /// Records whether the next request was pending when one ended.
    pub fn record_pending(&self, is_pending: bool) {
        add(&self.pending_score, if is_pending { 1 } else { -IDLE_PENALTY }, 0);
    }

    /// Returns true if a request is usually pending when another one ends.
    pub fn is_saturated(&self) -> bool {
        self.pending_score.load(Ordering::Relaxed) >= SATURATED_SCORE
    }
}

/// Adds `change` to a score and limits it to `min..=MAX_SCORE`.
fn add(score: &AtomicI32, change: i32, min: i32) {
    let old = score.load(Ordering::Relaxed);
    let new = (old + change).clamp(min, MAX_SCORE);
    if new != old {
        score.store(new, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records `count` requests of `length` each, with `gap` before each, from `at` on.
    fn record(policy: &PollPolicy, at: &mut Instant, count: usize, length: Duration, gap: Duration) {
        for _ in 0..count {
            *at += gap;
            let received = *at;
            *at += length;
            policy.record_request(received, *at);
        }
    }

    #[test]
    fn short_requests_that_follow_each_other_closely_are_polled_for() {
        let policy = PollPolicy::new();
        let mut at = policy.start;
        let short = Duration::from_micros(10);
        record(&policy, &mut at, 15, short, short);
        assert!(!policy.should_poll());
        record(&policy, &mut at, 1, short, short);
        assert!(policy.should_poll());
        // Later short requests make up for one late request, but not for many.
        record(&policy, &mut at, 1, short, MAX_GAP * 2);
        assert!(!policy.should_poll());
        record(&policy, &mut at, 100, short, short);
        record(&policy, &mut at, 6, short, MAX_GAP * 2);
        assert!(policy.should_poll());
        record(&policy, &mut at, 1000, short, MAX_GAP * 2);
        assert!(!policy.should_poll());
    }

    #[test]
    fn six_long_requests_are_tolerated_but_not_ten() {
        let policy = PollPolicy::new();
        let mut at = policy.start;
        let (short, long) = (Duration::from_micros(10), MAX_SHORT * 2);
        record(&policy, &mut at, 100, short, short);
        record(&policy, &mut at, 6, long, short);
        assert!(policy.should_poll());
        record(&policy, &mut at, 4, long, short);
        record(&policy, &mut at, 31, short, short);
        assert!(!policy.should_poll());
        record(&policy, &mut at, 1, short, short);
        assert!(policy.should_poll());
        policy.record_timeout();
        assert!(!policy.should_poll());
    }

    #[test]
    fn the_load_is_saturated_if_requests_are_mostly_pending() {
        let policy = PollPolicy::new();
        // Records `count` requests; after one in `of` of them none is pending.
        let record = |count: u32, of: u32| (0..count).for_each(|nth| policy.record_pending(nth % of != 0));
        record(1000, 6);
        assert!(!policy.is_saturated());
        record(1000, 16);
        assert!(policy.is_saturated());
        record(64, 3);
        assert!(!policy.is_saturated());
    }
}
