//! Fences the owner of a volume, whether it is alive or not.

use std::ffi::OsStr;

use parext4::device::Sharing;
use parext4::mmp::{self, MmpOptions};
use parext4::{DeviceOptions, Volume, VolumeOptions, open_volume_device};

use crate::error::StandbyError;
use crate::probe::Probe;
use crate::sight::Sight;

/// Takes the volume on the device that `name` stands for away from its owner, replays its journal and closes it, so that any
/// machine can open it at once. Returns what the device showed before.
///
/// 1. A device with a lock breaks the lock and fences the owner, which it does before the open returns. From then on it
///    refuses every write of the owner, also writes in flight.
/// 2. On a device without such a fence, the volume is seized by its MMP block, which takes as long as the block asks for.
///    See [`mmp::seize`] for which owners that stops.
/// 3. The volume is opened, which replays the journal, and closed.
///
/// # Errors
/// The device cannot be opened, the owner cannot be stopped, or the volume cannot be opened.
pub fn force(name: &OsStr, options: &DeviceOptions) -> Result<Sight, StandbyError> {
    let before = Probe::new(name.to_owned(), options).poll()?;
    let device = open_volume_device(name, &options.clone().takeover(true))?;
    if device.sharing() != Sharing::Fenced {
        mmp::seize(&*device, &MmpOptions::new())?;
    }
    Volume::open_device(device, &VolumeOptions::new())?.close()?;
    Ok(before)
}
