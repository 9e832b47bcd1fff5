//! Defines the options of multi-mount protection.

use std::time::Duration;

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
    /// Name of the device that other machines are told, truncated to 32 bytes. `parext4` by default.
    pub device_name: String,
    /// Length of the seconds in which the volume's intervals are counted. Only tests, which have all openers of a volume to
    /// themselves, change it.
    pub second: Duration,
}

impl Default for MmpOptions {
    fn default() -> Self {
        Self { device_name: "parext4".into(), second: Duration::from_secs(1) }
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

    /// Returns the length of `count` seconds.
    pub(super) fn seconds(&self, count: u64) -> Duration {
        self.second.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }
}
