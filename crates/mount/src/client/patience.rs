//! Waits that may be long. Each is announced once it has lasted for [`ANNOUNCED_AFTER`].

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Time after which a wait is announced.
pub(super) const ANNOUNCED_AFTER: Duration = Duration::from_secs(3);

/// Prints a line for the user.
pub type Announce<'a> = &'a (dyn Fn(&str) + Sync);

/// Runs `work`. Announces `message` if it takes longer than [`ANNOUNCED_AFTER`].
pub(super) fn announced<T>(announce: Announce<'_>, message: &str, work: impl FnOnce() -> T) -> T {
    let (over, is_over) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if is_over.recv_timeout(ANNOUNCED_AFTER) == Err(RecvTimeoutError::Timeout) {
                announce(message);
            }
        });
        let result = work();
        drop(over);
        result
    })
}
