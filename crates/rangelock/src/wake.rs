//! Wakes waiting requests: unparks threads and runs callbacks.

use crate::fault::Fault;
use crate::sync::{self, AtomicUsize, Condvar, Mutex, Ordering};
use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Callback = Box<dyn FnOnce() + Send>;

/// A request that waits. Each slot that blocks it has a reference to it.
pub(crate) struct Waiter {
    /// Number of slots that still block the request. Rises only while these slots are locked.
    slots: AtomicUsize,
    waker: Waker,
}

/// The action that wakes a granted waiter.
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

    /// Adds `count` slots that block the request. The caller has them locked.
    pub(crate) fn add_slots(&self, count: usize) {
        self.slots.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts the grant of one slot. Returns true if it was the last.
    fn granted_by_slot(&self) -> bool {
        // This synchronizes the waiter with the release of the last holder in every slot.
        self.slots.fetch_sub(1, Ordering::AcqRel) == 1 || Fault::WakeAtFirstSlot.is_planted()
    }

    /// Blocks the thread until the request is granted. Returns the time since the waiter was made.
    /// Panics if the waiter has a callback.
    pub(crate) fn park(&self) -> Duration {
        match &self.waker {
            Waker::Thread(parker) => parker.park(),
            Waker::Callback(_) => unreachable!("no thread parks on a waiter with a callback"),
        }
    }
}

/// Parks one thread until its request is granted. The thread first spins for about a microsecond:
/// many ranges are released sooner than a thread can sleep and wake.
pub(crate) struct Parker {
    state: AtomicUsize,
    asleep: Mutex<()>,
    wake: Condvar,
    since: Instant,
}

const AWAKE: usize = 0;
const ASLEEP: usize = 1;
const GRANTED: usize = 2;

/// Polls before a thread sleeps; about a microsecond.
const SPINS: usize = if cfg!(shuttle) { 1 } else { 100 };

impl Parker {
    fn new() -> Self {
        let state = AtomicUsize::new(AWAKE);
        Self { state, asleep: Mutex::new(()), wake: Condvar::new(), since: Instant::now() }
    }

    fn park(&self) -> Duration {
        let granted = || self.state.load(Ordering::Acquire) == GRANTED;
        let poll = |_| {
            std::hint::spin_loop();
            granted()
        };
        if !(0..SPINS).any(poll) {
            let mut asleep = sync::lock(&self.asleep);
            // The exchange fails if the request was granted after the last poll.
            let _ = self.state.compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
            while !granted() {
                asleep = self.wake.wait(asleep).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
        self.since.elapsed()
    }

    fn unpark(&self) {
        if self.state.swap(GRANTED, Ordering::Release) == ASLEEP {
            // The parking thread holds the mutex until it waits, so the notification cannot be
            // lost.
            drop(sync::lock(&self.asleep));
            self.wake.notify_one();
        }
    }
}

/// Counts the grant of one slot for each waiter of `granted`, and wakes the waiters for which it
/// was the last. Wakes threads before it runs callbacks, which may take long. The caller must hold
/// no lock.
pub(crate) fn wake_all(granted: Vec<Arc<Waiter>>) {
    let mut callbacks = VecDeque::new();
    for waiter in granted {
        if !waiter.granted_by_slot() {
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
    /// The callbacks that became due while this thread runs callbacks; `None` if it runs none.
    static DUE: RefCell<Option<VecDeque<Callback>>> = const { RefCell::new(None) };
}

/// Runs `batch`. If a caller of this function is already running callbacks, appends `batch` to its
/// list instead: a callback that drops its guard makes the next callback due, and nested calls for
/// a long queue would overflow the stack.
fn run_callbacks(mut batch: VecDeque<Callback>) {
    if append_to_outer_call(&mut batch) {
        return;
    }
    let mut first_panic = None;
    while let Some(callback) = batch.pop_front().or_else(next_due) {
        // The remaining callbacks own granted ranges, so they must run even if this one panics.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(callback)) {
            first_panic.get_or_insert(panic);
        }
    }
    // The access fails only while the thread exits, when there is no list to reset.
    let _ = DUE.try_with(|due| due.take());
    propagate(first_panic);
}

/// Appends `batch` to the list of an outer call that runs callbacks on this thread. Returns false
/// if there is none: the caller becomes the outer call.
fn append_to_outer_call(batch: &mut VecDeque<Callback>) -> bool {
    let append = |due: &RefCell<Option<VecDeque<Callback>>>| match &mut *due.borrow_mut() {
        Some(due) => {
            due.append(batch);
            true
        }
        none => {
            *none = Some(VecDeque::new());
            false
        }
    };
    // While the thread exits there is no list, so callbacks nest.
    DUE.try_with(append).unwrap_or(false)
}

fn next_due() -> Option<Callback> {
    DUE.try_with(|due| due.borrow_mut().as_mut()?.pop_front()).ok().flatten()
}

/// Resumes a callback's panic, unless the thread already unwinds: a second panic would abort the
/// process. The panic hook has reported the dropped one.
fn propagate(panic: Option<Box<dyn Any + Send>>) {
    if let Some(panic) = panic
        && !std::thread::panicking()
    {
        resume_unwind(panic);
    }
}
