//! Takes a volume away from an owner that does not close it.

use parext4_device::Device;
use parext4_format::mmp::Mmp;

use super::place::{Place, seconds_now};
use super::wait::{Changed, unchanged};
use super::{MmpOptions, MmpState, MmpUse};
use crate::error::{Error, Result};
use crate::superblock::read_superblock;

/// Takes the volume on `device` away from its owner, so that the next open for writing need not wait. For devices that do not
/// fence: on a device with [`Sharing::Fenced`](parext4_device::Sharing::Fenced), breaking the owner's lock is enough.
///
/// 1. Writes a number of its own into the block.
/// 2. Waits for [`MmpState::stale_after`]. By then a living owner of parext4 has read the block and has stopped; an owner that
///    was stopped or cut off reads the block before it writes again, because its lease has run out. An owner of the
///    kernel does not read the block, and overwrites it.
/// 3. If the block is unchanged, marks the volume as closed.
///
/// Does nothing if the volume has no protection or is closed.
///
/// # Errors
/// [`Error::Busy`] if the owner still updates the block: the kernel of another machine has mounted the volume, or two
/// machines seize it. Also if e2fsck has the volume.
pub fn seize(device: &dyn Device, options: &MmpOptions) -> Result<()> {
    let superblock = read_superblock(device)?;
    let Some(place) = Place::of(&superblock)? else { return Ok(()) };
    let found = place.read(device)?;
    let state = MmpState::new(&found, &place);
    match state.usage {
        MmpUse::Clean => return Ok(()),
        MmpUse::Fsck => return Err(super::wait::in_fsck(&state)),
        MmpUse::InUse => {}
    }
    // The owner's check interval is kept, so that a third machine waits as long for this block as for the owner's.
    let mine = Mmp { check_interval: found.check_interval, ..place.mine(options) };
    place.write(device, &mine)?;
    if let Changed::To(other) = unchanged(device, &place, &mine, state.wait, options)? {
        let other = MmpState::new(&other, &place);
        return Err(Error::Busy(format!(
            "the volume cannot be taken over, because its owner is alive: {other}"
        )));
    }
    place.write(device, &Mmp { time: seconds_now(), ..Mmp::clean(place.update_interval) })?;
    device.flush().map_err(|e| Error::device("flushing the device", e))
}
