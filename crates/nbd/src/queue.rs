//! A queue of requests to an export.
//!
//! 1. `submit` checks a request and appends it to the backlog.
//! 2. `harvest` makes commands of requests while fewer than `depth` are in flight, and sends them
//!    in one call.
//! 3. It receives on the connection of its lane, or blocks while another thread receives.
//!
//! Writes wait in the backlog while the [retained](crate::retained) writes are at their limit. The
//! queue then makes a flush of its own, so that it does not depend on the owner of another queue.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use parext4_device::{AlignedBuf, BufferPool, Device, Done, Op, Queue, QueueWaker, Request};

use crate::caller::{FLUSH, next_lane};
use crate::command::{Action, Command, Inbox, Payload, Target};
use crate::pieces::{pieces, sub_segments, write};
use crate::session::Session;

/// Ticket of a flush of the queue's own. Other tickets are indices of `started`.
const OWN_FLUSH: u64 = u64::MAX;

pub(crate) struct NbdQueue {
    /// The device, which checks requests. The queue keeps it open.
    device: Arc<dyn Device>,
    session: Arc<Session>,
    /// Start of the volume in the export, bytes.
    base: u64,
    inbox: Arc<Inbox>,
    lane: usize,
    depth: usize,
    /// Requests that are not started, with their lengths in bytes.
    backlog: VecDeque<(Request, usize)>,
    started: Vec<Option<Started>>,
    free: Vec<usize>,
    /// Completions that did not need the server.
    ready: Vec<Done>,
    /// Whether the queue waits for a flush of its own.
    awaits_room: bool,
}

/// A request with commands in flight.
struct Started {
    request: Request,
    /// Number of commands without an answer.
    pieces: usize,
    result: io::Result<()>,
}

impl NbdQueue {
    /// Opens a queue on the device's session.
    ///
    /// # Errors
    /// The process has too many files open.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        session: Arc<Session>,
        base: u64,
        depth: u32,
    ) -> io::Result<Self> {
        Ok(Self {
            device,
            session,
            base,
            inbox: Inbox::new()?,
            lane: next_lane(),
            depth: depth.max(1) as usize,
            backlog: VecDeque::new(),
            started: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            awaits_room: false,
        })
    }

    fn started(&self) -> usize {
        self.started.len() - self.free.len()
    }

    /// Sends requests of the backlog while fewer than `depth` are in flight.
    fn start(&mut self) {
        let session = Arc::clone(&self.session);
        let mut commands = Vec::new();
        while self.started() < self.depth
            && let Some((request, _)) = self.backlog.front()
        {
            if matches!(request.op, Op::Write { .. })
                && session.export.has_flush()
                && !session.retained.has_room()
            {
                self.make_room(&mut commands);
                break;
            }
            let Some((request, len)) = self.backlog.pop_front() else { break };
            self.start_one(request, len, &mut commands);
        }
        if !commands.is_empty() {
            if !self.awaits_room && session.retained.begin_flush() {
                self.make_room(&mut commands);
            }
            session.send(self.lane, commands);
        }
    }

    /// Adds a flush of the queue's own, unless one is in flight.
    fn make_room(&mut self, commands: &mut Vec<Command>) {
        if !std::mem::replace(&mut self.awaits_room, true) {
            let (action, ..) = FLUSH;
            commands.push(Command::new(action, (0, 0), &self.inbox, (self.lane, OWN_FLUSH)));
        }
    }

    /// Adds the commands of a request.
    fn start_one(&mut self, mut request: Request, len: usize, commands: &mut Vec<Command>) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.started.push(None);
            self.started.len() - 1
        });
        let session = &self.session;
        let (base, largest) = (self.base, session.export.largest);
        let before = commands.len();
        let mut add = |action, at, len| {
            commands.push(Command::new(action, (at, len), &self.inbox, (self.lane, index as u64)));
        };
        match &mut request.op {
            Op::Read { offset, buf, .. } if len <= largest as usize => {
                let buf = std::mem::replace(buf, AlignedBuf::zeroed(0));
                add(Action::Read(Target::Whole(buf)), base + *offset, len as u32);
            }
            Op::Read { offset, .. } => pieces(base + *offset, len as u64, largest, |at, len| {
                let buf = BufferPool::global().take(len as usize);
                add(Action::Read(Target::Part(buf)), at, len);
            }),
            Op::Write { offset, segments } => {
                let mut done = 0;
                pieces(base + *offset, len as u64, largest, |at, len| {
                    let part = sub_segments(segments, done, len as usize);
                    done += len as usize;
                    add(write(&session.export, Payload::Segments(part)), at, len);
                });
            }
            _ => {
                let (action, ..) = FLUSH;
                add(action, 0, 0);
            }
        }
        let pieces = commands.len() - before;
        self.started[index] = Some(Started { request, pieces, result: Ok(()) });
    }

    /// Moves completed requests to `done`.
    fn collect(&mut self, done: &mut Vec<Done>) {
        for command in self.inbox.take() {
            if command.ticket == OWN_FLUSH {
                self.awaits_room = false;
                if let Err(error) = command.result {
                    self.fail_writes(&error);
                }
                continue;
            }
            let index = command.ticket as usize;
            let Some(started) = self.started[index].as_mut() else { continue };
            started.finish(self.base, command);
            if started.pieces == 0
                && let Some(Started { request, result, .. }) = self.started[index].take()
            {
                self.free.push(index);
                done.push(request.done(result));
            }
        }
        done.append(&mut self.ready);
    }

    /// Fails the writes that wait for room, because the server refused the flush that would make
    /// room.
    fn fail_writes(&mut self, why: &io::Error) {
        let is_write = |request: &Request| matches!(request.op, Op::Write { .. });
        for (request, len) in std::mem::take(&mut self.backlog) {
            if is_write(&request) {
                self.ready.push(request.done(Err(crate::error::copy(why))));
            } else {
                self.backlog.push_back((request, len));
            }
        }
    }
}

