//! Timestamps: 32 bits of seconds; in large inodes also 2 more bits of seconds, and nanoseconds.
//!
//! Source: kernel documentation, "Inode Timestamps".

use crate::convert::{low_32, widen};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const EPOCH_BITS: u32 = 2;
const EPOCH_MASK: u32 = (1 << EPOCH_BITS) - 1;
const MAX_NANOSECONDS: u32 = 999_999_999;

/// A point in time, counted from 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after `seconds`: 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The latest second of the format, in the year 2446. Without the extra bits it is
    /// [`i32::MAX`].
    pub const MAX_SECONDS: i64 =
        widen(i32::MAX.cast_unsigned()).cast_signed() + (widen(EPOCH_MASK).cast_signed() << 32);
    /// The earliest second of the format, in the year 1901.
    pub const MIN_SECONDS: i64 = -widen(i32::MIN.unsigned_abs()).cast_signed();

    /// Returns the nearest time that an inode can store: whole seconds without an `extra` field.
    /// The first and the last second have no nanoseconds, as in the kernel.
    #[must_use]
    pub fn rounded_to_disk(self, has_extra: bool) -> Self {
        let (seconds, extra) = self.encode(has_extra);
        let rounded = Self::decode(seconds, extra);
        let is_bound = matches!(rounded.seconds, Self::MIN_SECONDS | Self::MAX_SECONDS);
        Self { nanoseconds: if is_bound { 0 } else { rounded.nanoseconds }, ..rounded }
    }

    /// Decodes the two fields of the inode. `extra` is 0 if the inode has no such field.
    pub(super) fn decode(seconds: u32, extra: u32) -> Self {
        Self {
            seconds: i64::from(seconds.cast_signed()) + (i64::from(extra & EPOCH_MASK) << 32),
            nanoseconds: (extra >> EPOCH_BITS).min(MAX_NANOSECONDS),
        }
    }

    /// Encodes the two fields of the inode. A time out of their range becomes the nearest in it.
    pub(super) fn encode(self, has_extra: bool) -> (u32, u32) {
        let max = if has_extra { Self::MAX_SECONDS } else { i32::MAX.into() };
        let seconds = self.seconds.clamp(Self::MIN_SECONDS, max);
        let low = low_32(seconds.cast_unsigned()).cast_signed();
        // The epoch bits correct the sign extension of the low half.
        let epoch = low_32(((seconds - i64::from(low)) >> 32).cast_unsigned()) & EPOCH_MASK;
        let nanoseconds = self.nanoseconds.min(MAX_NANOSECONDS);
        let extra = if has_extra { nanoseconds << EPOCH_BITS | epoch } else { 0 };
        (low.cast_unsigned(), extra)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let whole = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self { seconds: whole(since.as_secs()), nanoseconds: since.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let nanoseconds = before.subsec_nanos();
                let seconds = -whole(before.as_secs());
                match nanoseconds {
                    0 => Self { seconds, nanoseconds },
                    _ => Self { seconds: seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
                }
            }
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(Timestamp { seconds, nanoseconds }: Timestamp) -> Self {
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let start = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
        start + Duration::from_nanos(nanoseconds.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_system_survives_both_conversions() {
        for (seconds, nanoseconds) in
            [(0, 0), (1, 999_999_999), (-1, 0), (-1, 1), (-5, 999_999_999), (1 << 33, 5)]
        {
            let time = Timestamp { seconds, nanoseconds };
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
        }
        let before = UNIX_EPOCH - Duration::from_millis(1500);
        assert_eq!(Timestamp::from(before), Timestamp { seconds: -2, nanoseconds: 500_000_000 });
    }

    #[test]
    fn documented_ranges() {
        // From the table in the kernel's documentation: extra bits, sign bit, first second of the
        // range.
        let cases = [
            (0, 0x8000_0000, -0x8000_0000),
            (0, 0, 0),
            (1, 0x8000_0000, 0x8000_0000),
            (1, 0, 0x1_0000_0000),
            (2, 0x8000_0000, 0x1_8000_0000),
            (2, 0, 0x2_0000_0000),
            (3, 0x8000_0000, 0x2_8000_0000),
            (3, 0, 0x3_0000_0000),
        ];
        for (epoch, low, seconds) in cases {
            let time = Timestamp { seconds, nanoseconds: 0 };
            assert_eq!(Timestamp::decode(low, epoch), time);
            assert_eq!(time.encode(true), (low, epoch));
        }
    }

    #[test]
    fn times_out_of_range_are_clamped() {
        let late = Timestamp { seconds: i64::MAX, nanoseconds: u32::MAX };
        let (low, extra) = late.encode(true);
        let expected = Timestamp { seconds: Timestamp::MAX_SECONDS, nanoseconds: MAX_NANOSECONDS };
        assert_eq!(Timestamp::decode(low, extra), expected);
        assert_eq!(late.encode(false), (0x7fff_ffff, 0));
        let early = Timestamp { seconds: i64::MIN, nanoseconds: 0 };
        assert_eq!(early.encode(false), (0x8000_0000, 0));
    }

    #[test]
    fn times_are_rounded_to_the_format() {
        let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        assert_eq!(at(5_000_000_000, 7).rounded_to_disk(true), at(5_000_000_000, 7));
        assert_eq!(at(5_000_000_000, 7).rounded_to_disk(false), at(i32::MAX.into(), 0));
        assert_eq!(at(i64::MAX, 7).rounded_to_disk(true), at(Timestamp::MAX_SECONDS, 0));
        assert_eq!(at(i64::MIN, 7).rounded_to_disk(true), at(Timestamp::MIN_SECONDS, 0));
    }
}
