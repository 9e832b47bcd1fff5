//! The synchronisation primitives of the engine, each lock with its [`Rank`].
//!
//! One module, so that `--cfg shuttle` can swap them for a model checker's.

use crate::fault::{Fault, planted};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::time::Duration;

mod lock_order;

use lock_order::hold_tried;
pub(crate) use lock_order::{Held, Rank, hold};

#[cfg(not(shuttle))]
mod raw {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread::yield_now;
    #[cfg(debug_assertions)]
    pub(crate) use std::thread_local;
}

#[cfg(shuttle)]
mod raw;

pub(crate) use raw::{atomic, yield_now};
pub(crate) use std::sync::Arc;

/// What a [`Swap`] holds, loaded.
pub(crate) type Guard<T> = arc_swap::Guard<Arc<T>>;

/// A mutex of a known rank.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    rank: Rank,
    inner: raw::Mutex<T>,
}

/// Exclusive access to what a [`Mutex`] guards.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    inner: raw::MutexGuard<'a, T>,
    _held: Held,
}

impl<T> Mutex<T> {
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Self { rank, inner: raw::Mutex::new(value) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let held = hold(self.rank);
        MutexGuard { inner: self.inner.lock(), _held: held }
    }

    /// Acquires the lock if it is free. This does not wait, so the caller may hold locks of any rank.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { inner, _held: hold_tried(self.rank) })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A readers-writer lock of a known rank.
#[derive(Debug)]
pub(crate) struct RwLock<T> {
    rank: Rank,
    inner: raw::RwLock<T>,
}

/// Shared access to what an [`RwLock`] guards.
#[derive(Debug)]
pub(crate) struct ReadGuard<'a, T> {
    inner: raw::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// Exclusive access to what an [`RwLock`] guards.
#[derive(Debug)]
pub(crate) struct WriteGuard<'a, T> {
    inner: raw::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Self { rank, inner: raw::RwLock::new(value) }
    }

    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        let held = hold(self.rank);
        ReadGuard { inner: self.inner.read(), _held: held }
    }

    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        let held = hold(self.rank);
        WriteGuard { inner: self.inner.write(), _held: held }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A shared value that readers load without a lock and writers replace. It orders like an `Acquire` load and
/// a `Release` store.
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

    /// Puts what `next` makes of the value into its place, again if somebody was faster. What is empty stays so.
    pub(crate) fn update(&self, next: impl Fn(&T) -> Option<Arc<T>>) {
        loop {
            let before = self.load();
            let Some(value) = &*before else { return };
            let after = next(value);
            model_step();
            if planted(Fault::UpdateBlindly) {
                return self.0.store(after);
            }
            let found = self.0.compare_and_swap(&*before, after);
            if found.as_ref().is_some_and(|found| Arc::ptr_eq(found, value)) {
                return;
            }
        }
    }
}

/// An atomic word of memory that the allocator has zeroed; views of one word are one word.
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

    /// Changes the word by `change`, unless that says `None`; returns what it was, or what it is. Who reads it so
    /// does it with `Acquire`.
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

/// Waits for a moment, for something that another thread is just doing.
pub(crate) fn spin() {
    #[cfg(not(shuttle))]
    std::hint::spin_loop();
    #[cfg(shuttle)]
    yield_now();
}

/// The model checker does not know of [`Word`] and [`Swap`]: this is a step of one of its own words instead. It does not
/// yield, as that would say that the thread waits.
fn model_step() {
    #[cfg(shuttle)]
    atomic::AtomicBool::new(false).load(Ordering::SeqCst);
}

/// A condition variable for a [`Mutex`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(raw::Condvar);

impl Condvar {
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    /// Blocks while `condition` holds, but at most for `time`.
    pub(crate) fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        time: Duration,
    ) {
        self.0.wait_while_for(&mut guard.inner, condition, time);
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
}
