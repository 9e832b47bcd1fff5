//! Atomic words in mapped memory, with the steps that the model checker schedules.

use std::sync::atomic::Ordering;

use super::model_step;

/// A reference to an atomic word in mapped memory, where it cannot be one of the model checker's
/// atomics. Each access is a step that the model checker schedules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a>(&'a std::sync::atomic::AtomicU64);

impl<'a> Word<'a> {
    pub(crate) fn new(word: &'a std::sync::atomic::AtomicU64) -> Self {
        Self(word)
    }

    pub(crate) fn load(self, order: Ordering) -> u64 {
        model_step();
        self.0.load(order)
    }

    pub(crate) fn store(self, value: u64, order: Ordering) {
        model_step();
        self.0.store(value, order);
    }

    pub(crate) fn fetch_or(self, bits: u64, order: Ordering) -> u64 {
        model_step();
        self.0.fetch_or(bits, order)
    }

    pub(crate) fn fetch_and(self, bits: u64, order: Ordering) -> u64 {
        model_step();
        self.0.fetch_and(bits, order)
    }

    pub(crate) fn fetch_sub(self, value: u64, order: Ordering) -> u64 {
        model_step();
        self.0.fetch_sub(value, order)
    }

    pub(crate) fn compare_exchange(self, old: u64, new: u64, order: Ordering) -> Result<u64, u64> {
        model_step();
        self.0.compare_exchange(old, new, order, Ordering::Acquire)
    }

    /// Replaces the word by the result of `change`, and returns the old word. If `change` returns
    /// `None`, the word stays, and is returned as the error. Loads are `Acquire`; `order` is the
    /// order of the exchange.
    pub(crate) fn update(self, order: Ordering, change: impl Fn(u64) -> Option<u64>) -> Result<u64, u64> {
        let mut old = self.load(Ordering::Acquire);
        while let Some(new) = change(old) {
            match self.compare_exchange(old, new, order) {
                Ok(_) => return Ok(old),
                Err(now) => old = now,
            }
        }
        Err(old)
    }
}
