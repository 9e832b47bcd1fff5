//! The receiving side of a connection: parses replies and fills the buffers of reads.
//!
//! One thread at a time receives. It may stop in the middle of a reply, which the next thread
//! continues.
//!
//! Invariant: whatever the server sends, the receiver uses a fixed amount of memory, writes only
//! into the buffer of the read that the cookie names and only within its range, and treats
//! everything else as the end of the connection.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use zerocopy::FromBytes;

use crate::command::{Action, Command};
use crate::error::{against_protocol, message, server_error};
use crate::in_flight::InFlight;
use crate::protocol::{
    CHUNK_MAGIC, ChunkHead, ESHUTDOWN, ErrorChunk, HoleChunk, SIMPLE_REPLY_MAGIC, SimpleReply, chunk,
};

/// Bytes of the buffer.
const BUFFER: usize = 64 << 10;
/// Smallest number of bytes of a read that the receiver reads into the request's buffer without a
/// copy.
const DIRECT: usize = 16 << 10;
/// Bytes that the receiver reads at a time while it expects long replies.
const SHORT: usize = 512;
/// Largest number of reads of the socket in one call, so that the receiver can check the time
/// however fast the server sends.
const READS: usize = 16;
/// Longest error chunk, bytes: the protocol limits messages to 4096 bytes.
const LONGEST_ERROR: usize = 4096 + 14;

/// State of the receiver.
#[derive(Debug)]
pub(crate) struct Incoming {
    buffer: Box<[u8]>,
    /// Bytes of `buffer` that are not used yet.
    start: usize,
    end: usize,
    /// Bytes of a read that are arriving.
    data: Option<Data>,
    /// Whether replies may have several chunks.
    structured: bool,
    /// Whether the last bytes of a read arrived without a copy.
    expects_long: bool,
    /// Time of the last check for commands that are without an answer for too long.
    pub(crate) checked: Instant,
}

/// Bytes of a read that are arriving.
#[derive(Debug)]
struct Data {
    cookie: u64,
    command: Command,
    /// Place of the next byte in the read's buffer.
    at: usize,
    /// End of the bytes in the read's buffer.
    end: usize,
    /// Whether the reply ends with these bytes.
    is_last: bool,
}

/// The parts of a connection that its receiver uses.
pub(crate) struct Link<'a> {
    pub(crate) socket: &'a OwnedFd,
    pub(crate) in_flight: &'a Mutex<InFlight>,
    /// Function that is called with each command whose answer is complete, and its result.
    pub(crate) complete: &'a dyn Fn(u64, Command, io::Result<()>) -> io::Result<()>,
}

impl Incoming {
    pub(crate) fn new(structured: bool) -> Self {
        let buffer = vec![0; BUFFER].into();
        Self {
            buffer,
            start: 0,
            end: 0,
            data: None,
            structured,
            expects_long: false,
            checked: Instant::now(),
        }
    }

