//! New connections after a loss, and what is sent on them first.
//!
//! 1. All old connections are closed. Their commands without an answer are collected.
//! 2. New connections are made, with growing pauses between attempts. The export must be the same.
//! 3. The client asks the [guard](crate::guard) whether this machine still owns the volume. If not,
//!    it gives up.
//! 4. The [retained](crate::retained) writes are sent, and the server must answer all of them.
//!    Nothing else is sent meanwhile, so they precede every write that overlaps them and is newer.
//!    Flushes between them release the writes before them, so that even a connection that is lost
//!    early makes progress.
//! 5. The collected commands are sent again, then the commands that have arrived meanwhile.
//!
//! When the time of the URL's option `reconnect` is over, all commands fail, and so do all later
//! ones. The time counts from the first loss that met the oldest command, and again from each flush
//! of step 4. So a server that accepts connections but does not answer, or answers slowly, cannot
//! delay a command for ever.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parext4_device::BufferPool;

use crate::command::{Action, Command, Inbox, Target, Write};
use crate::connect::{CONNECT_TIME, connect};
use crate::connection::Connection;
use crate::error;
use crate::export::Export;
use crate::flush;
use crate::guard::Guard;
use crate::retained::{Retained, RetainedWrite};
use crate::session::{Loss, Session, SessionState};
use crate::url::NbdUrl;

/// First and longest pause between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// Age of a connection after which its loss counts as the first one, so that the first attempt
/// needs no pause.
const SETTLED: Duration = Duration::from_secs(5);
/// Shortest time for an attempt.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Number of retained writes that are sent before an answer is awaited.
const WINDOW: usize = 16;
/// Bytes of retained writes that are sent before a flush.
const FLUSH_AFTER: u64 = 4 << 20;

/// Why an attempt failed.
enum Failure {
    /// Another attempt may succeed.
    Transient(io::Error),
    /// No attempt will succeed.
    Final(io::Error),
}

/// Connects to the export of a URL, and starts the thread that makes new connections.
///
/// # Errors
/// The errors of the negotiation; the message names the URL.
pub(crate) fn open(url: &NbdUrl) -> io::Result<Arc<Session>> {
    let retained = Arc::new(Retained::new(url.retain));
    let guard = Arc::new(Guard::default());
    let made = connect_first(url, (&retained, &guard));
    let made = made.map_err(|error| io::Error::new(error.kind(), format!("{url}: {error}")))?;
    let (sender, losses) = channel();
    // The thread ends when the session is dropped, and with it the sender.
    let thread = std::thread::Builder::new().name("nbd-recover".into());
    thread.spawn(move || losses.into_iter().for_each(run))?;
    let session = Session::new(url, (retained, guard), made, sender);
    flush::start(&session)?;
    Ok(session)
}

/// Time for which the client retries the first connections of a session if the server ends them,
/// because the server may still count the connections of a session that has just ended.
const REFUSED_TIME: Duration = Duration::from_secs(1);

/// Makes the first connections of a session. Retries for [`REFUSED_TIME`] if the server ends them
/// before it says anything: a server that serves a limited number of clients may still count a
/// client that has left.
fn connect_first(
    url: &NbdUrl,
    session: (&Arc<Retained>, &Arc<Guard>),
) -> io::Result<(Vec<Arc<Connection>>, Export)> {
    let begin = Instant::now();
    let mut refusal = None;
    loop {
        match connect(url, session, begin + CONNECT_TIME) {
            Ok(made) => return Ok(made),
            Err(error) if is_refusal(&error) && begin.elapsed() < REFUSED_TIME => {
                refusal.get_or_insert(error);
            }
            Err(error) => return Err(refusal.unwrap_or(error)),
        }
        sleep(REFUSED_TIME / 20);
    }
}

