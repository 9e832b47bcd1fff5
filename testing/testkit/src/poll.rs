//! Waits for a condition that another process makes true.

use std::time::Duration;

/// Time between two checks of a condition.
const POLL: Duration = Duration::from_millis(5);
/// Number of checks, at least a minute. Checks are counted instead of time, because a stopped
/// machine makes none, and a loaded one few.
const POLLS: u32 = 12_000;

/// Waits at least a minute until `is_so` returns true. Returns false if it does not.
pub fn until(mut is_so: impl FnMut() -> bool) -> bool {
    (0..POLLS).any(|_| {
        let is_so = is_so();
        if !is_so {
            std::thread::sleep(POLL);
        }
        is_so
    })
}
