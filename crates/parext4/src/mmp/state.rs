//! The state of a volume according to its block of multi-mount protection.

use std::fmt;
use std::time::Duration;

use parext4_device::Device;
use parext4_format::mmp::{Mmp, SEQUENCE_CLEAN, SEQUENCE_FSCK, name_of};

use super::location::MmpLocation;
use super::time::utc;
use crate::clock::Clock;
use crate::error::Result;
use crate::superblock::read_superblock;

/// Time that an owner may need for an update on a slow device.
pub const SILENT_AFTER: Duration = Duration::from_secs(5);

/// The use of a volume, as far as its block of multi-mount protection tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MmpUse {
    /// No machine uses the volume.
    Clean,
    /// e2fsck or another tool of e2fsprogs changes the volume, or has ended without clearing the
    /// block.
    Fsck,
    /// A machine has opened the volume for writing, and has not closed it. That machine may be
    /// gone: see [`MmpState::stale_after`].
    InUse,
}

/// The block of multi-mount protection of a volume, from [`read`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MmpState {
    /// Whether a machine uses the volume.
    pub usage: MmpUse,
    /// The number that the owner changes with each update.
    pub sequence: u32,
    /// Time of the last update by the owner's clock, in seconds since 1970; 0 if there was none.
    pub time: u64,
    /// Name of the machine that wrote the block last.
    pub node: String,
    /// Name of the device on that machine.
    pub device: String,
    /// Time between two updates, in seconds.
    pub update_interval: u16,
    /// Time after which the owner checks the block before it continues, in seconds.
    pub check_interval: u16,
    pub(super) wait: u64,
}

impl MmpState {
    pub(super) fn new(mmp: &Mmp, place: &MmpLocation) -> Self {
        Self {
            usage: match mmp.sequence {
                SEQUENCE_CLEAN => MmpUse::Clean,
                SEQUENCE_FSCK => MmpUse::Fsck,
                _ => MmpUse::InUse,
            },
            sequence: mmp.sequence,
            time: mmp.time,
            node: name_of(&mmp.node),
            device: name_of(&mmp.device),
            update_interval: place.update_interval,
            check_interval: mmp.check_interval,
            wait: mmp.wait(place.update_interval),
        }
    }

    /// Returns the time for which the block must not change before its owner counts as gone.
    #[must_use]
    pub fn stale_after(&self) -> Duration {
        Duration::from_secs(self.wait)
    }

    /// Returns the time after which an owner that has not changed the number counts as dead, if the
    /// servers of the device do not hear from it either: the update interval, and five seconds for
    /// a slow update.
    #[must_use]
    pub fn silent_after(&self) -> Duration {
        Duration::from_secs(self.update_interval.into()) + SILENT_AFTER
    }

    /// Returns a warning for a reader of a volume that this owner may change at the same time.
    #[must_use]
    pub fn warn_reader(&self) -> String {
        format!(
            "another machine changes the volume, or did not close it ({self}): the journal is not read, so what is read may be old, may \
             mix old and new, and may fail checks; read a snapshot for a consistent volume, or read again {} seconds after the last \
             update",
            self.wait
        )
    }
}

/// Prints the owner and the time of its last update. Names come from the device, so control
/// characters are escaped.
impl fmt::Display for MmpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (node, device) = (self.node.escape_debug(), self.device.escape_debug());
        write!(f, "node {node}, device {device}, last update {}", utc(self.time))
    }
}

/// Reads the block of multi-mount protection of the volume on `device`. Returns `None` if the
/// volume has no such protection. Reads two blocks, and writes nothing.
///
/// ```
/// use parext4::mmp::{self, MmpUse};
/// use parext4::{MemDevice, MkfsOptions, mkfs};
///
/// let device = MemDevice::new(16 << 20);
/// mkfs(&device, &MkfsOptions::new().mmp(true))?;
/// let state = mmp::read(&device)?.expect("the feature mmp");
/// assert_eq!((state.usage, state.update_interval), (MmpUse::Clean, 5));
/// # Ok::<(), parext4::Error>(())
/// ```
///
/// # Errors
/// [`Error::Corrupt`](crate::Error::Corrupt) if there is no volume, or its block is damaged; device
/// errors.
pub fn read(device: &dyn Device) -> Result<Option<MmpState>> {
    let superblock = read_superblock(device)?;
    let Some(place) = MmpLocation::of(&superblock, Clock::system())? else { return Ok(None) };
    let mmp = place.read(device)?;
    Ok(Some(MmpState::new(&mmp, &place)))
}