/// Returns true if a server has ended a connection during the negotiation.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// Connects a session again, and sends its commands again. If no connection succeeds in time, fails
/// these commands and all later ones.
fn run(loss: Loss) {
    let Loss { session, connections, error } = loss;
    let now = Instant::now();
    let mut commands: Vec<_> = connections.iter().flat_map(|connection| connection.close()).collect();
    for command in &mut commands {
        command.lost_since.get_or_insert(now);
    }
    let since = commands.iter().filter_map(|command| command.lost_since).min().unwrap_or(now);
    let settled = connections.iter().all(|connection| connection.since.elapsed() > SETTLED);
    drop(connections);
    if since + session.url.reconnect < now {
        let time = (now - since).as_secs();
        let why = io::Error::new(
            io::ErrorKind::TimedOut,
            format!("requests without an answer for {time} s: {error}"),
        );
        return give_up(&session, &why, commands);
    }
    let mut pause = if settled { Duration::ZERO } else { PAUSES.0 };
    let mut deadline = since + session.url.reconnect;
    loop {
        sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
        pause = (pause * 2).clamp(PAUSES.0, PAUSES.1);
        if session.closed.load(SeqCst) {
            // The device is closed, so no owner waits, and another program may use the export.
            return give_up(&session, &io::Error::other("the device is closed"), commands);
        }
        let error = match attempt(&session, &mut deadline) {
            Ok(connections) => return publish(&session, connections, commands),
            Err(Failure::Transient(why)) => why,
            Err(Failure::Final(why)) => return give_up(&session, &why, commands),
        };
        log::debug!("{}: cannot reconnect: {error}", session.url);
        if Instant::now() >= deadline {
            let time = session.url.reconnect.as_secs();
            let why = io::Error::new(io::ErrorKind::TimedOut, format!("no connection for {time} s: {error}"));
            return give_up(&session, &why, commands);
        }
    }
}

/// Makes new connections and sends the retained writes before the deadline, which progress extends.
fn attempt(session: &Session, deadline: &mut Instant) -> Result<Vec<Arc<Connection>>, Failure> {
    let until = (*deadline).max(Instant::now() + ATTEMPT).min(Instant::now() + CONNECT_TIME);
    let (connections, export) =
        connect(&session.url, (&session.retained, &session.guard), until).map_err(Failure::Transient)?;
    session.export.check_same(&export).map_err(Failure::Final)?;
    let first = &connections[0];
    first.set_deadline(Some((*deadline).max(Instant::now() + ATTEMPT)));
    match ask_guard(session, first).and_then(|()| send_retained(session, first, deadline)) {
        Ok(()) => {
            first.set_deadline(None);
            Ok(connections)
        }
        Err(failure) => {
            connections.iter().for_each(|connection| drop(connection.close()));
            Err(failure)
        }
    }
}

/// Asks the guard whether this machine still owns the volume.
fn ask_guard(session: &Session, connection: &Connection) -> Result<(), Failure> {
    let asked = session.guard.may_resend(&mut |offset, bytes| read(connection, offset, bytes));
    asked.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::Final(error),
        _ => Failure::Transient(error),
    })
}

