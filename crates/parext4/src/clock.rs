//! The clock of a volume's timestamps: the kernel's coarse clock, as ext4 uses it, or a fixed time
//! for images that are the same each time. Also the clock for intervals.

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

/// The clock of a volume's timestamps, for [`VolumeOptions::clock`](crate::VolumeOptions::clock).
///
/// ```
/// use parext4::Clock;
///
/// assert_eq!(Clock::fixed(1_000_000_000).now().seconds, 1_000_000_000);
/// assert!(Clock::system().now().seconds > 1_700_000_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// The time that it always has, in seconds since 1970.
    fixed: Option<u32>,
}

impl Clock {
    /// Returns the clock of the system, with the resolution of the kernel's coarse clock (a timer
    /// tick, 1 to 10 ms), as ext4 has it. A time before 1970 is 1970.
    #[must_use]
    pub const fn system() -> Self {
        Self { fixed: None }
    }

    /// Returns a clock that always shows the same time, in seconds since 1970, for images that are
    /// the same each time.
    #[must_use]
    pub const fn fixed(seconds: u32) -> Self {
        Self { fixed: Some(seconds) }
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(self) -> Timestamp {
        timestamp(self.nanoseconds())
    }

    /// Returns the current time in nanoseconds since 1970. Valid until the year 2262.
    pub(crate) fn nanoseconds(self) -> i64 {
        self.fixed.map_or_else(nanoseconds_now, |seconds| i64::from(seconds) * NANOSECONDS)
    }
}

/// Returns the time of the simulation, or for models a time that advances by one second with each
/// call.
#[cfg(shuttle)]
fn nanoseconds_now() -> i64 {
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

#[cfg(not(shuttle))]
fn nanoseconds_now() -> i64 {
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
