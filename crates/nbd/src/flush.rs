//! The flushes of a session, one at a time, each for all owners that wait.
//!
//! A server may report only once that it has lost writes. For example, fsync(2) on Linux reports
//! the loss to one of two flushes that are in flight at the same time, and the other flush
//! succeeds. If the success arrived first, the client would acknowledge writes that are lost. So a
//! session never has two flushes in flight.
//!
//! 1. A thread that makes a blocking call flushes itself if it finds the [turn](crate::flush_turn)
//!    free.
//! 2. Other flushes wait. The session's own thread sends one flush for all that wait. Its answer is
//!    the result of all of them.
//! 3. Flushes that arrive meanwhile wait for the next flush.
//! 4. After the server has refused a flush, the client sends no flush, and all flushes fail (I8).
//!
//! A flush covers all writes that were answered before it was sent. The thread that sends it
//! receives until the server has answered. So an owner that waits does not depend on another owner,
//! which may stop receiving at any time.

use std::io;
use std::sync::{Arc, Weak};

use crate::command::{Action, Command, Inbox};
use crate::error;
use crate::flush_turn::FlushTurn;
use crate::session::Session;

/// Starts the thread that flushes. It ends when the session is dropped.
///
/// # Errors
/// The process has too many files open or too many threads.
pub(crate) fn start(session: &Arc<Session>) -> io::Result<()> {
    let inbox = Inbox::new()?;
    let (turn, session) = (Arc::clone(&session.flush_turn), Arc::downgrade(session));
    let thread = std::thread::Builder::new().name("nbd-flush".into());
    thread.spawn(move || run(&turn, &session, &inbox)).map(drop)
}

fn run(turn: &FlushTurn, session: &Weak<Session>, inbox: &Arc<Inbox>) {
    while let Some(waiting) = turn.next()
        && let Some(session) = session.upgrade()
    {
        let lane = waiting.first().map_or(0, |command| command.lane);
        let result = flush(&session, inbox, (lane, 0));
        for command in waiting {
            command.finish(result.as_ref().map_err(error::copy).copied());
        }
    }
}

/// Makes all answered writes durable, for a thread that may block. Returns `None` if the thread
/// must wait for another flush.
pub(crate) fn try_flush(
    session: &Arc<Session>,
    inbox: &Arc<Inbox>,
    (lane, ticket): (usize, u64),
) -> Option<io::Result<()>> {
    session.flush_turn.try_acquire().then(|| {
        let result = flush(session, inbox, (lane, ticket));
        session.flush_turn.release();
        result
    })
}

/// Makes all answered writes durable. The caller has the turn.
fn flush(session: &Arc<Session>, inbox: &Arc<Inbox>, (lane, ticket): (usize, u64)) -> io::Result<()> {
    session.retained.check()?;
    let action = Action::Flush { mark: session.retained.mark() };
    session.send_now(lane, vec![Command::new(action, (0, 0), inbox, (lane, ticket))]);
    loop {
        if let Err(error) = session.receive(lane, inbox, true) {
            // The flush is still in flight, so no other flush may follow.
            session.retained.flush_failed(&error);
            return Err(error);
        }
        // The inbox may also have answers that an earlier call did not await.
        if let Some(command) = inbox.take().into_iter().find(|command| command.ticket == ticket) {
            return command.result;
        }
    }
}
