//! When the requests on a simulated device are due, and sleeping until then.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// How far a sleep ends before its time; the rest is spun.
const SPIN: u64 = 5_000;

/// The device's time, in nanoseconds since it was made, and its places.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    parallel: usize,
    /// When each place that was ever used becomes free, the earliest on top.
    places: Mutex<BinaryHeap<Reverse<u64>>>,
}

/// The places, locked for one batch of requests.
pub(super) struct Places<'a> {
    free_at: MutexGuard<'a, BinaryHeap<Reverse<u64>>>,
    parallel: usize,
}

impl Clock {
    pub(super) fn new(parallel: usize) -> Self {
        Self { start: Instant::now(), parallel: parallel.max(1), places: Mutex::default() }
    }

    pub(super) fn now(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    pub(super) fn places(&self) -> Places<'_> {
        Places { free_at: self.places.lock(), parallel: self.parallel }
    }

    /// The moment shortly before `time` from which one spins, as sleeps end late; none if that is past.
    pub(super) fn spin_from(&self, time: u64, now: u64) -> Option<Instant> {
        let far = time.saturating_sub(now) > SPIN;
        far.then(|| self.start + Duration::from_nanos(time - SPIN))
    }

    /// Sleeps until `time`.
    pub(super) fn wait_until(&self, time: u64) {
        sharpen_timer();
        let now = self.now();
        if self.spin_from(time, now).is_some() {
            std::thread::sleep(Duration::from_nanos(time - SPIN - now));
        }
        while self.now() < time {
            std::hint::spin_loop();
        }
    }
}

impl Places<'_> {
    /// Gives a request that takes `latency` the place that is free first; returns when it is done.
    ///
    /// Never earlier than for a request of the same latency before.
    pub(super) fn book(&mut self, now: u64, latency: u64) -> u64 {
        let all_used = self.free_at.len() >= self.parallel;
        if let Some(mut first) = self.free_at.peek_mut()
            && (all_used || first.0 <= now)
        {
            first.0 = first.0.max(now).saturating_add(latency);
            return first.0;
        }
        let due = now.saturating_add(latency);
        self.free_at.push(Reverse(due));
        due
    }
}

/// Sets this thread's timer slack to 1 ns.
pub(super) fn sharpen_timer() {
    thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    if !DONE.replace(true) {
        // Where this is refused the sleeps are longer, never shorter.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}

/// Saturates at 584 years.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_in_the_order_in_which_they_become_free() {
        let clock = Clock::new(2);
        let mut places = clock.places();
        assert_eq!(places.book(0, 10), 10);
        assert_eq!(places.book(0, 100), 100);
        assert_eq!(places.book(0, 10), 20);
        assert_eq!(places.book(5, 10), 30);
        assert_eq!(places.book(90, 5), 95);
        assert_eq!(places.book(90, 5), 100);
    }

    #[test]
    fn an_idle_place_is_used_before_a_new_one() {
        let clock = Clock::new(usize::MAX);
        let mut places = clock.places();
        for now in 0..100 {
            assert_eq!(places.book(now * 10, 10), now * 10 + 10);
        }
        assert_eq!(places.free_at.len(), 1);
    }
}
