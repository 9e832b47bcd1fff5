//! Which thread carries out a request: the one that took it from the kernel, as long as another one is left to take
//! the next. So the server always hears the kernel, however many requests wait for the device, and the usual
//! request changes no thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The threads that take requests.
#[derive(Debug)]
pub(crate) struct Crew {
    /// Those that take requests now.
    taking: AtomicUsize,
    threads: usize,
    /// Requests taken so far.
    taken: AtomicU64,
}

/// Lets a thread work on a request, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Working<'a>(&'a Crew);

impl Crew {
    /// So many threads take requests.
    pub fn new(threads: usize) -> Self {
        Self { taking: AtomicUsize::new(threads), threads, taken: AtomicU64::new(0) }
    }

    /// Lets the calling thread, one of the crew, work on a request that may wait. `None` if no other would be left to
    /// take requests.
    pub fn work(&self) -> Option<Working<'_>> {
        self.taken.fetch_add(1, Ordering::Relaxed);
        // Relaxed: the count publishes nothing.
        let leave = |taking: usize| taking.checked_sub(1).filter(|&left| left > 0);
        self.taking.fetch_update(Ordering::Relaxed, Ordering::Relaxed, leave).ok().map(|_| Working(self))
    }

    /// Requests that were taken so far.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Threads that work on a request.
    pub fn working(&self) -> usize {
        self.threads - self.taking.load(Ordering::Relaxed)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.taking.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Crew;

    #[test]
    fn one_is_always_left() {
        let crew = Crew::new(3);
        let (first, second) = (crew.work(), crew.work());
        assert!(first.is_some() && second.is_some() && crew.work().is_none());
        assert_eq!((crew.taken(), crew.working()), (3, 2));
        drop(first);
        assert!(crew.work().is_some());
        assert!(Crew::new(1).work().is_none());
    }
}
