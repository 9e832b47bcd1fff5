//! The leader of a connection: the one thread that receives for all that wait for the connection.
//!
//! A waiting thread leads if no other thread does. Other threads block on their inboxes. A leader
//! that leaves passes the role to a waiting thread. So a thread that waits anyway reads the
//! replies, and no other thread is needed.
//!
//! Invariant: if a connection has waiting threads, one of them leads, or is about to leave and will
//! pass the role on.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parext4_sync::Mutex;

use crate::fault::Fault;
use crate::mailbox::Mailbox;

/// The role of the leader, and the threads that wait for it.
#[derive(Debug)]
pub(crate) struct Role<T>(Mutex<Leadership<T>>);

#[derive(Debug)]
struct Leadership<T> {
    leader: Option<Arc<Mailbox<T>>>,
    waiting: VecDeque<Arc<Mailbox<T>>>,
}

/// The work of a leader.
pub(crate) trait Receiver<T> {
    /// Blocks until the connection is ready or `inbox` has news.
    ///
    /// # Errors
    /// Errors of poll(2).
    fn block(&mut self, inbox: &Mailbox<T>) -> io::Result<()>;

    /// Receives the replies that have arrived, and passes the completions to their owners. Does not
    /// block.
    ///
    /// # Errors
    /// The connection is lost.
    fn receive(&mut self) -> io::Result<()>;
}

impl<T> Default for Role<T> {
    fn default() -> Self {
        Self(Mutex::new(Leadership { leader: None, waiting: VecDeque::new() }))
    }
}

impl<T> Role<T> {
    /// Blocks until `inbox` has news; receives meanwhile if no other thread does. `receiver`
    /// returns the receiver of a leader. Without `wait`, receives the replies that have arrived.
    ///
    /// # Errors
    /// The errors of the receiver.
    pub(crate) fn receive<R: Receiver<T>>(
        &self,
        inbox: &Arc<Mailbox<T>>,
        wait: bool,
        receiver: impl FnOnce() -> R,
    ) -> io::Result<()> {
        let result = loop {
            if inbox.is_ready() {
                break Ok(());
            }
            if !self.lead(inbox, wait) {
                if !wait {
                    break Ok(());
                }
                match inbox.sleep(None, None) {
                    Ok(()) if inbox.is_woken() => break Ok(()),
                    Ok(()) => continue,
                    Err(error) => break Err(error),
                }
            }
            break receive_as_leader(inbox, wait, &mut receiver());
        };
        self.leave(inbox);
        result
    }

    /// Returns true if the thread with this inbox leads now. Otherwise, with `wait`, adds the
    /// thread to the list of waiting threads, so that it gets the role later.
    fn lead(&self, inbox: &Arc<Mailbox<T>>, wait: bool) -> bool {
        let mut state = self.0.lock();
        match &state.leader {
            None => state.leader = Some(Arc::clone(inbox)),
            Some(leader) if Arc::ptr_eq(leader, inbox) => {}
            Some(_) => {
                let is_listed = state.waiting.iter().any(|waiting| Arc::ptr_eq(waiting, inbox));
                if wait && !is_listed && !Fault::WaiterForgotten.is_planted() {
                    state.waiting.push_back(Arc::clone(inbox));
                }
                return false;
            }
        }
        true
    }

    /// Ends the wait of a thread. If the thread leads, passes the role to the next thread.
    fn leave(&self, inbox: &Arc<Mailbox<T>>) {
        let mut state = self.0.lock();
        if state.leader.as_ref().is_some_and(|leader| Arc::ptr_eq(leader, inbox)) {
            let next = if Fault::RoleDropped.is_planted() { None } else { state.waiting.pop_front() };
            state.leader.clone_from(&next);
            drop(state);
            if !Fault::NextLeaderAsleep.is_planted() {
                next.iter().for_each(|next| next.poke());
            }
        } else if !Fault::WaiterStays.is_planted() {
            state.waiting.retain(|waiting| !Arc::ptr_eq(waiting, inbox));
        }
    }

    /// Ends the leader's wait, so that it checks its connection.
    pub(crate) fn poke_leader(&self) {
        let leader = self.0.lock().leader.clone();
        leader.iter().for_each(|leader| leader.poke());
    }

    /// Ends the waits of all threads, so that they check their connection.
    pub(crate) fn poke_all(&self) {
        let state = self.0.lock();
        state.leader.iter().chain(&state.waiting).for_each(|inbox| inbox.poke());
    }
}

/// Receives until `inbox` has news; without `wait`, once.
fn receive_as_leader<T>(inbox: &Mailbox<T>, wait: bool, receiver: &mut impl Receiver<T>) -> io::Result<()> {
    let goes_on = || wait && !inbox.is_woken() && (!inbox.is_ready() || Fault::LeaderStays.is_planted());
    let mut is_first = true;
    while is_first || goes_on() {
        is_first = false;
        if wait {
            receiver.block(inbox)?;
        }
        receiver.receive()?;
    }
    Ok(())
}
