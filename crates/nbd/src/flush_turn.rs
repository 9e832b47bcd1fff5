//! The turn to flush: of a session, at most one flush is in flight.
//!
//! | thread that flushes | when |
//! |---|---|
//! | one that makes a blocking call | it finds the turn free |
//! | the session's own, of [`flush`](crate::flush) | a queue's flush finds the turn free, or flushes have come while another one was in flight |

use parking_lot::{Condvar, Mutex};

use crate::command::Command;

/// The turn, and the flushes that wait for it.
#[derive(Debug, Default)]
pub(crate) struct FlushTurn {
    state: Mutex<TurnState>,
    /// Condition that is notified when the session's thread has the turn, and when the session
    /// ends.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TurnState {
    holder: Option<Holder>,
    waiting: Vec<Command>,
    has_ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Caller,
    Thread,
}

impl FlushTurn {
    /// Acquires the turn for a thread that makes a blocking call, if the turn is free.
    pub(crate) fn try_acquire(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = state.holder.is_none();
        if is_free {
            state.holder = Some(Holder::Caller);
        }
        is_free
    }

    /// Releases the turn of a blocking call.
    pub(crate) fn release(&self) {
        let mut state = self.state.lock();
        state.holder = None;
        if !state.waiting.is_empty() {
            self.pass(&mut state);
        }
    }

    /// Adds a flush that the session's thread makes.
    pub(crate) fn add(&self, command: Command) {
        let mut state = self.state.lock();
        state.waiting.push(command);
        if state.holder.is_none() {
            self.pass(&mut state);
        }
    }

    fn pass(&self, state: &mut TurnState) {
        state.holder = Some(Holder::Thread);
        self.changed.notify_one();
    }

    /// Blocks until the session's thread has the turn, and returns the flushes that wait. Its turn
    /// lasts until the next call. Returns `None` if the session has ended.
    pub(crate) fn next(&self) -> Option<Vec<Command>> {
        let mut state = self.state.lock();
        while !state.has_ended {
            if state.holder == Some(Holder::Thread) {
                if !state.waiting.is_empty() {
                    return Some(std::mem::take(&mut state.waiting));
                }
                state.holder = None;
            }
            self.changed.wait(&mut state);
        }
        None
    }

    /// Ends the session's thread.
    pub(crate) fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_one();
    }
}
