//! The clock for timestamps: the kernel's coarse clock, as ext4 uses it, or a fixed time for images that are the same each time. Also
//! the clock for intervals.

#[cfg(not(shuttle))]
use std::sync::OnceLock;
#[cfg(not(shuttle))]
pub(crate) use std::time::Instant;

use parext4_format::inode::Timestamp;
#[cfg(not(shuttle))]
use rustix::time::{ClockId, clock_gettime};
#[cfg(shuttle)]
use std::time::Duration;

#[cfg(shuttle)]
use crate::sync::simulated_time;

const NANOSECONDS: i64 = 1_000_000_000;

/// The time in seconds since 1970 that replaces the clock.
#[cfg(not(shuttle))]
static FIXED: OnceLock<u32> = OnceLock::new();

/// Stops the clock of all volumes of this process at a time in seconds since 1970, for images that are the same each time. Has no effect if
/// the clock was stopped before.
#[cfg(not(shuttle))]
pub fn stop_clock(seconds: u32) {
    let _ = FIXED.set(seconds);
}

/// Returns the current time, with the resolution of the kernel's coarse clock (a timer tick, 1 to 10 ms), as ext4 does. A
/// time before 1970 is returned as 1970.
pub(crate) fn now() -> Timestamp {
    timestamp(nanoseconds_now())
}

/// Returns the time of the simulation, or for models a time that advances by one second with each call.
#[cfg(shuttle)]
pub(crate) fn nanoseconds_now() -> i64 {
    if let Some(now) = simulated_time::now() {
        return i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    }
    static SECONDS: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(NANOSECONDS);
    SECONDS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) * NANOSECONDS
}

/// A time of the simulation. Without one all times are equal.
#[cfg(shuttle)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instant(Duration);

#[cfg(shuttle)]
impl Instant {
    pub(crate) fn now() -> Self {
        Self(simulated_time::now().unwrap_or_default())
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Returns the nanoseconds since 1970. Valid until the year 2262.
#[cfg(not(shuttle))]
pub(crate) fn nanoseconds_now() -> i64 {
    if let Some(&seconds) = FIXED.get() {
        return i64::from(seconds) * NANOSECONDS;
    }
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(NANOSECONDS).saturating_add(now.tv_nsec).max(0)
}

/// Returns the timestamp of `nanoseconds` since 1970.
pub(crate) fn timestamp(nanoseconds: i64) -> Timestamp {
    Timestamp {
        seconds: nanoseconds / NANOSECONDS,
        nanoseconds: u32::try_from(nanoseconds % NANOSECONDS).unwrap_or(0),
    }
}
