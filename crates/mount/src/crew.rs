//! Which thread carries out a request: the one that took it from the kernel, as long as another one is left to take
//! the next. So the server always hears the kernel, however many requests wait for the device, and the usual
//! request changes no thread.
//!
//! While requests are only handed on, most of the crew rests: the kernel would wake a thread for each request, and it would
//! find that another one was quicker.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Nobody is told when the kernel asks no more, so a thread that rests looks by itself.
const REST: Duration = Duration::from_millis(20);

/// The threads that take requests.
#[derive(Debug)]
pub(crate) struct Crew {
    /// Those that take requests now.
    taking: AtomicUsize,
    threads: usize,
    /// Requests taken so far.
    taken: AtomicU64,
    rest: Mutex<Rest>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct Rest {
    /// Threads that rest and are not called.
    resting: usize,
    /// Those that were called and have not heard it yet. They count as taking requests.
    called: usize,
}

/// Lets a thread work on a request, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Working<'a>(&'a Crew);

impl Crew {
    /// So many threads take requests.
    pub fn new(threads: usize) -> Self {
        Self {
            taking: AtomicUsize::new(threads),
            threads,
            taken: AtomicU64::new(0),
            rest: Mutex::default(),
            called: Condvar::new(),
        }
    }

    /// Notes that a thread has taken a request.
    pub fn note(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets the calling thread, one of the crew, work on a request that may wait. `None` if no other would be left to
    /// take requests.
    pub fn work(&self) -> Option<Working<'_>> {
        // Relaxed: the count publishes nothing.
        let leave = |taking: usize| taking.checked_sub(1).filter(|&left| left > 0);
        let left = self.taking.fetch_update(Ordering::Relaxed, Ordering::Relaxed, leave).is_ok();
        (left || self.call()).then(|| Working(self))
    }

    /// Has a thread that rests take requests in place of the calling one. False if there is none.
    fn call(&self) -> bool {
        let mut rest = self.rest.lock();
        let Some(resting) = rest.resting.checked_sub(1) else { return false };
        (rest.resting, rest.called) = (resting, rest.called + 1);
        self.called.notify_one();
        true
    }

    /// Lets the calling thread, which has handed a request on, rest until it is called or a moment has passed; not at all
    /// if fewer than `left` would be left to take requests.
    pub fn rest(&self, left: usize) {
        let leave = |taking: usize| taking.checked_sub(1).filter(|&others| others >= left.max(1));
        if self.taking.fetch_update(Ordering::Relaxed, Ordering::Relaxed, leave).is_err() {
            return;
        }
        let until = Instant::now() + REST;
        let mut rest = self.rest.lock();
        rest.resting += 1;
        while rest.called == 0 && !self.called.wait_until(&mut rest, until).timed_out() {}
        match rest.called.checked_sub(1) {
            Some(called) => rest.called = called,
            None => {
                rest.resting -= 1;
                self.taking.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Requests that were taken so far.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Threads that work on a request.
    pub fn working(&self) -> usize {
        let resting = self.rest.lock().resting;
        self.threads.saturating_sub(self.taking.load(Ordering::Relaxed) + resting)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.taking.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Crew, Ordering};

    #[test]
    fn one_is_always_left() {
        let crew = Crew::new(3);
        crew.note();
        let (first, second) = (crew.work(), crew.work());
        assert!(first.is_some() && second.is_some() && crew.work().is_none());
        assert_eq!((crew.taken(), crew.working()), (1, 2));
        drop(first);
        assert!(crew.work().is_some());
        assert!(Crew::new(1).work().is_none());
    }

    #[test]
    fn who_rests_is_called_before_nobody_is_left() {
        let crew = Crew::new(2);
        std::thread::scope(|scope| {
            let resting = scope.spawn(|| crew.rest(1));
            while crew.taking.load(Ordering::Relaxed) == 2 {
                std::thread::yield_now();
            }
            // The last one does not rest, but may work: the other takes its place, called or by itself.
            crew.rest(1);
            while crew.work().is_none() {}
            resting.join().unwrap();
        });
        assert_eq!((crew.taking.load(Ordering::Relaxed), crew.working()), (2, 0));
    }
}
