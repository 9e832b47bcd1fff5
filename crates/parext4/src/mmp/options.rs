//! Defines the options of multi-mount protection.

use std::time::Duration;

/// The caller's knowledge of the owner of a volume that was not closed. An open for writing waits
/// for the owner's next update unless it need not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerEvidence {
    /// The caller knows nothing: the open waits for
    /// [`MmpState::stale_after`](super::MmpState::stale_after).
    #[default]
    Unknown,
    /// The caller has read this number from the block twice, and the second read began
    /// [`MmpState::stale_after`](super::MmpState::stale_after) or more after the first one ended.
    /// The open does not wait if the block still has the number.
    Seen(u32),
    /// The caller forces the owner out, whether it updates the block or not: the open does not wait
    /// for an update. An owner of parext4 stops when it finds another number in the block. An owner
    /// of the kernel overwrites the number, and the open fails.
    Forced,
}

/// Options of multi-mount protection, for volumes that have the feature.
///
/// ```
/// use parext4::{VolumeOptions, mmp::MmpOptions};
///
/// let options = VolumeOptions::new().mmp(MmpOptions::new().device_name("rbd:pool/image"));
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MmpOptions {
    /// Name of the device in the block, which other machines read, truncated to 32 bytes. `parext4`
    /// by default.
    pub device_name: String,
    /// Length of the seconds in which the volume's intervals are counted. Only tests change it,
    /// because all openers of a volume must use the same length.
    pub second: Duration,
    /// The caller's knowledge of the owner of a volume that was not closed.
    /// [`OwnerEvidence::Unknown`] by default.
    pub evidence: OwnerEvidence,
    /// Whether an open for reading judges the owner of a volume that was not closed by the time of
    /// its last update, instead of waiting for the next one: the owner counts as gone if its last
    /// update was longer ago than [`MmpState::stale_after`](super::MmpState::stale_after) by the
    /// clock of this machine. Off by default, because the clocks of two machines can differ.
    pub judge_by_time: bool,
}

impl Default for MmpOptions {
    fn default() -> Self {
        Self {
            device_name: "parext4".into(),
            second: Duration::from_secs(1),
            evidence: OwnerEvidence::Unknown,
            judge_by_time: false,
        }
    }
}

impl MmpOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`device_name`](field@Self::device_name).
    #[must_use]
    pub fn device_name(mut self, name: impl Into<String>) -> Self {
        self.device_name = name.into();
        self
    }

    /// Sets [`second`](field@Self::second).
    #[must_use]
    pub fn second(mut self, length: Duration) -> Self {
        self.second = length;
        self
    }

    /// Sets [`evidence`](field@Self::evidence).
    #[must_use]
    pub fn evidence(mut self, evidence: OwnerEvidence) -> Self {
        self.evidence = evidence;
        self
    }

    /// Sets [`judge_by_time`](field@Self::judge_by_time).
    #[must_use]
    pub fn judge_by_time(mut self, by_time: bool) -> Self {
        self.judge_by_time = by_time;
        self
    }

    /// Returns the length of `count` seconds.
    pub(super) fn seconds(&self, count: u64) -> Duration {
        self.second.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }
}
