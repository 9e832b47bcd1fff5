//! Defects that the models of the hand-over must find. They can be planted only under
//! `--cfg shuttle`.

parext4_sync::planted_faults! {
    /// A defect of the hand-over between the threads of a connection.
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
}
