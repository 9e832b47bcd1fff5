//! The clock that timestamps come from.

use std::time::{SystemTime, UNIX_EPOCH};

use parext4_format::inode::Timestamp;

/// The time now; before 1970 it is taken as 1970.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}
