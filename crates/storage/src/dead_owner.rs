//! Finds out whether the client that holds the lock of a device is dead.
//!
//! The servers of a device may not hear from a living client for a moment, if it has lost its
//! session and is about to begin another one. Such a client still updates the block of multi-mount
//! protection (MMP). So a client counts as dead only if, for as long as a living owner may need for
//! an update, the servers do not hear from it and the block stays the same.

use std::ffi::OsStr;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parext4::mmp::{self, MmpState, SILENT_AFTER};
use parext4_device::{Device, DeviceOptions, LockOwner};

use crate::open_device::open_device;

/// Time between two polls of the device.
const PAUSE: Duration = Duration::from_millis(500);
/// Time above which a poll proves nothing about the client, whose own requests may be as slow.
const SLOW: Duration = Duration::from_secs(5);

/// A client that holds the device's lock but that the servers do not hear from.
#[derive(PartialEq, Eq)]
struct DeadClient {
    owner: LockOwner,
    /// The block, if the device holds a volume that has one.
    mmp: Option<MmpState>,
}

/// Returns the name of the client that holds the lock of a device, if the client is dead. If the
/// servers do not hear from the client, blocks for about ten seconds until its death is certain.
///
/// # Errors
/// The device cannot be opened or read.
pub(crate) fn dead_owner(typed: &OsStr, options: &DeviceOptions) -> io::Result<Option<String>> {
    confirmed_dead(&*open_device(typed, &options.clone().read_only(true).lock(false).create(None))?)
}

/// Returns the name of the client that holds the lock, if it is dead.
fn confirmed_dead(device: &dyn Device) -> io::Result<Option<String>> {
    let Some(first) = poll(device)? else { return Ok(None) };
    log::info!("the servers of the device do not hear from {}; waiting for a sign of life", first.owner.name);
    let enough = first.mmp.as_ref().map_or(SILENT_AFTER, MmpState::silent_after);
    let begin = Instant::now();
    loop {
        sleep(PAUSE);
        let start = Instant::now();
        if poll(device)?.as_ref() != Some(&first) || start.elapsed() > SLOW {
            return Ok(None);
        }
        if start.duration_since(begin) >= enough {
            return Ok(Some(first.owner.name));
        }
    }
}

/// Returns the client that holds the lock, unless the servers hear from it.
fn poll(device: &dyn Device) -> io::Result<Option<DeadClient>> {
    let Some(owner) = device.lock_owner()?.filter(|owner| !owner.alive) else { return Ok(None) };
    let mmp = match mmp::read(device) {
        // The device does not hold a volume.
        Err(parext4::Error::Corrupt(_)) => None,
        read => read?,
    };
    Ok(Some(DeadClient { owner, mmp }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use parext4::{MkfsOptions, Volume, VolumeOptions, mkfs};
    use parext4_device::{MemDevice, forward_device};

    use super::*;

    /// A device whose lock a client holds.
    #[derive(Debug)]
    struct Locked {
        mem: Arc<MemDevice>,
        is_heard: AtomicBool,
    }

    impl Device for Locked {
        forward_device!(this => this.mem; size, sector_size, read_only, read_at, write_at, flush, discard);

        fn lock_owner(&self) -> io::Result<Option<LockOwner>> {
            Ok(Some(LockOwner { name: "client".into(), alive: self.is_heard.load(Ordering::SeqCst) }))
        }
    }

    fn locked() -> (Arc<Locked>, Volume) {
        let mem = Arc::new(MemDevice::new(16 << 20));
        mkfs(&*mem, &MkfsOptions::new().mmp(true).mmp_update_interval(1)).unwrap();
        let volume = Volume::open_device(Arc::clone(&mem) as _, &VolumeOptions::new()).unwrap();
        (Arc::new(Locked { mem, is_heard: AtomicBool::new(false) }), volume)
    }

    #[test]
    fn an_owner_is_dead_without_any_sign_of_life() {
        let begin = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (device, volume) = locked();
                volume.abort().unwrap();
                drop(volume);
                assert_eq!(confirmed_dead(&*device).unwrap().as_deref(), Some("client"));
                assert!(begin.elapsed() >= Duration::from_secs(6));
            });
            scope.spawn(|| {
                let (device, volume) = locked();
                assert_eq!(confirmed_dead(&*device).unwrap(), None, "the volume is open");
                volume.close().unwrap();
            });
            scope.spawn(|| {
                let (device, volume) = locked();
                volume.abort().unwrap();
                drop(volume);
                thread::scope(|scope| {
                    let dead = scope.spawn(|| confirmed_dead(&*device).unwrap());
                    thread::sleep(3 * PAUSE);
                    device.is_heard.store(true, Ordering::SeqCst);
                    assert_eq!(dead.join().unwrap(), None, "the servers hear from the client again");
                });
            });
        });
    }
}
