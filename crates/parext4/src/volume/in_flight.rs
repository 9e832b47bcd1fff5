//! Operations on file data that are under way, which closing waits for.

use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::yield_now;

/// Counters are spread over so many cache lines.
const STRIPES: usize = 16;

/// Counts operations, until it is closed.
///
/// Who enters counts itself and then looks whether the gate is closed; who closes it does so and then looks
/// at the counts. Both are sequentially consistent, so one of them sees the other.
#[derive(Debug)]
pub(crate) struct InFlight {
    closed: AtomicBool,
    stripes: [Stripe; STRIPES],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU32);

/// An operation under way, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entered<'a>(&'a Stripe);

impl InFlight {
    pub(super) fn new() -> Self {
        Self { closed: AtomicBool::new(false), stripes: std::array::from_fn(|_| Stripe::default()) }
    }

    /// Begins an operation.
    ///
    /// # Errors
    /// If the volume is closed.
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        let stripe = &self.stripes[stripe_of_thread()];
        stripe.0.fetch_add(1, Ordering::SeqCst);
        let entered = Entered(stripe);
        self.check_open()?;
        Ok(entered)
    }

    /// An error if the volume is closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::SeqCst) {
            Err(Error::Stopped("the volume is closed".into()))
        } else {
            Ok(())
        }
    }

    /// Lets nobody enter any more and waits until all have left. Returns whether it was open.
    pub(super) fn close(&self) -> bool {
        let was_open = !self.closed.swap(true, Ordering::SeqCst);
        while self.stripes.iter().any(|stripe| stripe.0.load(Ordering::SeqCst) > 0) {
            yield_now();
        }
        was_open
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A stripe that few other threads use.
fn stripe_of_thread() -> usize {
    use std::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    STRIPE.with(|stripe| *stripe)
}
