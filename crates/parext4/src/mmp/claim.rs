//! Makes this machine the owner of a volume, as the kernel does when it mounts one.
//!
//! | block | other machines may | this machine |
//! |---|---|---|
//! | clean | open the volume at the same time | writes its number; waits one second if the device does not fence |
//! | e2fsck | repair the volume | fails |
//! | any other number | use the volume, or be gone | waits; if the number has not changed, writes its own and waits again |
//!
//! After the last wait the number must still be its own. On a fenced device all waits are left out: the device's lock excludes
//! other machines. The first wait is left out if the caller has waited, or forces the owner out ([`Silence`]).
//!
//! A clean block must be replaced soon after it was read. If that takes a second or longer, another machine may have opened the volume
//! meanwhile, and may have written what it read before this machine's number arrives. This machine then waits as for an owner
//! that it forces out (H35).

use parext4_device::{Device, Sharing};
use parext4_format::mmp::Mmp;

use super::place::Place;
use super::time::now;
use super::wait::{Changed, in_fsck, unchanged};
use super::{MmpOptions, MmpState, MmpUse, Silence};
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};

/// Wait in seconds after the number was written into a clean block. The kernel does not wait here. A machine that opens the
/// volume at the same time, and reads the clean block before this one writes, has written its own number by then.
const SETTLE: u64 = 1;

/// Makes this machine the owner, and returns the block that it has written.
///
/// # Errors
/// [`Error::Busy`] names the machine that uses the volume.
pub(super) fn claim(device: &dyn Device, place: &Place, options: &MmpOptions) -> Result<Mmp> {
    let began = now();
    let found = place.read(device)?;
    let state = MmpState::new(&found, place);
    let sharing = device.sharing();
    let mut mine = place.mine(options);
    match state.usage {
        MmpUse::Fsck => return Err(in_fsck(&state)),
        MmpUse::Clean => {}
        MmpUse::InUse => {
            if sharing != Sharing::Fenced {
                wait_for_owner(device, place, &found, options)?;
            }
            // A third machine must wait as long for this block as for the owner's.
            mine.check_interval = mine.check_interval.max(found.check_interval);
        }
    }
    place.write(device, &mine)?;
    let is_late = guarded!(Fault::LateClaim, now().saturating_sub(began) >= options.seconds(SETTLE), false);
    // A server that restarts must not show the block of before.
    device.flush().map_err(|e| Error::device("flushing the device", e))?;
    let wait = match (state.usage, sharing) {
        (_, Sharing::Fenced) => 0,
        (MmpUse::Clean, Sharing::Local) if !is_late => 0,
        (MmpUse::Clean, _) if !is_late => SETTLE,
        (MmpUse::Clean, _) => {
            tracing::info!(
                "the device was too slow to open the volume at once: waiting {} seconds",
                state.wait
            );
            state.wait
        }
        _ => state.wait,
    };
    check(unchanged(device, place, &mine, wait, options)?, place, options)?;
    Ok(mine)
}

/// Waits until the machine that wrote `found` counts as gone.
fn wait_for_owner(device: &dyn Device, place: &Place, found: &Mmp, options: &MmpOptions) -> Result<()> {
    let state = MmpState::new(found, place);
    let waits = match options.silence {
        Silence::Unknown => 2,
        Silence::Seen(sequence) if sequence != found.sequence => 2,
        Silence::Seen(_) | Silence::Forced => 1,
    };
    tracing::info!("the volume was not closed ({state}): waiting up to {} seconds", waits * state.wait);
    if waits == 1 {
        return Ok(());
    }
    check(unchanged(device, place, found, state.wait, options)?, place, options)
}

fn check(changed: Changed, place: &Place, options: &MmpOptions) -> Result<()> {
    let Changed::To(other) = changed else { return Ok(()) };
    let other = MmpState::new(&other, place);
    Err(Error::Busy(match options.silence {
        Silence::Forced => {
            format!("the volume cannot be taken over, because its owner is alive: {other}")
        }
        _ => format!("another machine has the volume open: {other}"),
    }))
}
