//! Blocking calls: each thread has an inbox and a lane of its own.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::command::{Action, Command, Inbox};
use crate::flush::try_flush;
use crate::session::Session;

/// Returns the number of the next lane, so that queues and threads spread over the connections.
pub(crate) fn next_lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: the numbers order nothing.
    NEXT.fetch_add(1, Relaxed)
}

/// A thread that makes blocking calls.
#[derive(Debug)]
struct Caller {
    inbox: Arc<Inbox>,
    lane: usize,
    /// Number of the next command. So the answer of a flush that an earlier call did not await has
    /// another number.
    ticket: u64,
}

/// An action with its offset and its length in bytes.
pub(crate) type Step = (Action, u64, u32);

thread_local! {
    static CALLER: RefCell<Option<Caller>> = const { RefCell::new(None) };
}

/// Calls `action` with this thread's caller.
fn with_caller<T>(action: impl FnOnce(&mut Caller) -> io::Result<T>) -> io::Result<T> {
    CALLER.with_borrow_mut(|caller| {
        if caller.is_none() {
            *caller = Some(Caller { inbox: Inbox::new()?, lane: next_lane(), ticket: 0 });
        }
        action(caller.as_mut().expect("made above"))
    })
}

/// Performs actions at the same time and blocks until all are done. Returns the commands in the
/// order of the actions.
///
/// # Errors
/// The error of one action that failed.
pub(crate) fn call(session: &Arc<Session>, steps: Vec<Step>) -> io::Result<Vec<Command>> {
    with_caller(|caller| {
        let writes = steps.iter().any(|(action, ..)| matches!(action, Action::Write(_)));
        if writes && session.export.has_flush() {
            while !session.retained.has_room() {
                caller.flush(session)?;
            }
        }
        caller.run(session, steps)
    })
}

/// Makes all answered writes durable, and blocks until they are.
///
/// # Errors
/// The server refused this flush or an earlier one, or the session has ended.
pub(crate) fn flush(session: &Arc<Session>) -> io::Result<()> {
    with_caller(|caller| caller.flush(session))
}

/// The step that makes all answered writes durable, after it has the turn to flush.
pub(crate) const FLUSH: Step = (Action::Flush { mark: 0 }, 0, 0);

impl Caller {
    fn run(&mut self, session: &Arc<Session>, steps: Vec<Step>) -> io::Result<Vec<Command>> {
        let first = self.ticket;
        let mut commands: Vec<_> = steps.into_iter().map(|step| self.command(step)).collect();
        let end = self.ticket;
        if session.retained.begin_flush() {
            commands.push(self.command(FLUSH));
        }
        session.send(self.lane, commands);
        let mut done = Vec::new();
        while done.len() < (end - first) as usize {
            session.receive(self.lane, &self.inbox, true)?;
            done.extend(
                self.inbox.take().into_iter().filter(|command| (first..end).contains(&command.ticket)),
            );
        }
        done.sort_unstable_by_key(|command| command.ticket);
        for command in &mut done {
            std::mem::replace(&mut command.result, Ok(()))?;
        }
        Ok(done)
    }

    fn flush(&mut self, session: &Arc<Session>) -> io::Result<()> {
        self.ticket += 1;
        match try_flush(session, &self.inbox, (self.lane, self.ticket - 1)) {
            Some(result) => result,
            None => self.run(session, vec![FLUSH]).map(drop),
        }
    }

    fn command(&mut self, (action, offset, len): Step) -> Command {
        self.ticket += 1;
        Command::new(action, (offset, len), &self.inbox, (self.lane, self.ticket - 1))
    }
}