/// Reads at most one block from the export, on a connection that no other thread uses yet.
fn read(connection: &Connection, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    let inbox = Inbox::new()?;
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let target = Target::Part(BufferPool::global().take(bytes.len()));
    let command = Command::new(Action::Read(target), (offset, len), &inbox, (0, 0));
    if !connection.send(vec![command]).is_empty() {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    connection.receive(&inbox, true)?;
    for mut command in inbox.take() {
        std::mem::replace(&mut command.result, Ok(()))?;
        if let Action::Read(target) = &mut command.action {
            bytes.copy_from_slice(target.range(0, bytes.len()));
        }
    }
    Ok(())
}

/// Sends all retained writes and blocks until the server has answered them. The writes after the
/// last flush stay retained. Each flush extends the deadline.
fn send_retained(session: &Session, connection: &Connection, deadline: &mut Instant) -> Result<(), Failure> {
    let inbox = Inbox::new().map_err(Failure::Transient)?;
    let mut writes = session.retained.all().into_iter().peekable();
    while writes.peek().is_some() {
        let (mut bytes, mut mark) = (0, 0);
        let part = std::iter::from_fn(|| {
            let write = writes.next_if(|_| bytes < FLUSH_AFTER)?;
            bytes += write.len;
            mark = write.number;
            Some(again(session, write, &inbox))
        });
        send_again(connection, &inbox, part)?;
        if writes.peek().is_some_and(|next| next.number > mark) {
            let flush = Command::new(Action::Flush { mark }, (0, 0), &inbox, (0, 0));
            send_again(connection, &inbox, [flush].into_iter())?;
            *deadline = (*deadline).max(Instant::now() + session.url.reconnect);
            connection.set_deadline(Some((*deadline).max(Instant::now() + ATTEMPT)));
        }
    }
    Ok(())
}

/// Sends commands, and blocks until the server has answered all of them.
fn send_again(
    connection: &Connection,
    inbox: &Arc<Inbox>,
    mut commands: impl Iterator<Item = Command>,
) -> Result<(), Failure> {
    let mut in_flight = 0;
    loop {
        let batch: Vec<_> = commands.by_ref().take(WINDOW - in_flight).collect();
        in_flight += batch.len();
        if in_flight == 0 {
            return Ok(());
        }
        if !connection.send(batch).is_empty() {
            return Err(Failure::Transient(io::ErrorKind::ConnectionAborted.into()));
        }
        connection.receive(inbox, true).map_err(Failure::Transient)?;
        for command in inbox.take() {
            in_flight -= 1;
            command.result.map_err(|error| {
                let message = format!("the server refused to repeat a write that it had answered: {error}");
                Failure::Final(io::Error::new(error.kind(), message))
            })?;
        }
    }
}

/// Makes the command that repeats a retained write.
fn again(session: &Session, write: RetainedWrite, inbox: &Arc<Inbox>) -> Command {
    let RetainedWrite { offset, len, payload, .. } = write;
    debug_assert!(len <= session.export.largest.into(), "a write is no longer than a request");
    let write = Write { payload, copy: None, is_volatile: false, fua: false };
    Command::new(Action::Write(write), (offset, len as u32), inbox, (0, 0))
}

/// Sends the parked commands, and makes the session live, so that threads send commands themselves.
fn publish(session: &Session, connections: Vec<Arc<Connection>>, commands: Vec<Command>) {
    log::info!("{}: connected again; {} requests are sent again", session.url, commands.len());
    let mut state = session.state.write();
    let SessionState::Lost { parked, waiting } =
        std::mem::replace(&mut *state, SessionState::Live(connections.clone()))
    else {
        unreachable!("only the thread of a session ends the state Lost");
    };
    for command in commands.into_iter().chain(parked) {
        let connection = &connections[command.lane % connections.len()];
        let refused = connection.send(vec![command]);
        debug_assert!(refused.is_empty(), "nothing closes a connection in the state Lost");
    }
    waiting.iter().for_each(|inbox| inbox.poke());
}

/// Fails all parked commands and all later ones.
fn give_up(session: &Session, why: &io::Error, commands: Vec<Command>) {
    let bytes = session.retained.bytes();
    let message = format!(
        "{}: stopped: {why}; {bytes} bytes that were written and not flushed may be lost",
        session.url
    );
    if session.closed.load(SeqCst) {
        log::debug!("{message}");
    } else {
        log::error!("{message}");
    }
    let dead = io::Error::new(why.kind(), message);
    let mut state = session.state.write();
    let old = std::mem::replace(&mut *state, SessionState::Dead(error::copy(&dead)));
    if let SessionState::Lost { parked, waiting } = old {
        for command in commands.into_iter().chain(parked) {
            command.finish(Err(error::copy(&dead)));
        }
        waiting.iter().for_each(|inbox| inbox.poke());
    }
}
