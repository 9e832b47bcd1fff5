//! A value spread over cache lines, so that threads that count do not meet.

use std::ops::Deref;

/// `N` copies of a value, each with cache lines of its own. A thread always uses the same copy, and shares it
/// with few others.
#[derive(Debug)]
pub(crate) struct Stripes<T, const N: usize>([Padded<T>; N]);

/// A value with cache lines of its own: two of 64 bytes, which processors fetch together.
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
    /// The copy of this thread.
    pub(crate) fn mine(&self) -> &T {
        &self.0[number_of_thread() % N]
    }

    /// All copies.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(Deref::deref)
    }
}

/// Threads are numbered as they come.
#[cfg(not(shuttle))]
pub(crate) fn number_of_thread() -> usize {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Nothing to set up and nothing to drop, so it is there as long as the thread is.
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

/// The model checker's own numbers, so that a schedule which is run again takes the same copies.
#[cfg(shuttle)]
pub(crate) fn number_of_thread() -> usize {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    shuttle::thread::current().id().hash(&mut hasher);
    usize::try_from(hasher.finish() >> 32).unwrap_or(0)
}
