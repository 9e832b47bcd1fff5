//! Finds out if another machine changes a volume that is being opened for reading.

use parext4_device::Device;
use parext4_format::superblock::Superblock;

use super::place::Place;
use super::wait::{Changed, unchanged};
use super::{MmpOptions, MmpState, MmpUse};
use crate::error::Result;

/// Returns the machine that uses the volume on `device`; `None` if none does. If the volume was not closed, waits until its owner
/// updates the block, or for [`MmpState::stale_after`].
pub(crate) fn live(
    device: &dyn Device,
    superblock: &Superblock,
    options: &MmpOptions,
) -> Result<Option<MmpState>> {
    let Some(place) = Place::of(superblock)? else { return Ok(None) };
    let found = place.read(device)?;
    let state = MmpState::new(&found, &place);
    match state.usage {
        MmpUse::Clean => Ok(None),
        MmpUse::Fsck => Ok(Some(state)),
        MmpUse::InUse => match unchanged(device, &place, &found, state.stale_after().as_secs(), options)? {
            Changed::To(other) if MmpState::new(&other, &place).usage == MmpUse::Clean => Ok(None),
            Changed::To(other) => Ok(Some(MmpState::new(&other, &place))),
            Changed::No => Ok(None),
        },
    }
}
