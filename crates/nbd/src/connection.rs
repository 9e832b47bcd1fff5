//! One connection to an export: sends commands, receives their answers.
//!
//! - Sending: the thread that has commands enters them in the table and writes them to the socket at once.
//! - Receiving: of the threads that wait, one [leads](crate::role) and receives for all.
//!
//! A connection that is lost stays so; [`recover`](crate::recover) makes new ones and takes over the commands. Locks are acquired in the
//! order `incoming`, `outgoing`, `in_flight`; no lock is acquired while `role` is held.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::event::PollFlags;
use rustix::net::Shutdown;
use zerocopy::FromZeros;

use crate::command::{Action, Command, Inbox};
use crate::error::against_protocol;
use crate::event::Socket;
use crate::guard::Guard;
use crate::in_flight::InFlight;
use crate::incoming::{Incoming, Link};
use crate::negotiate::Negotiated;
use crate::outgoing::{Message, Outgoing};
use crate::protocol::{REQUEST_MAGIC, RequestHead, command};
use crate::retained::Retained;
use crate::role::{Receiver, Role};

/// Time between two checks for commands that are without an answer for too long.
const CHECK_AFTER: Duration = Duration::from_secs(1);

/// A connection to an export.
#[derive(Debug)]
pub(crate) struct Connection {
    role: Role<Command>,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
    in_flight: Mutex<InFlight>,
    /// Whether `outgoing` waits for the socket.
    is_blocked: AtomicBool,
    socket: OwnedFd,
    retained: Arc<Retained>,
    guard: Arc<Guard>,
    /// Time after which a command without an answer means that the connection is lost.
    timeout: Duration,
    /// Time at which the connection was made.
    pub(crate) since: Instant,
}

impl Connection {
    pub(crate) fn new(
        negotiated: Negotiated,
        retained: Arc<Retained>,
        guard: Arc<Guard>,
        timeout: Duration,
    ) -> Self {
        Self {
            role: Role::default(),
            incoming: Mutex::new(Incoming::new(negotiated.structured)),
            outgoing: Mutex::default(),
            in_flight: Mutex::default(),
            is_blocked: AtomicBool::new(false),
            socket: negotiated.socket,
            retained,
            guard,
            timeout,
            since: Instant::now(),
        }
    }

    /// Sends commands. Does not block. A failure of the socket shows when a thread waits for the answers.
    ///
    /// Returns the commands that are not sent, because the connection was closed.
    pub(crate) fn send(&self, commands: Vec<Command>) -> Vec<Command> {
        let mut refused = Vec::new();
        let mut volatile = Vec::new();
        let mut outgoing = self.outgoing.lock();
        for command in commands {
            let mut head = head(&command);
            let payload = command.payload();
            let needs_copy =
                matches!(&command.action, Action::Write(write) if write.is_volatile && write.copy.is_none());
            let mut in_flight = self.in_flight.lock();
            if in_flight.is_closed() {
                refused.push(command);
                continue;
            }
            let cookie = in_flight.insert(command);
            drop(in_flight);
            if needs_copy && let Some(payload) = &payload {
                volatile.push((cookie, payload.clone()));
            }
            head.cookie = cookie.into();
            outgoing.push(Message { head, payload });
        }
        self.flush_outgoing(&mut outgoing);
        drop(outgoing);
        // The server works on the requests meanwhile.
        for (cookie, payload) in volatile {
            let copied = payload.copied();
            self.in_flight.lock().keep(cookie, copied);
        }
        refused
    }

    fn flush_outgoing(&self, outgoing: &mut Outgoing) {
        // Asked right before the system call, because the process may have been stopped since the last one.
        if !self.guard.may_write() && outgoing.has_changes() {
            return self.shut_down();
        }
        match outgoing.send(&self.socket) {
            Ok(all) => {
                let was_blocked = self.is_blocked.swap(!all, SeqCst);
                // The leader polls for room in the socket only if it knows that a request waits for it.
                if !all && !was_blocked {
                    self.role.poke_leader();
                }
            }
            Err(_) => self.shut_down(),
        }
    }

