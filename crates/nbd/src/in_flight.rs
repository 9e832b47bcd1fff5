//! The commands without an answer that a connection has sent, by cookie.
//!
//! Invariant: a command is in the table, or with the receiver, or with its owner; a closed table
//! stays empty.

use std::time::{Duration, Instant};

use crate::command::{Action, Command, Payload};
use crate::received::Received;

/// Commands without an answer.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    slots: Vec<Slot>,
    free: Vec<usize>,
    closed: bool,
}

/// An entry of the table.
#[derive(Debug)]
struct Slot {
    /// Number of commands that had this slot before: a late or invented cookie does not match it.
    uses: u32,
    /// Time at which the command was sent. `None` if the slot is free.
    sent: Option<Instant>,
    /// The command; `None` while the receiver has it.
    command: Option<Command>,
}

impl InFlight {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Adds a command to a table that is not closed, and returns its cookie.
    pub(crate) fn insert(&mut self, mut command: Command) -> u64 {
        debug_assert!(!self.closed, "a closed table stays empty");
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { uses: 0, sent: None, command: None });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        (command.received, command.result) = (Received::default(), Ok(()));
        slot.sent = Some(Instant::now());
        slot.command = Some(command);
        u64::from(slot.uses) << 32 | index as u64
    }

    /// Removes a command, whose slot stays reserved until [`put_back`](Self::put_back) or
    /// [`release`](Self::release).
    pub(crate) fn take(&mut self, cookie: u64) -> Option<Command> {
        self.slot(cookie)?.command.take()
    }

    /// Returns a command that needs more chunks of its answer.
    pub(crate) fn put_back(&mut self, cookie: u64, command: Command) {
        if let Some(slot) = self.slot(cookie) {
            slot.command = Some(command);
        }
    }

    /// Frees the slot of a command that was taken.
    pub(crate) fn release(&mut self, cookie: u64) {
        if let Some(slot) = self.slot(cookie) {
            slot.uses = slot.uses.wrapping_add(1);
            slot.sent = None;
            slot.command = None;
            self.free.push(index(cookie));
        }
    }

    /// Stores the copy of a write's bytes, if the write has no answer yet.
    pub(crate) fn keep(&mut self, cookie: u64, copied: Payload) {
        let command = self.slot(cookie).and_then(|slot| slot.command.as_mut());
        if let Some(Action::Write(write)) = command.map(|command| &mut command.action) {
            write.copy = Some(copied);
        }
    }

    /// Returns the age of the oldest command, or `None` if there is none.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.slots.iter().filter_map(|slot| slot.sent).min().map(|sent| sent.elapsed())
    }

    /// Closes the table and returns its commands.
    pub(crate) fn close(&mut self) -> Vec<Command> {
        self.closed = true;
        std::mem::take(&mut self.slots).into_iter().filter_map(|slot| slot.command).collect()
    }

    fn slot(&mut self, cookie: u64) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(index(cookie))?;
        (slot.sent.is_some() && u64::from(slot.uses) == cookie >> 32).then_some(slot)
    }
}

fn index(cookie: u64) -> usize {
    (cookie & u64::from(u32::MAX)) as usize
}
