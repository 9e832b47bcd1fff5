//! Makes this machine the owner of a volume, as the kernel does when it mounts one.
//!
//! | block | other machines may | this machine |
//! |---|---|---|
//! | clean | open the volume at the same time | writes its number; waits one second if the device does not fence |
//! | e2fsck | repair the volume | fails |
//! | any other number | use the volume, or be gone | waits; if the number has not changed, writes its own and waits again |
//!
//! After the last wait the number must still be that of this machine. There are no waits if the
//! open of the device has fenced the owner. If the device's lock was free, the machine that the
//! block names may have lost it without being fenced, and may still write. So this machine waits as
//! on a device without a lock. There is no first wait if the caller has waited, or forces the owner
//! out ([`OwnerEvidence`]).
//!
//! This machine may be stopped between its last read of the block and the end of its write.
//! Meanwhile other machines may open the volume, and this machine's number then replaces theirs.
//! The check interval of such an owner's lease is the first one of the volume, that of the block
//! that was read, or at most twice the time from the read to the write ([`late_interval`]). So this
//! machine writes the longest of the three as its own check interval, and waits accordingly (H35).

use std::time::Duration;

use parext4_device::{Device, Sharing};
use parext4_format::mmp::{Mmp, check_interval_after};

use super::location::MmpLocation;
use super::time::now;
use super::wait::{Changed, in_fsck, unchanged};
use super::{MmpOptions, MmpState, MmpUse, OwnerEvidence};
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};

/// Wait in seconds after the number was written into a clean block, which the kernel does not do. A
/// machine that opens the volume at the same time, and has read the clean block before this write,
/// writes its own number within this time.
const SETTLE: u64 = 1;

/// Makes this machine the owner, and returns the block that it has written.
///
/// # Errors
/// [`Error::Busy`] names the machine that uses the volume.
pub(super) fn claim(device: &dyn Device, place: &MmpLocation, options: &MmpOptions) -> Result<Mmp> {
    let claim = Claim { device, place, options };
    let mut read = now();
    let found = place.read(device)?;
    let state = MmpState::new(&found, place);
    let sharing = device.sharing();
    let mut mine = place.mine(options);
    match state.usage {
        MmpUse::Fsck => return Err(in_fsck(&state)),
        MmpUse::Clean => {}
        MmpUse::InUse => {
            if !device.has_fenced() {
                read = claim.wait_for_owner(&found, read)?;
            }
            // A third machine must wait as long for this block as for the previous owner's.
            mine.check_interval = mine.check_interval.max(found.check_interval);
        }
    }
    let took = claim.write(&mut mine, read)?;
    let is_late = guarded!(Fault::LateClaim, took >= options.seconds(SETTLE), false);
    let wait = match (state.usage, sharing) {
        (MmpUse::Clean, Sharing::Fenced) => 0,
        (MmpUse::InUse, _) if device.has_fenced() => 0,
        (MmpUse::Clean, Sharing::Local) if !is_late => 0,
        (MmpUse::Clean, _) if !is_late => SETTLE,
        (usage, _) => {
            let wait = guarded!(Fault::LateWait, mine.wait(place.update_interval), state.wait);
            if usage == MmpUse::Clean {
                log::info!("the device was too slow to open the volume at once: waiting {wait} seconds");
            }
            wait
        }
    };
    claim.keeps(&mine, wait)?;
    Ok(mine)
}

/// A claim in progress.
struct Claim<'a> {
    device: &'a dyn Device,
    place: &'a MmpLocation,
    options: &'a MmpOptions,
}

impl Claim<'_> {
    /// Waits until the machine that wrote `found` counts as gone. Returns the start of the last
    /// read, which is `read` if there was no later read.
    fn wait_for_owner(&self, found: &Mmp, read: Duration) -> Result<Duration> {
        let state = MmpState::new(found, self.place);
        let waits = match self.options.evidence {
            OwnerEvidence::Unknown => 2,
            OwnerEvidence::Seen(sequence) if sequence != found.sequence => 2,
            OwnerEvidence::Seen(_) | OwnerEvidence::Forced => 1,
        };
        log::debug!("the volume was not closed ({state}): waiting up to {} seconds", waits * state.wait);
        if waits == 1 { Ok(read) } else { self.keeps(found, state.wait) }
    }

    /// Writes `mine` over the block whose last read began at `read`, and makes it durable. Returns
    /// the time from this read to the end of the write.
    ///
    /// If this took longer than `mine` allows for, gives `mine` a longer check interval and another
    /// number, and writes it again, because a third machine must wait as long, too.
    fn write(&self, mine: &mut Mmp, mut read: Duration) -> Result<Duration> {
        let mut longest = Duration::ZERO;
        loop {
            self.place.write(self.device, mine)?;
            let took = now().saturating_sub(read);
            longest = longest.max(took);
            // A flush, because a server that restarts must not return the previous block.
            self.device.flush().map_err(|e| Error::device("flushing the device", e))?;
            let interval = late_interval(took, self.options);
            if interval <= mine.check_interval || self.device.sharing() == Sharing::Fenced {
                return Ok(longest);
            }
            read = self.keeps(mine, 0)?;
            mine.sequence = MmpLocation::sequence_after(mine.sequence);
            mine.check_interval = interval;
        }
    }

    /// Checks for `seconds` that the block stays `known`. Returns the start of the last read.
    fn keeps(&self, known: &Mmp, seconds: u64) -> Result<Duration> {
        let other = match unchanged(self.device, self.place, known, seconds, self.options)? {
            Changed::No(read) => return Ok(read),
            Changed::To(other) => MmpState::new(&other, self.place),
        };
        Err(Error::Busy(match self.options.evidence {
            OwnerEvidence::Forced => {
                format!("the volume cannot be taken over, because its owner is alive: {other}")
            }
            _ => format!("another machine has the volume open: {other}"),
        }))
    }
}

/// Returns the longest check interval of a machine that has opened the volume within this time:
/// twice the longest time between two of its updates, rounded up or as
/// [`Lease::check`](super::lease::Lease::check) rounds.
fn late_interval(took: Duration, options: &MmpOptions) -> u16 {
    let seconds = took.as_nanos() / options.second.as_nanos().max(1);
    check_interval_after(u64::try_from(seconds).unwrap_or(u64::MAX).saturating_add(1))
}