    /// Blocks until `inbox` has news, and receives meanwhile. Without `wait`, receives what has arrived.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn receive(&self, inbox: &Arc<Inbox>, wait: bool) -> io::Result<()> {
        self.role.receive(inbox, wait, || Leader { connection: self, incoming: self.incoming.lock() })
    }

    fn check_age(&self) -> io::Result<()> {
        match self.in_flight.lock().oldest() {
            Some(age) if age > self.timeout => {
                let message = format!("no answer to a request for {} s", age.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            }
            _ => Ok(()),
        }
    }

    /// Ends a command whose answer has arrived.
    fn complete(&self, cookie: u64, mut command: Command, result: io::Result<()>) -> io::Result<()> {
        if self.is_blocked.load(SeqCst) && self.outgoing.lock().has(cookie) {
            self.in_flight.lock().put_back(cookie, command);
            return Err(against_protocol("an answer to a request that is not wholly sent"));
        }
        self.in_flight.lock().release(cookie);
        match (&mut command.action, &result) {
            (Action::Flush { mark }, Ok(())) => self.retained.flushed(*mark),
            (Action::Flush { .. }, Err(why)) => self.retained.flush_failed(why),
            (Action::Write(write), Ok(())) if write.is_volatile => {
                let copied = write.copy.take().unwrap_or_else(|| write.payload.copied());
                self.retained.add(command.offset, command.len.into(), copied);
            }
            _ => {}
        }
        command.finish(result);
        Ok(())
    }

    /// Ends the connection: threads that wait for it find it lost.
    pub(crate) fn shut_down(&self) {
        // A socket that is closed already needs no shutdown.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Tells the server that no more requests follow, and ends the connection.
    pub(crate) fn disconnect(&self) {
        let mut outgoing = self.outgoing.lock();
        let mut head = RequestHead::new_zeroed();
        (head.magic, head.kind) = (REQUEST_MAGIC.into(), command::DISCONNECT.into());
        outgoing.push(Message { head, payload: None });
        self.flush_outgoing(&mut outgoing);
    }

    /// Ends the connection and returns the commands that have no answer. Blocks until no thread receives.
    pub(crate) fn close(&self) -> Vec<Command> {
        self.shut_down();
        let mut incoming = self.incoming.lock();
        let mut commands: Vec<_> = incoming.close().into_iter().collect();
        self.outgoing.lock().clear();
        commands.extend(self.in_flight.lock().close());
        drop(incoming);
        self.role.poke_all();
        commands
    }
}

/// The thread that receives.
struct Leader<'a> {
    connection: &'a Connection,
    incoming: MutexGuard<'a, Incoming>,
}

impl Receiver<Command> for Leader<'_> {
    fn block(&mut self, inbox: &Inbox) -> io::Result<()> {
        let mut wanted = PollFlags::IN;
        if self.connection.is_blocked.load(SeqCst) {
            wanted |= PollFlags::OUT;
        }
        inbox.sleep(Some(Socket::new(&self.connection.socket, wanted)), Some(CHECK_AFTER))
    }

    fn receive(&mut self) -> io::Result<()> {
        let connection = self.connection;
        if connection.is_blocked.load(SeqCst) {
            connection.flush_outgoing(&mut connection.outgoing.lock());
        }
        let complete = |cookie, command, result| connection.complete(cookie, command, result);
        let (socket, in_flight) = (&connection.socket, &connection.in_flight);
        self.incoming.receive(&Link { socket, in_flight, complete: &complete })?;
        if self.incoming.checked.elapsed() >= CHECK_AFTER {
            self.incoming.checked = Instant::now();
            connection.check_age()?;
        }
        Ok(())
    }
}

fn head(command: &Command) -> RequestHead {
    let (kind, flags) = command.kind();
    RequestHead {
        magic: REQUEST_MAGIC.into(),
        flags: flags.into(),
        kind: kind.into(),
        cookie: 0.into(),
        offset: command.offset.into(),
        len: command.len.into(),
    }
}
