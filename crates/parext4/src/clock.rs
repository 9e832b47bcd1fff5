//! The clock that timestamps come from.

use parext4_format::inode::Timestamp;
#[cfg(not(shuttle))]
use rustix::time::{ClockId, clock_gettime};

const NANOSECONDS: i64 = 1_000_000_000;

/// The time now, to the grain of the kernel's coarse clock, some milliseconds; ext4 takes its times there too.
/// Before 1970 it is taken as 1970.
pub(crate) fn now() -> Timestamp {
    timestamp(nanoseconds_now())
}

/// In the models, a second passes whenever somebody looks.
#[cfg(shuttle)]
pub(crate) fn nanoseconds_now() -> i64 {
    static SECONDS: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(NANOSECONDS);
    SECONDS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) * NANOSECONDS
}

/// Nanoseconds since 1970, to the year 2262.
#[cfg(not(shuttle))]
pub(crate) fn nanoseconds_now() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(NANOSECONDS).saturating_add(now.tv_nsec).max(0)
}

/// Returns the timestamp that lies `nanoseconds` after the start of 1970.
pub(crate) fn timestamp(nanoseconds: i64) -> Timestamp {
    Timestamp {
        seconds: nanoseconds / NANOSECONDS,
        nanoseconds: u32::try_from(nanoseconds % NANOSECONDS).unwrap_or(0),
    }
}
