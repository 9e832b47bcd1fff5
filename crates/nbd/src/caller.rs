//! Blocking calls: each thread has an inbox and a lane of its own.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::command::{Action, Command, Inbox};
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
    /// Number of the next command. Answers of flushes that an earlier call did not await have other numbers.
    ticket: u64,
}

/// An action with its offset and its length in bytes.
pub(crate) type Step = (Action, u64, u32);

/// Performs actions at the same time and blocks until all are done. Returns the commands in the order of the actions.
///
/// # Errors
/// The error of one action that failed.
pub(crate) fn call(session: &Arc<Session>, steps: Vec<Step>) -> io::Result<Vec<Command>> {
    thread_local! {
        static CALLER: RefCell<Option<Caller>> = const { RefCell::new(None) };
    }
    CALLER.with_borrow_mut(|caller| {
        if caller.is_none() {
            *caller = Some(Caller { inbox: Inbox::new()?, lane: next_lane(), ticket: 0 });
        }
        let caller = caller.as_mut().expect("made above");
        let writes = steps.iter().any(|(action, ..)| matches!(action, Action::Write(_)));
        if writes && session.export.has_flush() {
            while !session.retained.has_room() {
                caller.run(session, vec![flush(session)])?;
            }
        }
        caller.run(session, steps)
    })
}

/// Returns the step that makes all answered writes durable.
pub(crate) fn flush(session: &Session) -> Step {
    (Action::Flush { mark: session.retained.mark() }, 0, 0)
}

impl Caller {
    fn run(&mut self, session: &Arc<Session>, steps: Vec<Step>) -> io::Result<Vec<Command>> {
        let first = self.ticket;
        let mut commands: Vec<_> = steps.into_iter().map(|step| self.command(step)).collect();
        let end = self.ticket;
        if session.retained.begin_flush() {
            commands.push(self.command(flush(session)));
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

    fn command(&mut self, (action, offset, len): Step) -> Command {
        self.ticket += 1;
        Command::new(action, (offset, len), &self.inbox, (self.lane, self.ticket - 1))
    }
}
