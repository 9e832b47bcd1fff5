//! The protection of a volume that this machine has open for writing. It is claimed at open, kept
//! by a thread, and released at close.

use parext4_device::{Device, Sharing, WriteGuard};
use parext4_format::superblock::Superblock;

use super::MmpOptions;
use super::claim::claim;
use super::heartbeat::{Heartbeat, Update};
use super::lease::Lease;
use super::leased_device::LeasedDevice;
use super::location::MmpLocation;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::health::Health;
use crate::sync::{Arc, Mutex, Rank};
use crate::threads::{self, JoinHandle};

/// The protection of an open volume. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct Protection {
    lease: Arc<Lease>,
    /// The heartbeat; `None` once the protection was released.
    heartbeat: Mutex<Option<Arc<Heartbeat>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Protection {
    /// Makes this machine the owner of the volume on `device`. Returns the device to continue with,
    /// whose writes need the lease; `None` if the volume has no protection. May block for more than
    /// a minute.
    ///
    /// # Errors
    /// [`Error::Busy`] names the machine that uses the volume.
    pub(crate) fn claim(
        device: &Arc<dyn Device>,
        superblock: &Superblock,
        options: &MmpOptions,
        clock: Clock,
    ) -> Result<Option<(Self, Arc<dyn Device>)>> {
        let Some(place) = MmpLocation::of(superblock, clock)? else { return Ok(None) };
        let lease = Arc::new(Lease::new(&**device, &place, options));
        if device.sharing() != Sharing::Fenced {
            device.guard_writes(Arc::clone(&lease) as Arc<dyn WriteGuard>);
        }
        lease.begin(claim(&**device, &place, options)?);
        let heartbeat = Arc::new(Heartbeat::new(Arc::clone(device), place, options, &lease));
        if heartbeat.update()? == Update::Lost {
            return Err(Error::Busy(lease.why_lost()));
        }
        let running = Arc::clone(&heartbeat);
        let thread = threads::spawn_needed("parext4-mmp", move || running.run()).inspect_err(|_| {
            let _ = heartbeat.close();
        })?;
        let leased = LeasedDevice::new(Arc::clone(device), &lease);
        let (heartbeat, thread) = (Mutex::new(Rank::Leaf, Some(heartbeat)), Mutex::new(Rank::Leaf, thread));
        Ok(Some((Self { lease, heartbeat, thread }, Arc::new(leased))))
    }

    /// Returns another device of the volume, whose writes need the same lease.
    pub(crate) fn lease(&self, device: &Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(LeasedDevice::new(Arc::clone(device), &self.lease))
    }

    /// Sets the health of the volume, which stops when another machine takes the volume over.
    pub(crate) fn attach(&self, health: &Arc<Health>) {
        self.lease.attach(health);
    }

    /// Checks that no other machine has taken the volume over, and that no update has found that
    /// the device lost writes.
    ///
    /// # Errors
    /// [`Error::Busy`] says why the volume is lost.
    pub(crate) fn check(&self) -> Result<()> {
        if self.lease.is_lost() { Err(Error::Busy(self.lease.why_lost())) } else { Ok(()) }
    }

    /// Stops the updates. With `clean`, marks the volume as closed, if this machine still owns it;
    /// otherwise the next machine waits before it uses the volume. Later writes fail. Only the
    /// first call has an effect.
    ///
    /// # Errors
    /// A request of the device failed, or another program has overwritten the block. The volume may
    /// then lack the mark.
    pub(crate) fn release(&self, clean: bool) -> Result<()> {
        self.lease.timer().stop();
        let thread = self.thread.lock().take();
        threads::join(thread);
        let Some(heartbeat) = self.heartbeat.lock().take() else { return Ok(()) };
        let closed = if clean { heartbeat.close() } else { Ok(false) };
        if let Err(error) = &closed {
            log::warn!("the volume is not marked as closed: {error}");
        }
        self.lease.close(matches!(closed, Ok(true)));
        closed.map(drop)
    }
}

#[cfg(shuttle)]
impl Protection {
    /// Updates the block, as the owner's thread does. Returns false if the volume is lost.
    pub(crate) fn update(&self) -> bool {
        let heartbeat = self.heartbeat.lock().clone();
        heartbeat.is_some_and(|heartbeat| !matches!(heartbeat.update(), Ok(Update::Lost)))
    }
}

impl Drop for Protection {
    fn drop(&mut self) {
        // `release` has logged the error.
        let _ = self.release(true);
    }
}
