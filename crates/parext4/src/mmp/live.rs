//! Finds out if another machine changes a volume that is being opened for reading.

use parext4_device::{Device, Sharing};
use parext4_format::superblock::Superblock;

use super::place::Place;
use super::wait::{Changed, unchanged};
use super::{MmpOptions, MmpState, MmpUse};
use crate::error::Result;

/// Longest wait in seconds. An image may ask for more.
const LONGEST_WAIT: u64 = 60;

/// Returns the machine that uses the volume on `device`, or may do so; `None` if none does, or if the device shows a state
/// that cannot change. If the volume was not closed, waits until its owner updates the block, or for
/// [`MmpState::stale_after`], but at most for [`LONGEST_WAIT`].
pub(crate) fn live(
    device: &dyn Device,
    superblock: &Superblock,
    options: &MmpOptions,
) -> Result<Option<MmpState>> {
    if device.sharing() == Sharing::Immutable {
        return Ok(None);
    }
    let Some(place) = Place::of(superblock)? else { return Ok(None) };
    let found = place.read(device)?;
    let state = MmpState::new(&found, &place);
    match state.usage {
        MmpUse::Clean => Ok(None),
        MmpUse::Fsck => Ok(Some(state)),
        MmpUse::InUse => {
            let wait = state.wait.min(LONGEST_WAIT);
            let last = match unchanged(device, &place, &found, wait, options)? {
                Changed::To(other) => MmpState::new(&other, &place),
                Changed::No(_) if wait == state.wait => return Ok(None),
                Changed::No(_) => state,
            };
            Ok(Some(last).filter(|last| last.usage != MmpUse::Clean))
        }
    }
}