impl Started {
    /// Records the result of one command, and stores its buffer in the request.
    fn finish(&mut self, base: u64, mut command: Command) {
        self.pieces -= 1;
        if command.result.is_err() && self.result.is_ok() {
            self.result = std::mem::replace(&mut command.result, Ok(()));
        }
        let Op::Read { offset, buf, .. } = &mut self.request.op else { return };
        match command.action {
            Action::Read(Target::Whole(whole)) => *buf = whole,
            Action::Read(Target::Part(part)) => {
                let at = (command.offset - base - *offset) as usize;
                buf[at..at + part.len()].copy_from_slice(&part);
            }
            _ => {}
        }
    }
}

impl Queue for NbdQueue {
    fn submit(&mut self, request: Request) {
        let device = &*self.device;
        let len = match request.op.check(device) {
            Ok(len) => len,
            Err(error) => return self.ready.push(request.done(Err(error))),
        };
        let result = match request.op {
            Op::Flush => Ok(self.session.export.has_flush() && !device.read_only()),
            Op::Read { .. } | Op::Write { .. } => Ok(len > 0),
            _ => Err(io::ErrorKind::Unsupported.into()),
        };
        match result {
            Ok(true) => self.backlog.push_back((request, len)),
            Ok(false) => self.ready.push(request.done(Ok(()))),
            Err(error) => self.ready.push(request.done(Err(error))),
        }
    }

    fn harvest(&mut self, wait: bool, done: &mut Vec<Done>) -> io::Result<()> {
        let before = done.len();
        done.append(&mut self.ready);
        loop {
            self.start();
            let wait = wait && done.len() == before;
            self.session.receive(self.lane, &self.inbox, wait)?;
            self.collect(done);
            if !wait || done.len() > before || self.inbox.take_wake() {
                // Starts more requests first, so that the server works on them while the owner uses
                // these results.
                self.start();
                return Ok(());
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.ready.len() + self.backlog.len() + self.started()
    }

    fn cancel(&mut self, token: u64) -> bool {
        let place = self.backlog.iter().position(|(request, _)| request.token == token);
        let request = place.and_then(|place| self.backlog.remove(place));
        let found = request.is_some();
        self.ready.extend(request.map(|(request, _)| request.canceled()));
        found
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::new(Arc::clone(&self.inbox))
    }
}

impl Drop for NbdQueue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        // An error of poll(2) would repeat for ever, so it ends the loop.
        while self.in_flight() > 0 && self.harvest(true, &mut done).is_ok() {
            done.clear();
        }
    }
}

impl fmt::Debug for NbdQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdQueue")
            .field("device", &self.session.url)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
