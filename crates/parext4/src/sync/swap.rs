//! Shared values that readers load without a lock (`arc_swap`).

use std::sync::Arc;

use super::model_step;
use crate::fault::{Fault, when_planted};

/// The value that was loaded from a [`Swap`].
pub(crate) type Guard<T> = arc_swap::Guard<Arc<T>>;

/// A shared value that readers load without a lock and writers replace. A load orders as `Acquire`,
/// a store as `Release`.
#[derive(Debug)]
pub(crate) struct Swap<T>(arc_swap::ArcSwap<T>);

impl<T> Swap<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self(arc_swap::ArcSwap::new(value))
    }

    pub(crate) fn load(&self) -> Guard<T> {
        model_step();
        self.0.load()
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        model_step();
        self.0.store(value);
    }
}

/// A [`Swap`] that may be empty.
#[derive(Debug)]
pub(crate) struct SwapOption<T>(arc_swap::ArcSwapOption<T>);

impl<T> SwapOption<T> {
    pub(crate) fn new(value: Option<Arc<T>>) -> Self {
        Self(arc_swap::ArcSwapOption::new(value))
    }

    pub(crate) fn load(&self) -> arc_swap::Guard<Option<Arc<T>>> {
        model_step();
        self.0.load()
    }

    pub(crate) fn store(&self, value: Option<Arc<T>>) {
        model_step();
        self.0.store(value);
    }

    /// Replaces the value by the result of `next`. Retries if another thread has replaced it
    /// meanwhile. An empty swap stays empty.
    pub(crate) fn update(&self, next: impl Fn(&T) -> Option<Arc<T>>) {
        loop {
            let before = self.load();
            let Some(value) = &*before else { return };
            let after = next(value);
            model_step();
            when_planted!(Fault::PublishUnchecked, return self.0.store(after));
            let found = self.0.compare_and_swap(&*before, after);
            if found.as_ref().is_some_and(|found| Arc::ptr_eq(found, value)) {
                return;
            }
        }
    }
}
