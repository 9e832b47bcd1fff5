//! One connection to an export: sends commands, receives their answers.
//!
//! - Sending: the thread that has commands enters them in the table and writes them to the socket
//!   at once.
//! - Receiving: of the threads that wait, one [leads](crate::role) and receives for all.
//!
//! A lost connection stays lost; [`recover`](crate::recover) makes new ones and sends the commands
//! on them. Locks are acquired in the order `incoming`, `outgoing`, `in_flight`; no lock is
//! acquired while `role` is held.

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
use crate::guard::Changes;
use crate::in_flight::InFlight;
use crate::incoming::{Incoming, Link};
use crate::negotiate::Negotiated;
use crate::outgoing::{Message, Outgoing};
use crate::protocol::{REQUEST_MAGIC, RequestHead, command};
use crate::retained::Retained;
use crate::role::{Receiver, Role};
use crate::socket::reset;

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
    /// The socket to the server, if `socket` leads to a thread that encrypts; see
    /// [`tls`](crate::tls).
    encrypted: Option<Arc<OwnedFd>>,
    changes: Arc<Changes>,
    retained: Arc<Retained>,
    /// Time after which a command without an answer means that the connection is lost.
    timeout: Duration,
    /// Time at which the connection counts as lost, even if the server has answered.
    deadline: Mutex<Option<Instant>>,
    /// Time at which the connection was made.
    pub(crate) since: Instant,
}

impl Connection {
    pub(crate) fn new(negotiated: Negotiated, retained: Arc<Retained>, timeout: Duration) -> Self {
        Self {
            role: Role::default(),
            incoming: Mutex::new(Incoming::new(negotiated.structured)),
            outgoing: Mutex::default(),
            in_flight: Mutex::default(),
            is_blocked: AtomicBool::new(false),
            socket: negotiated.socket,
            encrypted: negotiated.encrypted,
            changes: negotiated.changes,
            retained,
            timeout,
            deadline: Mutex::new(None),
            since: Instant::now(),
        }
    }

    /// Sends commands. Does not block. A thread that waits for the answers reports a failure of the
    /// socket.
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
            if command.is_change() {
                self.changes.begin();
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
        // The copies are made only now, because the server works on the requests meanwhile.
        for (cookie, payload) in volatile {
            let copied = payload.copied();
            self.in_flight.lock().keep(cookie, copied);
        }
        refused
    }

    fn flush_outgoing(&self, outgoing: &mut Outgoing) {
        match outgoing.send(&self.socket, || self.changes.may_write()) {
            Ok(all) => {
                let was_blocked = self.is_blocked.swap(!all, SeqCst);
                // The leader polls for room in the socket only if it knows that a request waits for
                // it.
                if !all && !was_blocked {
                    self.role.poke_leader();
                }
            }
            Err(_) => self.reset(),
        }
    }

    /// Blocks until `inbox` has news, and receives replies meanwhile. Without `wait`, receives only
    /// the replies that have arrived.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn receive(&self, inbox: &Arc<Inbox>, wait: bool) -> io::Result<()> {
        self.role.receive(inbox, wait, || Leader { connection: self, incoming: self.incoming.lock() })
    }

    /// Sets the time at which the connection counts as lost, even if the server has answered. It
    /// takes effect within [`CHECK_AFTER`].
    pub(crate) fn set_deadline(&self, deadline: Option<Instant>) {
        *self.deadline.lock() = deadline;
    }

    fn check_age(&self) -> io::Result<()> {
        if self.deadline.lock().is_some_and(|deadline| Instant::now() >= deadline) {
            let message = "the server was too slow to answer the first requests of a new connection";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
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
        if command.is_change() {
            self.changes.end();
        }
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

    /// Resets the connection: threads that wait for it find it lost. Bytes that this machine has
    /// not transmitted yet are dropped; `recover` sends their commands again on a new connection.
    fn reset(&self) {
        self.encrypted.as_deref().map(reset);
        reset(&self.socket);
    }

    /// Tells the server that no more requests follow, and ends the connection after the bytes that
    /// the socket has accepted.
    pub(crate) fn disconnect(&self) {
        let mut outgoing = self.outgoing.lock();
        let mut head = RequestHead::new_zeroed();
        (head.magic, head.kind) = (REQUEST_MAGIC.into(), command::DISCONNECT.into());
        outgoing.push(Message { head, payload: None });
        self.flush_outgoing(&mut outgoing);
        // A socket that is closed already needs no shutdown.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Ends a lost connection and returns the commands that have no answer. Blocks until no thread
    /// receives.
    pub(crate) fn close(&self) -> Vec<Command> {
        self.reset();
        let mut incoming = self.incoming.lock();
        let mut commands: Vec<_> = incoming.close().into_iter().collect();
        // Closes both with `outgoing` locked, so that no command enters one of them in between.
        let mut outgoing = self.outgoing.lock();
        outgoing.clear();
        commands.extend(self.in_flight.lock().close());
        drop(outgoing);
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
