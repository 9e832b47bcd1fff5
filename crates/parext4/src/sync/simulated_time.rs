//! The time of a simulation, which passes only while threads wait for it. This module exists only
//! with `--cfg shuttle`.
//!
//! This module keeps the time, and wakes the threads that wait for a deadline. A thread of the
//! simulation calls [`advance`] in a loop, and its scheduler runs that thread when no other thread
//! can run. In a model, which does not call [`begin`], no time passes, and no wait has a deadline.
//! Invariant: no wake-up is lost, because a thread's timer stays until the thread drops it, and
//! each call of [`advance`] wakes all threads whose deadline has passed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parext4_sync::thread::{self, Thread};
use parext4_sync::{Condvar, MutexGuard};

/// The end of all simulations, in the year 5138.
const LAST: Duration = Duration::from_secs(100_000_000_000);

/// The deadline of a timer, and a number that no other timer has.
type Key = (Duration, u64);

/// The thread or the condition variable that waits for a timer.
#[derive(Clone, Debug)]
enum Waiter {
    Thread(Thread),
    Condvar(Arc<Condvar>),
}

impl Waiter {
    fn wake(&self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Condvar(condvar) => condvar.notify_all(),
        }
    }
}

#[derive(Debug)]
struct Time {
    now: Duration,
    timers: BTreeMap<Key, Waiter>,
    number: u64,
    /// The thread in [`advance`], while it waits for a timer.
    idle: Option<Thread>,
    has_ended: bool,
}

// A simulation runs all its threads on one thread of the system.
std::thread_local! {
    static TIME: RefCell<Option<Time>> = const { RefCell::new(None) };
}

fn with<R>(use_time: impl FnOnce(&mut Time) -> R) -> Option<R> {
    TIME.with_borrow_mut(|time| time.as_mut().map(use_time))
}

/// Begins a simulation at `now`, a time since 1970.
pub fn begin(now: Duration) {
    let time = Time { now, timers: BTreeMap::new(), number: 0, idle: None, has_ended: false };
    TIME.set(Some(time));
}

/// Ends the simulation: [`advance`] returns false from now on.
pub fn end() {
    let idle = with(|time| {
        time.has_ended = true;
        time.idle.take()
    });
    if let Some(thread) = idle.flatten() {
        thread.unpark();
    }
}

/// Returns the time since 1970, or `None` outside a simulation.
pub fn now() -> Option<Duration> {
    with(|time| time.now)
}

/// Advances the time to the next deadline and wakes the threads that wait for it. Blocks while no
/// thread waits for a deadline. Returns false once the simulation has ended.
pub fn advance() -> bool {
    let due = with(|time| {
        if time.has_ended {
            return None;
        }
        match time.timers.first_key_value() {
            Some((&(deadline, _), _)) => time.now = time.now.max(deadline),
            None => time.idle = Some(thread::current()),
        }
        let due = time.timers.range(..=(time.now, u64::MAX)).map(|(_, waiter)| waiter.clone());
        Some(due.collect::<Vec<_>>())
    });
    let Some(due) = due.flatten() else { return false };
    if due.is_empty() {
        thread::park();
    }
    due.iter().for_each(Waiter::wake);
    thread::yield_now();
    true
}

/// Blocks the thread for `time`.
pub fn sleep(time: Duration) {
    let timer = Timer::of_thread(time);
    while !timer.is_over() {
        thread::park();
    }
}

/// Blocks the thread until another thread unparks it, but at most for `time`. Also returns if the
/// thread was unparked before.
pub fn park_timeout(time: Duration) {
    let timer = Timer::of_thread(time);
    if !timer.is_over() {
        thread::park();
    }
}

/// Blocks while `condition` holds, and in a simulation at most for `time`.
pub(super) fn wait_while_for<T>(
    condvar: &Arc<Condvar>,
    guard: &mut MutexGuard<'_, T>,
    mut condition: impl FnMut(&mut T) -> bool,
    time: Duration,
) {
    let timer = Timer::of_condvar(time, condvar);
    while !timer.is_over() && condition(guard) {
        condvar.wait(guard);
    }
}

/// A deadline. Dropping it ends the wake-ups.
#[derive(Debug)]
struct Timer(Option<Key>);

impl Timer {
    fn of_thread(time: Duration) -> Self {
        Self::start(time, || Waiter::Thread(thread::current()))
    }

    /// Returns a timer that notifies all threads of a condition variable. Outside a simulation its
    /// deadline never passes.
    fn of_condvar(time: Duration, condvar: &Arc<Condvar>) -> Self {
        Self::start(time, || Waiter::Condvar(Arc::clone(condvar)))
    }

    fn start(after: Duration, waiter: impl FnOnce() -> Waiter) -> Self {
        let started = with(|time| {
            // A deadline at or after `LAST` counts as none.
            let deadline = time.now.checked_add(after).filter(|deadline| *deadline < LAST)?;
            time.number += 1;
            let key = (deadline, time.number);
            time.timers.insert(key, waiter());
            Some((key, time.idle.take()))
        });
        let Some((key, idle)) = started.flatten() else { return Self(None) };
        if let Some(thread) = idle {
            thread.unpark();
        }
        Self(Some(key))
    }

    /// Returns true once the deadline has passed.
    fn is_over(&self) -> bool {
        self.0.is_some_and(|(deadline, _)| with(|time| time.now >= deadline).unwrap_or(true))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(key) = self.0 {
            with(|time| time.timers.remove(&key));
        }
    }
}
