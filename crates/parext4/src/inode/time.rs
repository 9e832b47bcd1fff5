//! The time of writes of data, which does not wait for the inode's lock.

use parext4_format::inode::Timestamp;

use crate::clock::{nanoseconds_now, timestamp};
use crate::sync::atomic::{AtomicI64, Ordering};

/// When data was last written, if the inode's attributes do not say so yet.
///
/// Sequentially consistent: who sets a time and finds the inode on the list of those that ride along (H25) must
/// be seen by the commit that takes it off and then looks here.
#[derive(Debug)]
pub(super) struct Written(AtomicI64);

impl Written {
    /// All is said.
    const SAID: i64 = -1;

    pub(super) fn new() -> Self {
        Self(AtomicI64::new(Self::SAID))
    }

    /// Notes a write now. Returns `false` if it makes no difference: the same time waits already.
    pub(super) fn set_now(&self) -> bool {
        let now = nanoseconds_now();
        // Looked at first, so that many writers share the line that says so until the clock ticks.
        self.0.load(Ordering::SeqCst) < now && self.0.fetch_max(now, Ordering::SeqCst) < now
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.0.load(Ordering::SeqCst) != Self::SAID
    }

    pub(super) fn get(&self) -> Option<Timestamp> {
        time_of(self.0.load(Ordering::SeqCst))
    }

    /// The time, for the attributes to say it from now on.
    pub(super) fn take(&self) -> Option<Timestamp> {
        time_of(if self.is_waiting() { self.0.swap(Self::SAID, Ordering::SeqCst) } else { Self::SAID })
    }
}

fn time_of(nanoseconds: i64) -> Option<Timestamp> {
    (nanoseconds != Written::SAID).then(|| timestamp(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    #[test]
    fn a_time_waits_until_it_is_taken() {
        let written = Written::new();
        assert_eq!((written.get(), written.take()), (None, None));
        let before = now();
        assert!(written.set_now());
        let time = written.get().unwrap();
        assert!(time >= before && time <= now());
        assert_eq!(written.take(), Some(time));
        assert!(!written.is_waiting());
        assert!(written.set_now(), "what was taken does not count as waiting");
    }
}
