//! Updates the block while this machine owns the volume.
//!
//! At each interval, and sooner if a write waits for the lease, the owner's thread
//!
//! 1. reads the block, and checks that it is still this machine's, which extends the lease;
//! 2. writes the next number, if the lease has not ended meanwhile, and flushes it.
//!
//! The kernel reads the block only if its last update was late. When an update fails, the thread
//! retries at the next interval, as the kernel does. Once a device of a network has given up, the
//! thread and the lease end. A failed flush stops the volume (I8): a device reports the loss of
//! earlier writes only once, and these may be writes of the volume.

use std::io::ErrorKind;
use std::time::Duration;

use parext4_device::{Device, Sharing};
use parext4_format::mmp::{Mmp, SEQUENCE_CLEAN};

use super::MmpOptions;
use super::lease::Lease;
use super::location::MmpLocation;
use super::time::now;
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::sync::Arc;

/// The owner's thread and the block that it updates.
#[derive(Debug)]
pub(super) struct Heartbeat {
    device: Arc<dyn Device>,
    place: MmpLocation,
    options: MmpOptions,
    lease: Arc<Lease>,
}

/// The result of an update without an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Update {
    /// The block has a new number.
    Written,
    /// Reading took longer than the lease. The block must be read again.
    TooLate,
    /// Another machine has opened the volume.
    Lost,
}

impl Heartbeat {
    pub(super) fn new(
        device: Arc<dyn Device>,
        place: MmpLocation,
        options: &MmpOptions,
        lease: &Arc<Lease>,
    ) -> Self {
        Self { device, place, options: options.clone(), lease: Arc::clone(lease) }
    }

    /// Updates the block until the lease is lost, the volume stops, or the timer is stopped.
    pub(super) fn run(&self) {
        let mut failing = false;
        loop {
            let began = now();
            let update = self.update();
            match &update {
                Ok(Update::Lost) => return,
                Ok(Update::TooLate) if self.lease.timer().sleep(Duration::ZERO) => continue,
                Ok(Update::TooLate) => return,
                Ok(Update::Written) => failing = false,
                Err(error) if !failing => {
                    log::error!("{error}; trying again");
                    failing = true;
                }
                Err(_) => {}
            }
            // A stopped volume makes no more updates, so that other machines may take it over.
            if self.lease.volume_has_stopped() {
                return self.lease.retire("the volume has stopped");
            }
            let pause = self.options.seconds(self.place.pause());
            if !self.lease.timer().sleep(pause.saturating_sub(now().saturating_sub(began))) {
                return;
            }
        }
    }

    /// Reads the block, extends the lease, and writes the next number.
    ///
    /// # Errors
    /// Device errors; the lease then lasts as long as it did before.
    pub(super) fn update(&self) -> Result<Update> {
        let updated = self.try_update();
        match &updated {
            Err(error) if self.is_final(error) => {
                self.lease.device_has_given_up(error);
                return Ok(Update::Lost);
            }
            Err(error) => self.lease.update_failed(error),
            Ok(_) => {}
        }
        updated
    }

    /// Returns whether a device of a network has given up: it was fenced, or its servers did not
    /// answer in time. Then every later request fails, too.
    fn is_final(&self, error: &Error) -> bool {
        let Error::Device { cause, .. } = error else { return false };
        self.device.sharing().is_shared()
            && matches!(cause.kind(), ErrorKind::PermissionDenied | ErrorKind::TimedOut)
    }

    fn try_update(&self) -> Result<Update> {
        let began = now();
        let found = match self.place.read(&*self.device) {
            Err(damage @ Error::Corrupt(_)) => {
                self.lease.lose(&format!("another program has overwritten its block: {damage}"));
                return Ok(Update::Lost);
            }
            found => found?,
        };
        let Some(next) = self.lease.check(&found, began) else { return Ok(Update::Lost) };
        // A later write could hide the number of a machine that has taken over since the read.
        {
            let permit = self.lease.permit();
            if guarded!(Fault::LateUpdate, permit.is_none()) {
                return Ok(Update::TooLate);
            }
            self.lease.attempt(&next, began);
            self.place.write(&*self.device, &next)?;
        }
        // A fenced device has made durable each write that it has answered. Its flush waits for all
        // requests, so a slow one would delay this owner's updates.
        if self.device.sharing() != Sharing::Fenced
            && let Err(error) = self.device.flush()
        {
            let error = Error::device("flushing the device", error);
            self.lease.flush_failed(&error);
            return Err(error);
        }
        self.lease.written(next);
        Ok(Update::Written)
    }

    /// Marks the volume as closed, if the block is still this machine's. Returns false if the block
    /// is another machine's, or may be.
    pub(super) fn close(&self) -> Result<bool> {
        let began = now();
        let found = self.place.read(&*self.device)?;
        if self.lease.check(&found, began).is_none() {
            return Ok(false);
        }
        let Some(_permit) = self.lease.permit() else { return Ok(false) };
        let clean = Mmp { sequence: SEQUENCE_CLEAN, time: self.place.seconds_now(), ..found };
        // A device that loses the answer and connects again may read this block, and must not
        // mistake it for another machine's block.
        self.lease.attempt(&clean, began);
        self.place.write(&*self.device, &clean)?;
        self.device.flush().map_err(|e| Error::device("flushing the device", e))?;
        Ok(true)
    }
}
