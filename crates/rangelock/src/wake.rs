//! How a waiter learns that it was granted.

use crate::fault::{Fault, Planted};
use crate::sync::{self, AtomicUsize, Condvar, Mutex, Ordering};
use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Callback = Box<dyn FnOnce() + Send>;

/// One request that waits, known to each slot in which it does.
pub(crate) struct Waiter {
    /// In how many slots it still waits. Rises only while those slots are locked.
    slots: AtomicUsize,
    waker: Waker,
}

/// What to do when a waiter is granted.
pub(crate) enum Waker {
    Thread(Parker),
    Callback(Mutex<Option<Callback>>),
}

impl Waker {
    pub(crate) fn thread() -> Self {
        Self::Thread(Parker::new())
    }

    pub(crate) fn callback(callback: impl FnOnce() + Send + 'static) -> Self {
        Self::Callback(Mutex::new(Some(Box::new(callback))))
    }
}

impl Waiter {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { slots: AtomicUsize::new(0), waker }
    }

    /// It waits in so many more slots, which the caller has locked.
    pub(crate) fn add_slots(&self, count: usize) {
        self.slots.fetch_add(count, Ordering::Relaxed);
    }

    /// One slot has granted it; whether that was the last.
    fn granted_by_slot(&self, planted: Planted) -> bool {
        // What the holders in each slot did before they released it happens before the waiter goes on.
        self.slots.fetch_sub(1, Ordering::AcqRel) == 1 || planted.is(Fault::WakeAtFirstSlot)
    }

    /// Sleeps until granted; returns the time since creation. Only for waiters that are threads.
    pub(crate) fn park(&self) -> Duration {
        match &self.waker {
            Waker::Thread(parker) => parker.park(),
            Waker::Callback(_) => unreachable!("nobody parks where a callback is due"),
        }
    }
}

/// Where one thread waits until it is granted: awake for a moment, as to fall asleep and to be woken takes longer
/// than many hold their range, and then asleep.
pub(crate) struct Parker {
    state: AtomicUsize,
    asleep: Mutex<()>,
    wake: Condvar,
    since: Instant,
}

const AWAKE: usize = 0;
const ASLEEP: usize = 1;
const GRANTED: usize = 2;

/// About a microsecond.
const LOOKS: usize = if cfg!(shuttle) { 1 } else { 100 };

impl Parker {
    fn new() -> Self {
        let state = AtomicUsize::new(AWAKE);
        Self { state, asleep: Mutex::new(()), wake: Condvar::new(), since: Instant::now() }
    }

    fn park(&self) -> Duration {
        let granted = || self.state.load(Ordering::Acquire) == GRANTED;
        let look = |_| {
            std::hint::spin_loop();
            granted()
        };
        if !(0..LOOKS).any(look) {
            let mut asleep = sync::lock(&self.asleep);
            // Fails if it was granted just now.
            let _ = self.state.compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
            while !granted() {
                asleep = self.wake.wait(asleep).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
        self.since.elapsed()
    }

    fn unpark(&self) {
        if self.state.swap(GRANTED, Ordering::Release) == ASLEEP {
            // It has the mutex until it sleeps.
            drop(sync::lock(&self.asleep));
            self.wake.notify_one();
        }
    }
}

/// Tells each of `granted` that one more slot has granted it, and wakes those for whom it was the last. Call
/// with no lock held. Threads first: a callback may take its time.
pub(crate) fn wake_all(granted: Vec<Arc<Waiter>>, planted: Planted) {
    let mut callbacks = VecDeque::new();
    for waiter in granted {
        if !waiter.granted_by_slot(planted) {
            continue;
        }
        match &waiter.waker {
            Waker::Thread(parker) => parker.unpark(),
            Waker::Callback(callback) => callbacks.extend(sync::lock(callback).take()),
        }
    }
    if !callbacks.is_empty() {
        run_callbacks(callbacks);
    }
}

sync::thread_local! {
    /// `Some` while this thread runs callbacks: those that became due meanwhile.
    static DUE: RefCell<Option<VecDeque<Callback>>> = const { RefCell::new(None) };
}

/// Runs `batch`, or leaves it to the call further up this thread's stack that is running callbacks now.
///
/// A callback that drops its guard can make the next callback due. Were that one called from inside the
/// first, a long queue of callbacks would overflow the stack.
fn run_callbacks(mut batch: VecDeque<Callback>) {
    if leave_to_outer_call(&mut batch) {
        return;
    }
    let mut first_panic = None;
    while let Some(callback) = batch.pop_front().or_else(next_due) {
        // The others hold their ranges already, so they must hear of it even if this one panics.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(callback)) {
            first_panic.get_or_insert(panic);
        }
    }
    // Fails only while the thread is being torn down, when there is nothing to reset.
    let _ = DUE.try_with(|due| due.take());
    propagate(first_panic);
}

/// Whether an outer call runs callbacks on this thread, which then took over `batch`. If not, this call is
/// the outer one from now on.
fn leave_to_outer_call(batch: &mut VecDeque<Callback>) -> bool {
    let enlist = |due: &RefCell<Option<VecDeque<Callback>>>| match &mut *due.borrow_mut() {
        Some(due) => {
            due.append(batch);
            true
        }
        none => {
            *none = Some(VecDeque::new());
            false
        }
    };
    // While the thread is being torn down there is no list: callbacks nest then.
    DUE.try_with(enlist).unwrap_or(false)
}

fn next_due() -> Option<Callback> {
    DUE.try_with(|due| due.borrow_mut().as_mut()?.pop_front()).ok().flatten()
}

/// Lets a callback's panic go on, unless this thread unwinds already: a second panic would abort, and the
/// panic hook has reported this one.
fn propagate(panic: Option<Box<dyn Any + Send>>) {
    if let Some(panic) = panic
        && !std::thread::panicking()
    {
        resume_unwind(panic);
    }
}
