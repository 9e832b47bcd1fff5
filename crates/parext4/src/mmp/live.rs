//! Finds out whether another machine changes a volume that is being opened for reading.

use parext4_device::{Device, Sharing};
use parext4_format::superblock::Superblock;

use super::location::MmpLocation;
use super::wait::{Changed, unchanged};
use super::{MmpOptions, MmpState, MmpUse};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// Longest wait in seconds. The block may ask for a longer one.
const LONGEST_WAIT: u64 = 60;

/// Returns the machine that uses the volume on `device`, or may do so; `None` if no machine does,
/// or if the device cannot change. If the volume was not closed, waits until its owner updates the
/// block, or for [`MmpState::stale_after`], but at most for [`LONGEST_WAIT`]; with
/// [`MmpOptions::judge_by_time`] it does not wait.
///
/// A block that is damaged or outside the volume names no owner. As in the kernel, such a block
/// does not prevent reading.
pub(crate) fn live(
    device: &dyn Device,
    superblock: &Superblock,
    options: &MmpOptions,
    clock: Clock,
) -> Result<Option<MmpState>> {
    if device.sharing() == Sharing::Immutable {
        return Ok(None);
    }
    let place = MmpLocation::of(superblock, clock);
    let read = |place: MmpLocation| Ok((place.read(device)?, place));
    let (found, place) = match place.and_then(|place| place.map(read).transpose()) {
        Ok(None) => return Ok(None),
        Ok(Some(found)) => found,
        Err(error @ Error::Corrupt(_)) => {
            log::warn!("{error}");
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let state = MmpState::new(&found, &place);
    match state.usage {
        MmpUse::Clean => Ok(None),
        MmpUse::Fsck => Ok(Some(state)),
        MmpUse::InUse if options.judge_by_time => {
            let age = place.seconds_now().saturating_sub(state.time);
            Ok((age <= state.wait).then_some(state))
        }
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
