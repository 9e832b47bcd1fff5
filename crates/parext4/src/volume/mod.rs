//! The public top of the engine: opens, recovers and closes a volume, and operates on it by path.

mod attributes;
mod block_set;
mod block_watch;
mod by_path;
mod close;
mod contents;
mod descriptors;
mod dir_stack;
mod early_changes;
mod fast_commit;
mod found_info;
mod geometry;
mod journal_device;
mod label;
mod last_mounted;
mod nodes;
mod open;
mod open_device;
mod open_file;
mod open_resources;
mod options;
mod orphans;
mod overlay;
mod path_walk;
mod queues;
mod quotas;
mod recorded;
mod recover;
mod replay_journal;
mod statistics;
mod tree;
mod trim;

pub use found_info::{FoundInfo, find_info};
pub use geometry::{Info, OnError, Space};
pub use journal_device::is_journal_device;
pub use open_device::{open_fitting, open_image};
pub use open_resources::OpenResources;
pub use options::VolumeOptions;
pub use quotas::{Quota, QuotaGraces, QuotaLimits};
pub use recorded::{RecordedError, RecordedErrors};
pub use recover::Replayed;
pub use replay_journal::{needs_recovery, replay_in_memory, replay_journal};
pub use tree::Walk;

use crate::credentials::Credentials;
use crate::engine::EngineRef;

/// An open ext4 volume. A clone is cheap and refers to the same volume.
///
/// Every method may be called from any number of threads at once.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use parext4::{MemDevice, MkfsOptions, OpenOptions, Volume, VolumeOptions, mkfs};
///
/// # fn main() -> Result<(), parext4::Error> {
/// let device = Arc::new(MemDevice::new(16 << 20));
/// mkfs(&*device, &MkfsOptions::new())?;
/// let volume = Volume::open_device(device, &VolumeOptions::new())?;
/// let file = volume.open_file("/log", &OpenOptions::read_write().create(true))?;
/// std::thread::scope(|scope| {
///     for thread in 0..4_u64 {
///         let file = &file;
///         scope.spawn(move || file.write_all_at(&[thread as u8; 4096], thread * 4096));
///     }
/// });
/// file.sync_all()?;
/// let mut byte = [0];
/// file.read_exact_at(&mut byte, 3 * 4096)?;
/// assert_eq!(byte[0], 3);
/// drop(file);
/// volume.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Volume {
    pub(crate) engine: EngineRef,
}

impl Volume {
    /// Returns this handle, to act on behalf of a caller with `credentials`. The files and
    /// directories that are reached through it inherit them.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::{Credentials, OpenOptions};
    ///
    /// let for_user = volume.clone().with_credentials(Credentials::user());
    /// let file = for_user.open_file("/inbox", &OpenOptions::read_write().create(true))?;
    /// file.append(b"fails once only reserved blocks are left")?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn with_credentials(mut self, credentials: Credentials) -> Self {
        self.engine.set_credentials(credentials);
        self
    }
}
