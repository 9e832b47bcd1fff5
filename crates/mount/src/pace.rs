//! How requests come: one upon the other, or now and then. What to wait for actively is judged by what has come of it
//! before, as the kernel does when it polls instead of halting a processor (guest halt polling).

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A request that comes later than this after another does not come upon it.
const GAP: Duration = Duration::from_micros(200);
/// What takes longer has waited for something, most likely.
const LONG: Duration = Duration::from_micros(40);
/// The score from which on requests count as brisk, and the highest.
const BRISK: i32 = 16;
const BEST: i32 = 64;
/// What a long request, a late one, or a wait in vain takes from the score; so many short ones make up for it.
const SETBACK: i32 = 8;

/// What a request that did not wait takes from the score of those that did: it grows if more than seven of eight do.
const ALONE: i32 = 7;
/// The score from which on requests count as crowded.
const CROWDED: i32 = 32;

/// A score of short requests that come upon each other. All of it is an estimate, so threads may mix theirs up.
#[derive(Debug)]
pub(crate) struct Pace {
    start: Instant,
    score: AtomicI32,
    /// Of requests that waited already when the one before was over.
    waiting: AtomicI32,
    /// When the last request was over, in nanoseconds from the start on.
    over: AtomicU64,
}

impl Pace {
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            score: AtomicI32::new(0),
            waiting: AtomicI32::new(0),
            over: AtomicU64::new(0),
        }
    }

    /// Whether the next request is likely to come soon, and to be short.
    pub fn is_brisk(&self) -> bool {
        self.score.load(Ordering::Relaxed) >= BRISK
    }

    /// Notes a request that was taken and is over, as far as the thread that took it goes.
    pub fn note(&self, taken: Instant, over: Instant) {
        let before = Duration::from_nanos(self.over.load(Ordering::Relaxed));
        let nanoseconds = u64::try_from((over - self.start).as_nanos()).unwrap_or(u64::MAX);
        self.over.store(nanoseconds, Ordering::Relaxed);
        let waited = (taken - self.start).saturating_sub(before);
        let by = if over - taken > LONG || waited > GAP { -SETBACK } else { 1 };
        change(&self.score, by, -BRISK);
    }

    /// Notes that the next request has not come soon.
    pub fn set_back(&self) {
        change(&self.score, -SETBACK, -BRISK);
    }

    /// Notes whether the next request waits already, now that one is over.
    pub fn note_waiting(&self, waits: bool) {
        change(&self.waiting, if waits { 1 } else { -ALONE }, 0);
    }

    /// Whether requests mostly wait.
    pub fn is_crowded(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= CROWDED
    }
}

fn change(score: &AtomicI32, by: i32, least: i32) {
    let old = score.load(Ordering::Relaxed);
    let new = (old + by).clamp(least, BEST);
    if new != old {
        score.store(new, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `count` requests of `length` each, with `gap` between them, from `at` on.
    fn take(pace: &Pace, at: &mut Instant, count: usize, length: Duration, gap: Duration) {
        for _ in 0..count {
            *at += gap;
            let taken = *at;
            *at += length;
            pace.note(taken, *at);
        }
    }

    #[test]
    fn short_requests_that_come_upon_each_other_are_brisk() {
        let pace = Pace::new();
        let mut at = pace.start;
        let short = Duration::from_micros(10);
        take(&pace, &mut at, 15, short, short);
        assert!(!pace.is_brisk());
        take(&pace, &mut at, 1, short, short);
        assert!(pace.is_brisk());
        // One that is late is forgiven later; many are not.
        take(&pace, &mut at, 1, short, GAP * 2);
        assert!(!pace.is_brisk());
        take(&pace, &mut at, 100, short, short);
        take(&pace, &mut at, 6, short, GAP * 2);
        assert!(pace.is_brisk());
        take(&pace, &mut at, 1000, short, GAP * 2);
        assert!(!pace.is_brisk());
    }

    #[test]
    fn some_long_ones_are_forgiven_but_not_many() {
        let pace = Pace::new();
        let mut at = pace.start;
        let (short, long) = (Duration::from_micros(10), LONG * 2);
        take(&pace, &mut at, 100, short, short);
        take(&pace, &mut at, 6, long, short);
        assert!(pace.is_brisk());
        take(&pace, &mut at, 4, long, short);
        take(&pace, &mut at, 31, short, short);
        assert!(!pace.is_brisk());
        take(&pace, &mut at, 1, short, short);
        assert!(pace.is_brisk());
        pace.set_back();
        assert!(!pace.is_brisk());
    }

    #[test]
    fn requests_that_mostly_wait_are_crowded() {
        let pace = Pace::new();
        // So many, of which one of each `of` did not wait.
        let note = |count: u32, of: u32| (0..count).for_each(|nth| pace.note_waiting(nth % of != 0));
        note(1000, 6);
        assert!(!pace.is_crowded());
        note(1000, 16);
        assert!(pace.is_crowded());
        note(64, 3);
        assert!(!pace.is_crowded());
    }
}