    /// Receives once from the socket, or up to [`READS`] times while each read fills the buffer,
    /// and completes commands. Does not block.
    ///
    /// # Errors
    /// The connection is lost, or the server breaks the protocol.
    pub(crate) fn receive(&mut self, link: &Link<'_>) -> io::Result<()> {
        for _ in 0..READS {
            let wanted;
            let received = match &mut self.data {
                Some(data) if self.start == self.end && data.end - data.at >= DIRECT => {
                    wanted = data.end - data.at;
                    self.expects_long = true;
                    let received = recv(link.socket, target(&mut data.command, data.at, data.end)?)?;
                    data.at += received.unwrap_or(0);
                    received
                }
                _ => {
                    self.buffer.copy_within(self.start..self.end, 0);
                    (self.start, self.end) = (0, self.end - self.start);
                    let room = if self.expects_long { SHORT.max(self.end + 1) } else { BUFFER };
                    wanted = room - self.end;
                    let received = recv(link.socket, &mut self.buffer[self.end..room])?;
                    self.end += received.unwrap_or(0);
                    received
                }
            };
            while self.step(link)? {}
            if received != Some(wanted) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the command whose answer has arrived only in part.
    pub(crate) fn close(&mut self) -> Option<Command> {
        self.data.take().map(|data| data.command)
    }

    /// Parses bytes of the buffer. Returns false if it needs more bytes.
    fn step(&mut self, link: &Link<'_>) -> io::Result<bool> {
        if self.data.is_some() {
            return self.fill(link);
        }
        let bytes = &self.buffer[self.start..self.end];
        let Some((magic, _)) = bytes.split_first_chunk() else { return Ok(false) };
        match u32::from_be_bytes(*magic) {
            SIMPLE_REPLY_MAGIC => {
                let Ok((reply, _)) = SimpleReply::read_from_prefix(bytes) else { return Ok(false) };
                self.start += size_of::<SimpleReply>();
                self.simple(link, &reply)
            }
            CHUNK_MAGIC if self.structured => {
                let Ok((head, _)) = ChunkHead::read_from_prefix(bytes) else { return Ok(false) };
                self.chunk(link, &head)
            }
            _ => Err(against_protocol("a reply without its magic number")),
        }
    }

    /// Copies bytes of the receiver's buffer to the buffer of a read.
    fn fill(&mut self, link: &Link<'_>) -> io::Result<bool> {
        let Some(mut data) = self.data.take() else { return Ok(true) };
        let len = (data.end - data.at).min(self.end - self.start);
        let from = &self.buffer[self.start..self.start + len];
        target(&mut data.command, data.at, data.at + len)?.copy_from_slice(from);
        data.at += len;
        self.start += len;
        if data.at < data.end {
            self.data = Some(data);
            return Ok(false);
        }
        self.expects_long &= data.command.len as usize >= DIRECT;
        end_chunk(link, data.cookie, data.command, data.is_last)?;
        Ok(true)
    }

    fn simple(&mut self, link: &Link<'_>, reply: &SimpleReply) -> io::Result<bool> {
        let cookie = reply.cookie.get();
        let mut command = take(link, cookie)?;
        let is_read = matches!(command.action, Action::Read(_));
        match reply.error.get() {
            0 if is_read && self.structured => {
                let why = "a simple reply to a read after structured replies were agreed";
                return Err(back(link, cookie, command, against_protocol(why)));
            }
            0 if is_read => {
                let end = command.len as usize;
                command.received.add(0, end);
                self.data = Some(Data { cookie, command, at: 0, end, is_last: true });
            }
            0 => (link.complete)(cookie, command, Ok(()))?,
            number => fail(link, cookie, command, number, &[])?,
        }
        Ok(true)
    }

    /// Begins a chunk. Returns false if it needs more bytes of the chunk.
    fn chunk(&mut self, link: &Link<'_>, head: &ChunkHead) -> io::Result<bool> {
        let (cookie, len) = (head.cookie.get(), head.len.get() as usize);
        let is_last = head.flags.get() & chunk::DONE != 0;
        let body = self.start + size_of::<ChunkHead>();
        // All but the bytes of a read must be in the buffer before the chunk is used.
        let needed = match head.kind.get() {
            chunk::NONE if len == 0 && is_last => 0,
            chunk::OFFSET_DATA if len > 8 => 8,
            chunk::OFFSET_HOLE if len == size_of::<HoleChunk>() => len,
            kind if kind & chunk::ERROR_BIT != 0 && (6..=LONGEST_ERROR).contains(&len) => len,
            _ => return Err(against_protocol("a chunk of an unknown type or length")),
        };
        if self.end < body + needed {
            // A short read of the socket must not prevent a chunk of this length from arriving.
            self.expects_long &= size_of::<ChunkHead>() + needed < SHORT;
            return Ok(false);
        }
        let content = &self.buffer[body..body + needed];
        let mut command = take(link, cookie)?;
        match head.kind.get() {
            chunk::NONE => end_chunk(link, cookie, command, true)?,
            chunk::OFFSET_DATA => {
                let offset = u64::read_from_bytes(content).map_or(0, u64::from_be);
                match place(&mut command, offset, len - 8) {
                    Ok((at, end)) => self.data = Some(Data { cookie, command, at, end, is_last }),
                    Err(error) => return Err(back(link, cookie, command, error)),
                }
            }
            chunk::OFFSET_HOLE => {
                let hole =
                    HoleChunk::read_from_bytes(content).map_err(|_| against_protocol("a short hole"))?;
                match place(&mut command, hole.offset.get(), hole.len.get() as usize) {
                    Ok((at, end)) => target(&mut command, at, end)?.fill(0),
                    Err(error) => return Err(back(link, cookie, command, error)),
                }
                end_chunk(link, cookie, command, is_last)?;
            }
            kind => {
                let (number, text) = error_chunk(content, kind, command.offset);
                if matches!(number, 0 | ESHUTDOWN) {
                    fail(link, cookie, command, number, &[])?;
                } else {
                    if command.result.is_ok() {
                        command.result = Err(server_error(number, text.as_bytes()));
                    }
                    end_chunk(link, cookie, command, is_last)?;
                }
            }
        }
        self.start = body + needed;
        Ok(true)
    }
}

/// Returns the error number and the message of an error chunk.
fn error_chunk(content: &[u8], kind: u16, offset: u64) -> (u32, String) {
    let Ok((head, rest)) = ErrorChunk::read_from_prefix(content) else { return (0, String::new()) };
    let (text, rest) = rest.split_at(rest.len().min(head.message_len.get().into()));
    let mut message = message(text);
    if kind == chunk::ERROR_OFFSET
        && let Some(at) = rest.first_chunk().map(|at| u64::from_be_bytes(*at))
    {
        message = format!("{message} at offset {at} of a request at {offset}").trim_start().to_owned();
    }
    (head.error.get(), message)
}

/// Returns the part of a read's buffer that a chunk fills, and counts its bytes.
fn place(command: &mut Command, offset: u64, len: usize) -> io::Result<(usize, usize)> {
    let wrong = || against_protocol("a chunk with bytes that were not asked for");
    if !matches!(command.action, Action::Read(_)) {
        return Err(wrong());
    }
    if len == 0 {
        return Err(against_protocol("an empty hole"));
    }
    let at = offset.checked_sub(command.offset).and_then(|at| usize::try_from(at).ok()).ok_or_else(wrong)?;
    let end = at.checked_add(len).filter(|&end| end <= command.len as usize).ok_or_else(wrong)?;
    if !command.received.add(at, end) {
        return Err(against_protocol(
            "a chunk with bytes that have arrived before, or chunks with too many gaps",
        ));
    }
    Ok((at, end))
}

/// Ends a chunk: completes the command if the chunk is the last one.
fn end_chunk(link: &Link<'_>, cookie: u64, mut command: Command, is_last: bool) -> io::Result<()> {
    if !is_last {
        link.in_flight.lock().put_back(cookie, command);
        return Ok(());
    }
    let result = std::mem::replace(&mut command.result, Ok(()));
    let is_read = matches!(command.action, Action::Read(_));
    let is_short = is_read && !command.received.is_whole(command.len as usize);
    if result.is_ok() && is_short {
        return Err(back(link, cookie, command, against_protocol("a read without all its bytes")));
    }
    (link.complete)(cookie, command, result)
}

/// Completes a command with the server's error. If the server is about to stop, the connection
/// counts as lost instead, so that the command is sent again.
fn fail(link: &Link<'_>, cookie: u64, command: Command, number: u32, text: &[u8]) -> io::Result<()> {
    match number {
        0 => Err(back(link, cookie, command, against_protocol("an error without a number"))),
        ESHUTDOWN => {
            let why = io::Error::new(io::ErrorKind::ConnectionAborted, "the server is shutting down");
            Err(back(link, cookie, command, why))
        }
        number => (link.complete)(cookie, command, Err(server_error(number, text))),
    }
}

/// Returns a command to the table, so that it is sent again, and passes the error on.
fn back(link: &Link<'_>, cookie: u64, command: Command, error: io::Error) -> io::Error {
    link.in_flight.lock().put_back(cookie, command);
    error
}

fn take(link: &Link<'_>, cookie: u64) -> io::Result<Command> {
    let command = link.in_flight.lock().take(cookie);
    command.ok_or_else(|| against_protocol("a reply to a request that was not sent"))
}

fn target(command: &mut Command, start: usize, end: usize) -> io::Result<&mut [u8]> {
    match &mut command.action {
        Action::Read(target) => Ok(target.range(start, end)),
        _ => Err(against_protocol("bytes for a request that reads nothing")),
    }
}

/// Receives bytes from the socket; `None` if no bytes have arrived.
fn recv(socket: &OwnedFd, out: &mut [u8]) -> io::Result<Option<usize>> {
    match rustix::net::recv(socket, out, RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
        Ok((len, _)) => Ok(Some(len)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use parext4_device::BufferPool;
    use zerocopy::IntoBytes;

    use crate::command::{Inbox, Target};

    /// A receiver that does not return cannot check the time.
    #[test]
    fn a_server_that_sends_without_end_does_not_hold_the_receiver() {
        const SENT: usize = 16 << 20;
        let (ours, theirs) = UnixStream::pair().unwrap();
        let in_flight = Mutex::<InFlight>::default();
        let target = Target::Part(BufferPool::global().take(4096));
        let inbox = Inbox::new().unwrap();
        let command = Command::new(Action::Read(target), (0, 4096), &inbox, (0, 0));
        let cookie = in_flight.lock().insert(command);
        let content = [0, 0, 0, 5, 0, 0];
        let head = ChunkHead {
            magic: CHUNK_MAGIC.into(),
            flags: 0.into(),
            kind: (chunk::ERROR_BIT | 1).into(),
            cookie: cookie.into(),
            len: 6.into(),
        };
        let error = [head.as_bytes(), &content].concat();
        let many = error.repeat(SENT / error.len());
        let server = std::thread::spawn(move || (&theirs).write_all(&many).unwrap());
        let socket = OwnedFd::from(ours.try_clone().unwrap());
        let complete = |_, _: Command, _| unreachable!("the answer does not end");
        let mut incoming = Incoming::new(true);
        incoming.receive(&Link { socket: &socket, in_flight: &in_flight, complete: &complete }).unwrap();
        let mut rest = Vec::new();
        (&ours).read_to_end(&mut rest).unwrap();
        assert!(rest.len() >= SENT - error.len() - READS * BUFFER, "{} bytes are left", rest.len());
        server.join().unwrap();
    }
}
