//! The turn to flush: of a session, at most one flush is in flight.
//!
//! | thread that flushes | when |
//! |---|---|
//! | one that makes a blocking call | it finds the turn free |
//! | the session's own, of [`flush`](crate::flush) | a queue's flush finds the turn free, or flushes have come while another one was in flight |

use parking_lot::Mutex;

use crate::command::Command;

/// The turn, and the flushes that wait for it.
#[derive(Debug, Default)]
pub(crate) struct FlushTurn(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_held: bool,
    waiting: Vec<Command>,
}

impl FlushTurn {
    /// Acquires the turn if it is free.
    pub(crate) fn try_acquire(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().is_held, true)
    }

    /// Adds a flush. Returns true if it has acquired the turn: the caller must pass it to the thread that flushes.
    pub(crate) fn add(&self, command: Command) -> bool {
        let mut state = self.0.lock();
        state.waiting.push(command);
        !std::mem::replace(&mut state.is_held, true)
    }

    /// Releases the turn. Returns true if flushes wait: then the caller keeps it, and must pass it to the thread that flushes.
    pub(crate) fn release(&self) -> bool {
        let mut state = self.0.lock();
        state.is_held = !state.waiting.is_empty();
        state.is_held
    }

    /// Removes the flushes that wait, for the holder of the turn. Releases the turn if there are none.
    pub(crate) fn next(&self) -> Vec<Command> {
        let mut state = self.0.lock();
        state.is_held = !state.waiting.is_empty();
        std::mem::take(&mut state.waiting)
    }
}
