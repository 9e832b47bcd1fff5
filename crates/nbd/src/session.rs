//! A session: the connections to one export, and what happens to commands while there are none.
//!
//! | state | new commands |
//! |---|---|
//! | `Live` | are sent on the connection of their lane |
//! | `Lost` | wait until the thread of [`recover`](crate::recover) has made new connections |
//! | `Dead` | fail: the thread has given up |
//!
//! If one connection is lost, all are closed and new ones are made, because the server may have
//! restarted. All connections are made before the first command is sent on any of them. So all
//! answers of one state `Live` come from one run of the server, and a flush that it answers covers
//! the writes that it answered.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::Sender;

use parking_lot::RwLock;

use crate::command::{Action, Command, Inbox};
use crate::connection::Connection;
use crate::error;
use crate::export::Export;
use crate::flush_turn::FlushTurn;
use crate::guard::Guard;
use crate::retained::Retained;
use crate::url::NbdUrl;

/// The connections to an export.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) url: NbdUrl,
    pub(crate) export: Export,
    pub(crate) retained: Arc<Retained>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) state: RwLock<SessionState>,
    /// Whether the device was closed.
    pub(crate) closed: AtomicBool,
    /// The thread that makes new connections.
    recover: Sender<Loss>,
    pub(crate) flush_turn: Arc<FlushTurn>,
}

/// The loss of a session's connections, for the thread that makes new ones.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) session: Arc<Session>,
    pub(crate) connections: Vec<Arc<Connection>>,
    pub(crate) error: io::Error,
}

/// Whether a session has connections.
#[derive(Debug)]
pub(crate) enum SessionState {
    Live(Vec<Arc<Connection>>),
    Lost {
        /// Commands that wait for new connections.
        parked: Vec<Command>,
        /// Threads that wait for new connections.
        waiting: Vec<Arc<Inbox>>,
    },
    Dead(io::Error),
}

impl Session {
    pub(crate) fn new(
        url: &NbdUrl,
        (retained, guard): (Arc<Retained>, Arc<Guard>),
        (connections, export): (Vec<Arc<Connection>>, Export),
        recover: Sender<Loss>,
    ) -> Arc<Self> {
        Arc::new(Self {
            url: url.clone(),
            export,
            retained,
            guard,
            state: RwLock::new(SessionState::Live(connections)),
            closed: AtomicBool::new(false),
            recover,
            flush_turn: Arc::default(),
        })
    }

    /// Sends commands of one lane. Flushes wait for their [turn](crate::flush). Does not block on
    /// the server.
    pub(crate) fn send(&self, lane: usize, mut commands: Vec<Command>) {
        for command in commands.extract_if(.., |command| matches!(command.action, Action::Flush { .. })) {
            self.flush_turn.add(command);
        }
        self.send_now(lane, commands);
    }

    /// Sends commands of one lane, also flushes. Does not block on the server.
    pub(crate) fn send_now(&self, lane: usize, mut commands: Vec<Command>) {
        while !commands.is_empty() {
            let connection = match &*self.state.read() {
                SessionState::Live(connections) => Some(Arc::clone(&connections[lane % connections.len()])),
                _ => None,
            };
            if let Some(connection) = connection {
                commands = connection.send(commands);
                continue;
            }
            match &mut *self.state.write() {
                SessionState::Live(_) => {}
                SessionState::Lost { parked, .. } => parked.append(&mut commands),
                SessionState::Dead(why) => {
                    commands.drain(..).for_each(|command| command.finish(Err(error::copy(why))));
                }
            }
        }
    }

    /// Receives on the connection of a lane; with `wait`, blocks until `inbox` has news.
    ///
    /// # Errors
    /// The thread cannot block: an error of poll(2).
    pub(crate) fn receive(self: &Arc<Self>, lane: usize, inbox: &Arc<Inbox>, wait: bool) -> io::Result<()> {
        while !inbox.is_ready() && !inbox.is_woken() {
            let connection = match &*self.state.read() {
                SessionState::Live(connections) => Some(Arc::clone(&connections[lane % connections.len()])),
                _ => None,
            };
            if let Some(connection) = connection {
                if let Err(error) = connection.receive(inbox, wait) {
                    self.lost(&connection, error);
                }
            } else if wait {
                if let SessionState::Lost { waiting, .. } = &mut *self.state.write() {
                    waiting.push(Arc::clone(inbox));
                }
                // If the state has changed meanwhile, nothing would end the wait.
                if !matches!(&*self.state.read(), SessionState::Live(_)) {
                    inbox.sleep(None, None)?;
                }
            }
            if !wait {
                break;
            }
        }
        Ok(())
    }

    /// Ends the state `Live` if it has this connection, and makes the thread of `recover` connect
    /// again.
    fn lost(self: &Arc<Self>, connection: &Arc<Connection>, error: io::Error) {
        let mut state = self.state.write();
        let SessionState::Live(connections) = &mut *state else { return };
        if !connections.iter().any(|other| Arc::ptr_eq(other, connection)) {
            return;
        }
        log::warn!("{}: connection lost: {error}", self.url);
        let connections = std::mem::take(connections);
        *state = SessionState::Lost { parked: Vec::new(), waiting: Vec::new() };
        let loss = Loss { session: Arc::clone(self), connections, error };
        // The thread ends only after the session is dropped.
        let sent = self.recover.send(loss);
        debug_assert!(sent.is_ok(), "the thread of a session ended early");
    }

    /// Tells the server that no more requests follow.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        if let SessionState::Live(connections) = &*self.state.read() {
            for connection in connections {
                connection.disconnect();
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.flush_turn.end();
    }
}
