//! The leader of a connection: the one thread that receives for all that wait for the connection.
//!
//! A waiting thread leads if no thread does. Other threads block on their inboxes. A leader that leaves passes the role to a thread
//! that waits. So replies are read as long as a thread waits, and by a thread that runs anyway.
//!
//! Invariant: if a connection has waiting threads, one of them leads, or is about to leave and will pass the role on.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::command::Inbox;

/// The role of the leader, and the threads that wait for it.
#[derive(Debug, Default)]
pub(crate) struct Role(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    leader: Option<Arc<Inbox>>,
    waiting: VecDeque<Arc<Inbox>>,
}

impl Role {
    /// Returns true if the thread with this inbox leads now. With `wait`, it is remembered otherwise, and gets the role later.
    pub(crate) fn lead(&self, inbox: &Arc<Inbox>, wait: bool) -> bool {
        let mut state = self.0.lock();
        match &state.leader {
            None => state.leader = Some(Arc::clone(inbox)),
            Some(leader) if Arc::ptr_eq(leader, inbox) => {}
            Some(_) => {
                if wait && !state.waiting.iter().any(|waiting| Arc::ptr_eq(waiting, inbox)) {
                    state.waiting.push_back(Arc::clone(inbox));
                }
                return false;
            }
        }
        true
    }

    /// Ends the wait of a thread. If it leads, the next thread does.
    pub(crate) fn leave(&self, inbox: &Arc<Inbox>) {
        let mut state = self.0.lock();
        if state.leader.as_ref().is_some_and(|leader| Arc::ptr_eq(leader, inbox)) {
            state.leader = state.waiting.pop_front();
            let next = state.leader.clone();
            drop(state);
            next.iter().for_each(|next| next.poke());
        } else {
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
