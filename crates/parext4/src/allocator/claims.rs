//! Claims of blocks by operations in flight, and the threads that wait for these claims to end.
//!
//! Responsible for telling a thread that found no space whether blocks may come back without it. Not responsible for what the thread
//! does meanwhile: [`body_update::space`](crate::body_update) decides that.
//!
//! An operation claims more blocks than it uses at last: a conversion claims the most that it may need, and a request that fails
//! in part releases the rest. So a claim that fails while other claims are in flight does not mean that the volume is full (H40).
//!
//! 1. A thread counts its claim before it takes blocks from the counter, and ends it after it has returned them. So a thread that finds
//!    too few unclaimed blocks also finds the claims that have them.
//! 2. A thread whose claim has failed becomes a [`Waiter`], and tries again. From then on every end of a claim, and every run of blocks that
//!    is freed or becomes allocatable, counts as an *event*.
//! 3. If it finds no claim in flight, and no other thread has caused an event since its attempt, no block can come back: the volume
//!    is full.

use std::time::Duration;

use super::Allocator;
use crate::stripes::Stripes;
use crate::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use crate::sync::{Condvar, Mutex, Rank, thread_local};

/// Interval at which a waiting thread checks what causes no event, such as the last use of a removed file.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

thread_local! {
    /// Number of events that this thread has caused. Its own attempts tell a waiting thread nothing.
    static CAUSED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The claims in flight, and their waiters.
#[derive(Debug)]
pub(super) struct Claims {
    in_flight: Stripes<AtomicI64, 16>,
    waiters: AtomicU32,
    events: Mutex<u64>,
    changed: Condvar,
}

impl Claims {
    pub(super) fn new() -> Self {
        Self {
            in_flight: Stripes::default(),
            waiters: AtomicU32::new(0),
            events: Mutex::new(Rank::Leaf, 0),
            changed: Condvar::default(),
        }
    }

    /// Counts a claim that is about to be made.
    pub(super) fn begin(&self) {
        self.in_flight.mine().fetch_add(1, Ordering::SeqCst);
    }

    /// Ends a claim, whose blocks are used or were returned.
    pub(super) fn end(&self) {
        self.in_flight.mine().fetch_sub(1, Ordering::SeqCst);
        self.note_event();
    }

    /// Wakes the waiting threads, because blocks came back or a claim has ended. Costs a load if no thread waits.
    pub(super) fn note_event(&self) {
        // SeqCst: a thread that begins to wait after this load sees the blocks that were returned before it.
        if self.waiters.load(Ordering::SeqCst) > 0 {
            *self.events.lock() += 1;
            CAUSED.with(|caused| caused.set(caused.get() + 1));
            self.changed.notify_all();
        }
    }
}

/// A thread that has found no space. All events are counted while it lives.
#[derive(Debug)]
pub(crate) struct Waiter<'a>(&'a Claims);

/// The events that a thread has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Waiter<'_> {
    /// Returns a value that changes with each event that another thread causes.
    pub(crate) fn events(&self) -> Seen {
        Seen(self.0.events.lock().wrapping_sub(caused()))
    }

    /// Returns the number of claims in flight.
    pub(crate) fn claims(&self) -> i64 {
        self.0.in_flight.iter().map(|claims| claims.load(Ordering::SeqCst)).sum()
    }

    /// Blocks until another thread has caused an event since `seen`, at most for the interval after which other causes are checked.
    pub(crate) fn wait(&self, seen: Seen) {
        let unchanged = |events: &mut u64| Seen(events.wrapping_sub(caused())) == seen;
        self.0.changed.wait_while_for(&mut self.0.events.lock(), unchanged, CHECK_INTERVAL);
    }

    /// Blocks for the interval after which other causes are checked, whatever happens.
    pub(crate) fn pause(&self) {
        self.0.changed.wait_while_for(&mut self.0.events.lock(), |_| true, CHECK_INTERVAL);
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::SeqCst);
    }
}

fn caused() -> u64 {
    CAUSED.with(std::cell::Cell::get)
}

impl Allocator {
    /// Counts events from now on, for a thread that has found no space and is about to try again.
    pub(crate) fn begin_waiting(&self) -> Waiter<'_> {
        self.claims.waiters.fetch_add(1, Ordering::SeqCst);
        Waiter(&self.claims)
    }
}
