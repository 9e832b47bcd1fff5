//! A request of the protocol, from the thread that made it over the connection and back.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use parext4_device::{AlignedBuf, PooledBuf, Segment};
use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::mailbox::Mailbox;
use crate::protocol::command;
use crate::received::Received;

/// The mailbox of an owner of commands.
pub(crate) type Inbox = Mailbox<Command>;

/// A request of the protocol with its buffers and its owner.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) action: Action,
    /// Offset in the export, bytes.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u32,
    /// Owner, which gets the command back. `None` once the owner has it.
    inbox: Option<Arc<Inbox>>,
    /// Number by which the owner knows the command.
    pub(crate) ticket: u64,
    /// Number of the owner's connection, before it is reduced to the number of connections.
    pub(crate) lane: usize,
    /// Result, once the owner has the command back.
    pub(crate) result: io::Result<()>,
    /// Time at which the first connection was lost that had this command in flight.
    pub(crate) lost_since: Option<Instant>,
    /// Bytes of a read that have arrived.
    pub(crate) received: Received,
}

/// The action of a command.
#[derive(Debug)]
pub(crate) enum Action {
    Read(Target),
    Write(Write),
    /// Releases the storage of the range.
    Trim,
    /// Makes durable all retained writes up to the number
    /// [`mark`](crate::retained::Retained::mark). A flush that waits for its turn has the number 0
    /// and is not sent: the thread of [`flush`](crate::flush) sends one flush for all that wait.
    Flush {
        mark: u64,
    },
}

/// Memory that a read fills.
#[derive(Debug)]
pub(crate) enum Target {
    /// The buffer of a queue's request.
    Whole(AlignedBuf),
    /// A buffer whose bytes the owner copies.
    Part(PooledBuf),
}

/// A write.
#[derive(Debug)]
pub(crate) struct Write {
    /// The bytes to send.
    pub(crate) payload: Payload,
    /// Copy of the bytes, for as long as the server may lose them. `None` until the copy is made.
    pub(crate) copy: Option<Payload>,
    /// Whether the server may lose the write until a flush.
    pub(crate) is_volatile: bool,
    /// Whether the server makes the write durable before its answer.
    pub(crate) fua: bool,
}

/// The bytes of a write.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// Memory of the caller. The payload must not be used after the caller has the request back.
    Segments(SmallVec<[Segment; 1]>),
    /// Part of a copy: the first byte and the number of bytes.
    Copy(Arc<Buffer>, usize, usize),
    /// Zeros, which are not sent.
    Zeroes,
}

impl Payload {
    /// Returns the bytes to send.
    pub(crate) fn parts(&self) -> SmallVec<[&[u8]; 4]> {
        match self {
            Self::Segments(segments) => {
                segments.iter().map(|part| &part.buf[part.start..part.start + part.len]).collect()
            }
            Self::Copy(bytes, start, len) => [&bytes[*start..start + len]].into_iter().collect(),
            Self::Zeroes => SmallVec::new(),
        }
    }

    /// Returns a payload with the same bytes that does not use the caller's memory.
    pub(crate) fn copied(&self) -> Self {
        match self {
            Self::Segments(_) => {
                let parts = self.parts();
                let len = parts.iter().map(|part| part.len()).sum();
                Self::Copy(Arc::new(Buffer::copy(len, parts)), 0, len)
            }
            Self::Copy(..) | Self::Zeroes => self.clone(),
        }
    }
}

impl Target {
    /// Returns the memory from byte `start` to byte `end`.
    pub(crate) fn range(&mut self, start: usize, end: usize) -> &mut [u8] {
        match self {
            Self::Whole(buf) => &mut buf[start..end],
            Self::Part(buf) => &mut buf[start..end],
        }
    }
}

impl Command {
    pub(crate) fn new(
        action: Action,
        (offset, len): (u64, u32),
        inbox: &Arc<Inbox>,
        (lane, ticket): (usize, u64),
    ) -> Self {
        Self {
            action,
            offset,
            len,
            inbox: Some(Arc::clone(inbox)),
            ticket,
            lane,
            result: Ok(()),
            lost_since: None,
            received: Received::default(),
        }
    }

    /// Returns whether the command changes the export, or makes changes durable.
    pub(crate) fn is_change(&self) -> bool {
        !matches!(self.action, Action::Read(_))
    }

    /// Returns type and flags on the wire.
    pub(crate) fn kind(&self) -> (u16, u16) {
        match &self.action {
            Action::Read(_) => (command::READ, 0),
            Action::Trim => (command::TRIM, 0),
            Action::Flush { .. } => (command::FLUSH, 0),
            Action::Write(write) => {
                let fua = if write.fua { command::FUA } else { 0 };
                match write.payload {
                    Payload::Zeroes => (command::WRITE_ZEROES, fua | command::NO_HOLE),
                    _ => (command::WRITE, fua),
                }
            }
        }
    }

    /// Returns the bytes to send after the head.
    pub(crate) fn payload(&self) -> Option<Payload> {
        match &self.action {
            Action::Write(Write { payload: Payload::Zeroes, .. }) => None,
            Action::Write(write) => Some(write.payload.clone()),
            _ => None,
        }
    }

    /// Returns the command to its owner.
    pub(crate) fn finish(mut self, result: io::Result<()>) {
        self.result = result;
        if let Some(inbox) = self.inbox.take() {
            inbox.push(self);
        }
    }
}
