//! The time of a simulated device: when its requests complete, and sleeping until then.
//!
//! A device has a fixed number of slots. A request occupies the slot that is free first, for its
//! latency.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// Time before a deadline at which a sleep ends, in nanoseconds. The thread spins for the rest,
/// because sleeps end late.
const SPIN: u64 = 5_000;

/// The time of a device, in nanoseconds since it was made, and its slots.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    parallel: usize,
    /// Time at which each slot that was ever used becomes free, the earliest on top.
    slots: Mutex<BinaryHeap<Reverse<u64>>>,
}

/// The slots, locked for one batch of requests.
pub(super) struct Slots<'a> {
    free_at: MutexGuard<'a, BinaryHeap<Reverse<u64>>>,
    parallel: usize,
}

impl Clock {
    /// Starts a clock for `parallel` slots; 0 counts as 1.
    pub(super) fn new(parallel: usize) -> Self {
        Self { start: Instant::now(), parallel: parallel.max(1), slots: Mutex::default() }
    }

    /// Returns the current time.
    pub(super) fn now(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    /// Locks the slots.
    pub(super) fn slots(&self) -> Slots<'_> {
        Slots { free_at: self.slots.lock(), parallel: self.parallel }
    }

    /// Returns the moment shortly before `time` from which a thread spins, or `None` if it has
    /// passed.
    pub(super) fn spin_from(&self, time: u64, now: u64) -> Option<Instant> {
        let far = time.saturating_sub(now) > SPIN;
        far.then(|| self.start + Duration::from_nanos(time - SPIN))
    }

    /// Blocks until `time`.
    pub(super) fn wait_until(&self, time: u64) {
        reduce_timer_slack();
        let now = self.now();
        if self.spin_from(time, now).is_some() {
            std::thread::sleep(Duration::from_nanos(time - SPIN - now));
        }
        while self.now() < time {
            std::hint::spin_loop();
        }
    }
}

impl Slots<'_> {
    /// Assigns the slot that is free first to a request that takes `latency`, and returns when the
    /// request completes.
    ///
    /// Requests of the same latency complete in the order in which they were assigned.
    pub(super) fn assign(&mut self, now: u64, latency: u64) -> u64 {
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

/// Sets this thread's timer slack to 1 ns, once.
pub(super) fn reduce_timer_slack() {
    thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    if !DONE.replace(true) {
        // If the system refuses, sleeps end later and never earlier.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}

/// Returns a duration in nanoseconds; saturates at 584 years.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_assigned_in_the_order_in_which_they_become_free() {
        let clock = Clock::new(2);
        let mut slots = clock.slots();
        assert_eq!(slots.assign(0, 10), 10);
        assert_eq!(slots.assign(0, 100), 100);
        assert_eq!(slots.assign(0, 10), 20);
        assert_eq!(slots.assign(5, 10), 30);
        assert_eq!(slots.assign(90, 5), 95);
        assert_eq!(slots.assign(90, 5), 100);
    }

    #[test]
    fn an_idle_slot_is_used_before_a_new_one() {
        let clock = Clock::new(usize::MAX);
        let mut slots = clock.slots();
        for now in 0..100 {
            assert_eq!(slots.assign(now * 10, 10), now * 10 + 10);
        }
        assert_eq!(slots.free_at.len(), 1);
    }
}
