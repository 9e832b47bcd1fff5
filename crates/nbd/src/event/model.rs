//! Events and a socket for the model checker. No time passes: a wait that nothing ends is a
//! deadlock.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use parext4_sync::{Condvar, Mutex};
use rustix::event::PollFlags;

/// The state of an event, and whether the socket that its owner watches is ready.
#[derive(Debug, Default)]
struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }
}

/// An event.
#[derive(Debug, Default)]
pub(crate) struct Event(Arc<Signal>);

/// The socket of a leader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Socket<'a>(&'a dyn Watched);

trait Watched: std::fmt::Debug {
    /// Sets `signal` when the socket is ready.
    fn watch(&self, signal: &Arc<Signal>);
}

impl Socket<'_> {
    pub(crate) fn new(_: &impl AsFd, _: PollFlags) -> Self {
        unreachable!("a model has no file descriptors")
    }
}

impl Event {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    pub(crate) fn set(&self) {
        self.0.set();
    }

    pub(crate) fn wait(&self, socket: Option<Socket<'_>>, _: Option<Duration>) -> io::Result<()> {
        if let Some(Socket(socket)) = socket {
            socket.watch(&self.0);
        }
        let mut is_set = self.0.is_set.lock();
        while !*is_set {
            self.0.changed.wait(&mut is_set);
        }
        *is_set = false;
        Ok(())
    }
}

/// A socket on which messages arrive.
#[derive(Debug)]
pub(crate) struct ModelSocket<T>(Mutex<SocketState<T>>);

#[derive(Debug)]
struct SocketState<T> {
    arrived: VecDeque<T>,
    is_closed: bool,
    watcher: Option<Arc<Signal>>,
}

impl<T> Default for ModelSocket<T> {
    fn default() -> Self {
        Self(Mutex::new(SocketState { arrived: VecDeque::new(), is_closed: false, watcher: None }))
    }
}

impl<T: std::fmt::Debug> ModelSocket<T> {
    pub(crate) fn watched(&self) -> Socket<'_> {
        Socket(self)
    }

    /// Delivers a message to the socket.
    pub(crate) fn arrive(&self, message: T) {
        self.change(|state| state.arrived.push_back(message));
    }

    pub(crate) fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    /// Returns the next message that has arrived.
    ///
    /// # Errors
    /// The socket is closed, and no message is left.
    pub(crate) fn receive(&self) -> io::Result<Option<T>> {
        let mut state = self.0.lock();
        match state.arrived.pop_front() {
            None if state.is_closed => Err(io::ErrorKind::ConnectionReset.into()),
            message => Ok(message),
        }
    }

    fn change(&self, change: impl FnOnce(&mut SocketState<T>)) {
        let mut state = self.0.lock();
        change(&mut state);
        let watcher = state.watcher.take();
        drop(state);
        watcher.iter().for_each(|watcher| watcher.set());
    }
}

impl<T: std::fmt::Debug> Watched for ModelSocket<T> {
    fn watch(&self, signal: &Arc<Signal>) {
        let mut state = self.0.lock();
        if state.arrived.is_empty() && !state.is_closed {
            state.watcher = Some(Arc::clone(signal));
        } else {
            drop(state);
            signal.set();
        }
    }
}
