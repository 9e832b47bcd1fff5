//! A value spread over cache lines, so that threads that count do not meet.

use std::sync::atomic::{AtomicUsize, Ordering};

/// `N` copies of a value, each with cache lines of its own. A thread always uses the same copy, and shares it
/// with few others.
#[derive(Debug)]
pub(crate) struct Stripes<T, const N: usize>([Stripe<T>; N]);

/// Two lines of 64 bytes, which processors fetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe<T>(T);

impl<T: Default, const N: usize> Default for Stripes<T, N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Stripe::default()))
    }
}

impl<T, const N: usize> Stripes<T, N> {
    /// The copy of this thread.
    pub(crate) fn mine(&self) -> &T {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        // A thread that is being torn down uses any.
        &self.0[NUMBER.try_with(|number| *number).unwrap_or(0) % N].0
    }

    /// All copies.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|stripe| &stripe.0)
    }
}
