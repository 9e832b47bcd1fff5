//! The sending side of a connection: requests that the socket has not accepted yet.
//!
//! The thread that makes requests writes them to the socket, many in one call. Bytes that the
//! socket does not accept wait here until the leader of the connection can send them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::command::Payload;
use crate::protocol::{RequestHead, command};

/// Largest number of buffers of one call.
const MAX_PARTS: usize = 256;

/// A request to send.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) head: RequestHead,
    pub(crate) payload: Option<Payload>,
}

/// Requests that the socket has not accepted yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    messages: VecDeque<Message>,
    /// Bytes of the first message that the socket has accepted.
    sent: usize,
}

impl Outgoing {
    /// Appends a request.
    pub(crate) fn push(&mut self, message: Message) {
        self.messages.push_back(message);
    }

    /// Returns whether part of a request with this cookie is unsent.
    pub(crate) fn has(&self, cookie: u64) -> bool {
        self.messages.iter().any(|message| message.head.cookie.get() == cookie)
    }

    /// Returns whether part of a request is unsent that changes the export, or makes changes
    /// durable.
    fn has_changes(&self) -> bool {
        let mut kinds = self.messages.iter().map(|message| message.head.kind.get());
        kinds.any(|kind| !matches!(kind, command::READ | command::DISCONNECT))
    }

    /// Drops all requests.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.sent = 0;
    }

    /// Sends as much as the socket accepts. Returns true if all is sent. Asks `may_write` right
    /// before each system call that sends a change, because the process may have been stopped since
    /// the last one.
    ///
    /// # Errors
    /// The connection is lost, or `may_write` returns false.
    pub(crate) fn send(&mut self, socket: &OwnedFd, may_write: impl Fn() -> bool) -> io::Result<bool> {
        while !self.messages.is_empty() {
            if self.has_changes() && !may_write() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let sent = sendmsg(socket, &self.parts(), &mut SendAncillaryBuffer::default(), flags);
            match sent {
                Ok(sent) => self.advance(sent),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Returns the unsent bytes, at most [`MAX_PARTS`] buffers.
    fn parts(&self) -> SmallVec<[IoSlice<'_>; 8]> {
        let mut skip = self.sent;
        let mut parts = SmallVec::new();
        for part in self.messages.iter().flat_map(Message::parts) {
            let from = skip.min(part.len());
            skip -= from;
            if from < part.len() {
                parts.push(IoSlice::new(&part[from..]));
            }
            if parts.len() == MAX_PARTS {
                break;
            }
        }
        parts
    }

    fn advance(&mut self, sent: usize) {
        self.sent += sent;
        while let Some(first) = self.messages.front() {
            let len = first.len();
            if self.sent < len {
                return;
            }
            self.sent -= len;
            self.messages.pop_front();
        }
    }
}

impl Message {
    fn parts(&self) -> SmallVec<[&[u8]; 4]> {
        let mut parts: SmallVec<[&[u8]; 4]> = [self.head.as_bytes()].into_iter().collect();
        parts.extend(self.payload.iter().flat_map(Payload::parts));
        parts
    }

    fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }
}
