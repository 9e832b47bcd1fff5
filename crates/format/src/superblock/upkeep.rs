//! What a driver notes in the superblock when it begins and ends to write to a volume: times, the
//! number of mounts, the bytes written, the place of the last mount (`ext4_setup_super`,
//! `ext4_update_super` of the kernel).

use super::{STATE_ERROR, STATE_VALID, Superblock};
use crate::convert::low_32;

/// Number of mounts after which the kernel advises a check, if the superblock has 0
/// (`EXT4_DFL_MAX_MNT_COUNT`).
const DEFAULT_MAX_MOUNTS: u16 = 20;

impl Superblock {
    /// Notes that a driver begins to write at the time `now`, in seconds since 1970: increments the
    /// number of mounts and sets the time of the last one.
    pub fn note_mount(&mut self, now: i64) {
        let raw = &mut self.raw;
        if raw.s_max_mnt_count.get() == 0 {
            raw.s_max_mnt_count.set(DEFAULT_MAX_MOUNTS);
        }
        raw.s_mnt_count.set(raw.s_mnt_count.get().wrapping_add(1));
        let (low, high) = split_time(now);
        raw.s_mtime.set(low);
        raw.s_mtime_hi = high;
    }

    /// Notes that a driver writes the superblock at the time `now`, in seconds since 1970, and has
    /// written `bytes` to the volume since it read the superblock, which counted `before` KiB.
    pub fn note_write(&mut self, now: i64, before: u64, bytes: u64) {
        let (low, high) = split_time(now);
        self.raw.s_wtime.set(low);
        self.raw.s_wtime_hi = high;
        self.raw.s_kbytes_written.set(before.wrapping_add(bytes >> 10));
    }

    /// Returns the number of KiB that were ever written to the volume.
    #[must_use]
    pub const fn kbytes_written(&self) -> u64 {
        self.raw.s_kbytes_written.get()
    }

    /// Returns the directory on which the volume was last mounted, without the padding; empty if it
    /// never was.
    #[must_use]
    pub fn last_mounted(&self) -> &[u8] {
        self.raw.s_last_mounted.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Sets the directory on which the volume was last mounted, truncated to 64 bytes.
    pub fn set_last_mounted(&mut self, dir: &[u8]) {
        let field = &mut self.raw.s_last_mounted;
        let kept = dir.len().min(field.len());
        field.fill(0);
        field[..kept].copy_from_slice(&dir[..kept]);
    }

    /// Returns why e2fsck should check the volume before it is written at the time `now`, in
    /// seconds since 1970; `None` if nothing asks for that.
    #[must_use]
    pub fn reason_to_check(&self, now: i64) -> Option<&'static str> {
        let raw = &self.raw;
        let (mounts, limit) = (raw.s_mnt_count.get(), raw.s_max_mnt_count.get());
        let last_check = join_time(raw.s_lastcheck.get(), raw.s_lastcheck_hi);
        let interval = i64::from(raw.s_checkinterval.get());
        if self.state() & STATE_VALID == 0 {
            Some("it was not closed cleanly")
        } else if self.state() & STATE_ERROR != 0 {
            Some("errors were found in it")
        } else if limit.cast_signed() > 0 && mounts >= limit {
            Some("the maximal number of mounts is reached")
        } else if interval != 0 && last_check.saturating_add(interval) <= now {
            Some("the time of the next check is reached")
        } else {
            None
        }
    }
}

/// Returns the two fields of a time: 32 and 8 bits.
pub(super) const fn split_time(seconds: i64) -> (u32, u8) {
    let [_, _, _, high, ..] = seconds.to_be_bytes();
    (low_32(seconds.cast_unsigned()), high)
}

fn join_time(low: u32, high: u8) -> i64 {
    i64::from(high) << 32 | i64::from(low)
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::super::RawSuperblock;
    use super::*;

    fn superblock() -> Superblock {
        let mut raw = RawSuperblock::new_zeroed();
        raw.s_state.set(STATE_VALID);
        Superblock { raw }
    }

    #[test]
    fn a_check_is_advised_as_by_the_kernel() {
        let advice = |change: &dyn Fn(&mut RawSuperblock)| {
            let mut sb = superblock();
            change(&mut sb.raw);
            sb.reason_to_check(5_000_000_000).unwrap_or_default()
        };
        assert_eq!(advice(&|_| ()), "");
        assert!(advice(&|raw| raw.s_state.set(0)).contains("cleanly"));
        assert!(advice(&|raw| raw.s_state.set(STATE_VALID | STATE_ERROR)).contains("errors"));
        let counted = |raw: &mut RawSuperblock, mounts, limit| {
            raw.s_mnt_count.set(mounts);
            raw.s_max_mnt_count.set(limit);
        };
        assert!(advice(&|raw| counted(raw, 30, 30)).contains("mounts"));
        assert_eq!(advice(&|raw| counted(raw, 29, 30)), "");
        assert_eq!(advice(&|raw| counted(raw, 30, 0xffff)), "", "-1 stands for no limit");
        let checked = |raw: &mut RawSuperblock, low: u32, high| {
            (raw.s_lastcheck_hi, raw.s_checkinterval) = (high, 100.into());
            raw.s_lastcheck.set(low);
        };
        let now_low = 705_032_704;
        assert!(advice(&|raw| checked(raw, now_low - 100, 1)).contains("time"));
        assert_eq!(advice(&|raw| checked(raw, now_low - 99, 1)), "");
        assert_eq!(5_000_000_000 - (1 << 32), i64::from(now_low));
    }

    #[test]
    fn mounts_and_writes_are_counted() {
        let mut sb = superblock();
        sb.note_mount(0x1_0000_0007);
        assert_eq!((sb.raw.s_mnt_count.get(), sb.raw.s_max_mnt_count.get()), (1, 20));
        assert_eq!((sb.raw.s_mtime.get(), sb.raw.s_mtime_hi), (7, 1));
        sb.note_write(9, 100, 4096);
        assert_eq!((sb.raw.s_wtime.get(), sb.kbytes_written()), (9, 104));
        sb.set_last_mounted(&[b'x'; 70]);
        assert_eq!(sb.last_mounted(), [b'x'; 64]);
        sb.set_last_mounted(b"/mnt");
        assert_eq!(sb.last_mounted(), b"/mnt");
    }
}
