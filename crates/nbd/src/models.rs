//! The hand-over between the threads of a connection, for the models in `tests/shuttle.rs`. Only
//! the socket is replaced by a model.

use std::io;
use std::sync::Arc;

use parext4_sync::Mutex;

use crate::event::model::ModelSocket;
pub use crate::fault::{Fault, plant};
use crate::mailbox::Mailbox;
use crate::role::{Receiver, Role};

type Answer = (Arc<Mailbox<u32>>, u32);

/// A connection whose requests have numbers.
#[derive(Debug, Default)]
pub struct Connection {
    role: Role<u32>,
    /// The lock of the leader.
    incoming: Mutex<()>,
    socket: ModelSocket<Answer>,
}

/// A thread that waits for answers.
#[derive(Clone, Debug)]
pub struct Caller(Arc<Mailbox<u32>>);

impl Default for Caller {
    fn default() -> Self {
        Self(Mailbox::new().expect("a model has no limit of files"))
    }
}

impl Connection {
    /// Delivers the answer to a request of `caller`.
    pub fn answer(&self, caller: &Caller, request: u32) {
        self.socket.arrive((Arc::clone(&caller.0), request));
    }

    /// Ends the connection as lost. Blocks until no thread receives.
    pub fn close(&self) {
        self.socket.close();
        drop(self.incoming.lock());
        self.role.poke_all();
    }

    /// Returns answers of `caller`; with `wait`, blocks until there is one.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn receive(&self, caller: &Caller, wait: bool) -> io::Result<Vec<u32>> {
        let received = self.role.receive(&caller.0, wait, || {
            let incoming = self.incoming.lock();
            Leader { socket: &self.socket, _incoming: incoming }
        });
        received.map(|()| caller.0.take())
    }
}

impl Caller {
    /// Ends a wait of the caller, as the waker of a queue does.
    pub fn wake(&self) {
        std::task::Wake::wake_by_ref(&self.0);
    }

    /// Clears the caller's wake, and returns whether it was woken.
    pub fn take_wake(&self) -> bool {
        self.0.take_wake()
    }
}

struct Leader<'a, G> {
    socket: &'a ModelSocket<Answer>,
    _incoming: G,
}

impl<G> Receiver<u32> for Leader<'_, G> {
    fn block(&mut self, inbox: &Mailbox<u32>) -> io::Result<()> {
        inbox.sleep(Some(self.socket.watched()), None)
    }

    fn receive(&mut self) -> io::Result<()> {
        while let Some((owner, request)) = self.socket.receive()? {
            owner.push(request);
        }
        Ok(())
    }
}
