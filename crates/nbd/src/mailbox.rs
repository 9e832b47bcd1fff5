//! The completions of one thread or queue, and the event that its thread blocks on.
//!
//! A thread that waits and leads a connection blocks on the socket and on this event; another
//! waiting thread blocks on this event alone.

use std::io;
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use parext4_sync::Mutex;
use parext4_sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::event::{Event, Socket};
use crate::fault::Fault;

/// Completions of one owner.
///
/// All flags are sequentially consistent: either the thread that sets one sees `sleeping`, or the
/// owner sees the flag before it blocks.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    done: Mutex<Vec<T>>,
    /// Whether `done` is not empty.
    ready: AtomicBool,
    /// Whether the queue's waker was called.
    woken: AtomicBool,
    /// Whether the owner must check its role and its connection.
    poked: AtomicBool,
    /// Whether the owner blocks, or is about to.
    sleeping: AtomicBool,
    event: Event,
}

impl<T> Mailbox<T> {
    /// Creates an empty mailbox.
    ///
    /// # Errors
    /// The process has too many files open.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let event = Event::new()?;
        let flag = || AtomicBool::new(false);
        Ok(Arc::new(Self {
            done: Mutex::new(Vec::new()),
            ready: flag(),
            woken: flag(),
            poked: flag(),
            sleeping: flag(),
            event,
        }))
    }

    /// Stores a completion, and wakes the owner if it blocks.
    pub(crate) fn push(&self, completed: T) {
        if Fault::WokenEarly.is_planted() {
            self.end_sleep();
        }
        let mut done = self.done.lock();
        done.push(completed);
        self.ready.store(true, SeqCst);
        drop(done);
        if !Fault::OwnerAsleep.is_planted() && !Fault::WokenEarly.is_planted() {
            self.end_sleep();
        }
    }

    /// Removes and returns all completions.
    pub(crate) fn take(&self) -> Vec<T> {
        if !self.is_ready() {
            return Vec::new();
        }
        let mut done = self.done.lock();
        self.ready.store(false, SeqCst);
        std::mem::take(&mut done)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(SeqCst)
    }

    /// Clears the flag that the queue's waker sets, and returns whether it was set.
    pub(crate) fn take_wake(&self) -> bool {
        self.woken.load(SeqCst) && self.woken.swap(false, SeqCst)
    }

    /// Returns whether the queue's waker was called.
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(SeqCst)
    }

    /// Ends the owner's wait, so that it checks its role and its connection.
    pub(crate) fn poke(&self) {
        self.poked.store(true, SeqCst);
        self.end_sleep();
    }

    /// Returns whether the owner has something to do before it blocks.
    fn has_news(&self) -> bool {
        self.is_ready() || self.woken.load(SeqCst) || self.poked.load(SeqCst)
    }

    /// Blocks until there is news, `time` has passed, or `socket` is ready. May return early.
    ///
    /// # Errors
    /// Errors of poll(2).
    pub(crate) fn sleep(&self, socket: Option<Socket<'_>>, time: Option<Duration>) -> io::Result<()> {
        self.sleeping.store(true, SeqCst);
        let has_news = self.has_news() && !Fault::NewsUnchecked.is_planted();
        let result = if has_news { Ok(()) } else { self.event.wait(socket, time) };
        self.sleeping.store(false, SeqCst);
        self.poked.store(false, SeqCst);
        result
    }

    fn end_sleep(&self) {
        if self.sleeping.load(SeqCst) {
            self.event.set();
        }
    }
}

impl<T: Send + Sync + 'static> Wake for Mailbox<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, SeqCst) {
            self.end_sleep();
        }
    }
}
