//! Makes this machine the owner of a volume, as the kernel does when it mounts one.
//!
//! | block | other machines may | this machine |
//! |---|---|---|
//! | clean | open the volume at the same time | writes its number; waits one second if the device does not fence |
//! | e2fsck | repair the volume | fails |
//! | any other number | use the volume, or be gone | waits; if the number has not changed, writes its own and waits again |
//!
//! After the last wait the number must still be its own. On a fenced device all waits are left out: the device's lock excludes
//! other machines.

use parext4_device::{Device, Sharing};
use parext4_format::mmp::Mmp;

use super::place::Place;
use super::wait::{Changed, in_fsck, unchanged};
use super::{MmpOptions, MmpState, MmpUse};
use crate::error::{Error, Result};

/// Wait in seconds after the number was written into a clean block. The kernel does not wait here. A machine that opens the
/// volume at the same time, and reads the clean block before this one writes, has written its own number by then.
const SETTLE: u64 = 1;

/// Makes this machine the owner, and returns the block that it has written.
///
/// # Errors
/// [`Error::Busy`] names the machine that uses the volume.
pub(super) fn claim(device: &dyn Device, place: &Place, options: &MmpOptions) -> Result<Mmp> {
    let found = place.read(device)?;
    let state = MmpState::new(&found, place);
    let sharing = device.sharing();
    let wait = match (state.usage, sharing) {
        (MmpUse::Fsck, _) => return Err(in_fsck(&state)),
        (_, Sharing::Fenced) | (MmpUse::Clean, Sharing::Local) => 0,
        (MmpUse::Clean, _) => SETTLE,
        (MmpUse::InUse, _) => state.wait,
    };
    if state.usage == MmpUse::InUse && wait > 0 {
        tracing::info!("the volume was not closed ({state}): waiting up to {} seconds", 2 * wait);
        check(unchanged(device, place, &found, wait, options)?, place)?;
    }
    let mine = place.mine(options);
    place.write(device, &mine)?;
    // A server that restarts must not show the block of before.
    device.flush().map_err(|e| Error::device("flushing the device", e))?;
    check(unchanged(device, place, &mine, wait, options)?, place)?;
    Ok(mine)
}

fn check(changed: Changed, place: &Place) -> Result<()> {
    match changed {
        Changed::No => Ok(()),
        Changed::To(other) => {
            let other = MmpState::new(&other, place);
            Err(Error::Busy(format!("another machine has the volume open: {other}")))
        }
    }
}
