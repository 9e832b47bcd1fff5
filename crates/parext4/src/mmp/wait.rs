//! Waits for an update of the block by another machine.

use std::time::Duration;

use parext4_device::Device;
use parext4_format::mmp::Mmp;

use super::location::MmpLocation;
use super::time::{now, sleep};
use super::{MmpOptions, MmpState};
use crate::error::{Error, Result};

/// Result of a wait.
#[derive(Debug)]
pub(super) enum Changed {
    /// The block did not change up to the last read, which started at this time.
    No(Duration),
    /// Another machine has written this block.
    To(Mmp),
}

/// Waits for `seconds` and reads the block each second. Returns as soon as the block differs from
/// `known`.
pub(super) fn unchanged(
    device: &dyn Device,
    place: &MmpLocation,
    known: &Mmp,
    seconds: u64,
    options: &MmpOptions,
) -> Result<Changed> {
    let until = now() + options.seconds(seconds);
    loop {
        let began = now();
        let found = place.read(device)?;
        if found != *known {
            return Ok(Changed::To(found));
        }
        // The last read begins after the wait, because an owner may write until then.
        if began >= until {
            return Ok(Changed::No(began));
        }
        sleep(until.saturating_sub(began).min(options.second));
    }
}

/// Returns the error for a volume that e2fsck checks.
pub(super) fn in_fsck(state: &MmpState) -> Error {
    Error::Busy(format!(
        "e2fsck is checking the volume: {state}; if it is not, \"tune2fs -f -E clear_mmp\" releases the volume"
    ))
}
