//! The clock of leases and waits, and times in messages.

#[cfg(not(shuttle))]
use std::time::Duration;

#[cfg(shuttle)]
pub(super) use model::{Window, now, sleep};
#[cfg(not(shuttle))]
pub(super) use std::thread::sleep;

/// The time between a check of the clock and the request that was checked. A process may be stopped
/// in this time; models assume that it is not, because no check can prevent that.
#[cfg(not(shuttle))]
#[derive(Debug)]
pub(super) struct Window;

#[cfg(not(shuttle))]
impl Window {
    pub(super) const fn enter() -> Self {
        Self
    }
}

/// Returns the time since the machine was started. Counts the time for which the process was
/// stopped or the machine suspended.
#[cfg(not(shuttle))]
pub(super) fn now() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// A clock that only the sleeps of a model advance, and not while a thread is in a [`Window`].
#[cfg(shuttle)]
mod model {
    use std::cell::Cell;
    use std::time::Duration;

    use crate::sync::yield_now;

    // A model runs all its threads on one thread of the system.
    std::thread_local! {
        static NOW: Cell<Duration> = const { Cell::new(Duration::from_secs(1)) };
        static WINDOWS: Cell<u32> = const { Cell::new(0) };
    }

    #[derive(Debug)]
    pub(crate) struct Window(());

    impl Window {
        pub(crate) fn enter() -> Self {
            WINDOWS.set(WINDOWS.get() + 1);
            Self(())
        }
    }

    impl Drop for Window {
        fn drop(&mut self) {
            WINDOWS.set(WINDOWS.get() - 1);
        }
    }

    pub(crate) fn now() -> Duration {
        NOW.get()
    }

    pub(crate) fn sleep(time: Duration) {
        yield_now();
        while WINDOWS.get() > 0 {
            yield_now();
        }
        NOW.set(NOW.get() + time);
        yield_now();
    }
}

/// Describes a time in seconds since 1970, such as `2025-01-31 12:00:00 UTC`.
pub(super) fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86400, seconds % 86400);
    // Years of 365.2425 days that begin on 1 March, counted from the year 0, in eras of 400 years.
    let days = days.saturating_add(719_468);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year + month / 10, (month + 2) % 12 + 1);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_civil() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_738_324_800 + 3723), "2025-01-31 13:02:03 UTC");
        assert_eq!(utc(4_107_542_399), "2100-02-28 23:59:59 UTC");
        assert!(!utc(u64::MAX).is_empty());
    }
}
