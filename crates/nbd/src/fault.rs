//! Defects that the models of the hand-over must find. They can be planted only under
//! `--cfg shuttle`.

/// A defect of the hand-over between the threads of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A leader that leaves does not pass the role to another thread.
    RoleDropped,
    /// A leader that leaves does not wake the thread that it passes the role to.
    NextLeaderAsleep,
    /// A thread that could not lead does not enter the list of waiting threads.
    WaiterForgotten,
    /// A thread that ends its wait stays in the list of waiting threads.
    WaiterStays,
    /// A thread does not check for news between announcing that it blocks and blocking.
    NewsUnchecked,
    /// A completion checks for a blocked owner before it is stored.
    WokenEarly,
    /// A completion of another thread does not end that thread's wait.
    OwnerAsleep,
    /// A leader keeps leading although its own completion has arrived.
    LeaderStays,
}

#[cfg(not(shuttle))]
pub(crate) const fn is_planted(_: Fault) -> bool {
    false
}

#[cfg(shuttle)]
pub(crate) use model::is_planted;
#[cfg(shuttle)]
pub use model::plant;

#[cfg(shuttle)]
mod model {
    use super::Fault;
    use std::cell::Cell;

    // A model runs all its threads on one thread of the system.
    thread_local! {
        static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Plants a defect in the models that this thread runs from now on.
    pub fn plant(fault: Option<Fault>) {
        PLANTED.set(fault);
    }

    pub(crate) fn is_planted(fault: Fault) -> bool {
        PLANTED.get() == Some(fault)
    }
}
