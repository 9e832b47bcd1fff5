//! Fences the owner of a volume, whether it is alive or not.

use std::ffi::OsStr;

use parext4::device::Sharing;
use parext4::mmp::{MmpOptions, OwnerEvidence};
use parext4::{DeviceOptions, Volume, VolumeOptions};
use parext4_storage::open_volume_device;

use crate::error::StandbyError;
use crate::poll_result::{Mmp, PollResult};
use crate::probe::Probe;

/// The result of a forced takeover.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Forced {
    /// The owner, by its lock and its MMP block, at the first poll.
    pub before: PollResult,
    /// Whether the device has fenced the owner of its lock. If not, the owner had released the
    /// lock, or the device has none.
    pub is_fenced: bool,
}

/// Takes the volume on the device that `name` stands for away from its owner, replays its journal
/// and closes it, so that any machine can open it at once.
///
/// 1. A device with a lock breaks the lock and fences the owner before the open returns. From then
///    on it refuses every write of the owner, also writes in flight. It fences only the owner that
///    the first poll returned.
/// 2. On a device without such a fence, the open claims the volume by its MMP block and waits for
///    as long as the block asks for. [`OwnerEvidence::Forced`] says which owners that stops.
/// 3. The volume is opened, which replays the journal, and closed.
///
/// # Errors
/// e2fsck checks the volume, the device cannot be opened, nothing shows whether there is an owner,
/// the owner cannot be stopped, or the volume cannot be opened.
pub fn force(name: &OsStr, options: &DeviceOptions) -> Result<Forced, StandbyError> {
    let before = Probe::new(name.to_owned(), options).poll()?;
    // The claim would notice that, too, but only after the device has fenced e2fsck.
    if before.mmp == Mmp::Checked {
        return Err(StandbyError::Checked);
    }
    let owner = before.lock.as_ref().map(|owner| owner.name.clone());
    let options = options.clone().takeover(owner.is_some()).takeover_from(owner);
    let device = open_volume_device(name, &options)?;
    // Without a lock of the device and without MMP, an owner would not notice the takeover.
    if before.mmp == Mmp::Absent && device.sharing() != Sharing::Fenced {
        return Err(StandbyError::Unwatchable);
    }
    let is_fenced = device.has_fenced();
    let forced = VolumeOptions::new().mmp(MmpOptions::new().evidence(OwnerEvidence::Forced));
    Volume::open_device(device, &forced)?.close()?;
    Ok(Forced { before, is_fenced })
}
