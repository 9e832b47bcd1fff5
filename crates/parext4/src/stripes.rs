//! Values spread over cache lines, so that threads which update counters do not contend for one
//! line.

use std::ops::Deref;

/// `N` copies of a value, each on cache lines of its own. A thread always uses the same copy, which
/// it shares with few other threads.
#[derive(Debug)]
pub(crate) struct Stripes<T, const N: usize>([Padded<T>; N]);

/// A value with cache lines of its own: two lines of 64 bytes, because processors fetch them in
/// pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Default, const N: usize> Default for Stripes<T, N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Padded::default()))
    }
}

impl<T, const N: usize> Stripes<T, N> {
    /// Returns the copy of this thread.
    pub(crate) fn mine(&self) -> &T {
        &self.0[number_of_thread() % N]
    }

    /// Returns all copies.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(Deref::deref)
    }
}

/// Returns the number of this thread. Threads are numbered in the order of their first call.
#[cfg(not(shuttle))]
pub(crate) fn number_of_thread() -> usize {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // The cell needs no initialisation and no destructor, so it is valid until the thread ends.
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

/// Returns the number that the model checker gives this thread, so that a repeated schedule uses
/// the same copies.
#[cfg(shuttle)]
pub(crate) fn number_of_thread() -> usize {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    crate::sync::thread::current().id().hash(&mut hasher);
    crate::convert::to_usize(hasher.finish() >> 32)
}
