//! Defects that the models in `tests/shuttle.rs` must find; exists only under `--cfg shuttle`.

/// A way in which a lock made by [`RangeLock::with_fault`](crate::RangeLock::with_fault) is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Grants every request.
    SkipOverlapCheck,
    /// Lets a request pass those that wait.
    PassWaiters,
    /// Grants waiters without telling them.
    LoseWakeUps,
}
