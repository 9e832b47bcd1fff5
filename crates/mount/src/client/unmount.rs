//! Unmounts a directory from another process than the server, and waits until the server has closed the image.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parext4::device::Direct;
use parext4::storage::{open_device, scheme};
use parext4::{Device, DeviceOptions, Error, needs_recovery};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount as sys_unmount};

use super::image_lock::{holds, locks_of};
use super::process_end::ProcessEnd;
use super::standby::end_standby;
use crate::connection::mount_on;
use crate::connection::mounts::Mount;
use crate::options::MountOptions;
use crate::report::report;

/// Why a directory was not unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// No volume is mounted on the directory by parext4.
    #[error("{0} is not a mount of parext4")]
    NotMounted(String),
    /// A process has a file of the mount open, or works in one of its directories.
    #[error("{0} is in use")]
    InUse(String),
    /// The directory is unmounted, but earlier changes may be lost.
    #[error("{dir} is unmounted, but data that was not synced may be lost: {why}")]
    NotDurable {
        /// The directory.
        dir: String,
        /// Why the changes are not durable.
        why: String,
    },
    /// A system call failed.
    #[error("{dir}: {cause}")]
    Failed {
        /// The directory.
        dir: String,
        /// The error.
        cause: io::Error,
    },
}

/// Unmounts the volume that is mounted on a directory, and waits until the server has closed the image. With `detach`,
/// returns at once: the directory is empty from then on, and the mount ends when its last file is closed. Ends a standby
/// that waits to mount on the directory.
///
/// # Errors
/// See [`UnmountError`]. Without `detach`, a directory that is in use stays mounted.
pub fn unmount(dir: &Path, detach: bool) -> Result<(), UnmountError> {
    let failed = |cause: io::Error| UnmountError::Failed { dir: dir.display().to_string(), cause };
    let dir = dir.canonicalize().map_err(failed)?;
    let mounts = std::fs::read("/proc/self/mountinfo").map_err(failed)?;
    let mounted = mount_on(&mounts, &dir);
    let Some(Mount { source, .. }) = mounted else {
        let ended = end_standby(&dir).map_err(failed)?;
        return if ended { Ok(()) } else { Err(UnmountError::NotMounted(dir.display().to_string())) };
    };
    if detach {
        return detach_or_unmount(&dir, detach);
    }
    let synced = sync_all(&dir);
    let before = StateBefore::query(&dir);
    detach_or_unmount(&dir, detach)?;
    let is_closed = match &before {
        Some(before) => before.wait_until_closed(),
        None => {
            wait_until_unlocked(&source);
            true
        }
    };
    match lost(synced, before, is_closed) {
        Some(why) => Err(UnmountError::NotDurable { dir: dir.display().to_string(), why }),
        None => Ok(()),
    }
}

/// Returns why changes may be missing in the image. `is_closed` says whether the server has closed it. `None` if all are there, or if nothing is known of
/// them: the server refuses the caller, or it has ended before, which every call on the mount has reported since.
fn lost(synced: io::Result<()>, before: Option<StateBefore>, is_closed: bool) -> Option<String> {
    let says_nothing = [io::ErrorKind::PermissionDenied, io::ErrorKind::NotConnected];
    let failed = synced.err();
    let unsynced = failed.as_ref().map(io::Error::to_string);
    let Some(before) = before else {
        return unsynced.filter(|_| failed.is_some_and(|error| !says_nothing.contains(&error.kind())));
    };
    if before.read_only {
        return None;
    }
    if !is_closed {
        return Some("the server still runs, and the image could not be read".to_owned());
    }
    before.stopped.clone().or(unsynced).or_else(|| before.not_closed())
}

/// Calls umount2(2), or fusermount3 for a user that is not root.
fn detach_or_unmount(dir: &Path, detach: bool) -> Result<(), UnmountError> {
    let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::NOFOLLOW };
    match sys_unmount(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(UnmountError::InUse(dir.display().to_string())),
        Err(Errno::PERM) => unmount_with_helper(dir, detach),
        Err(error) => Err(UnmountError::Failed { dir: dir.display().to_string(), cause: error.into() }),
    }
}

/// Longest wait until a server has closed an image that it has only read. Another mount namespace may keep the mount, and no
/// change can be lost.
const READER_CLOSES_WITHIN: Duration = Duration::from_secs(30);
/// Time between two reads of the locks of such an image.
const INTERVAL: Duration = Duration::from_millis(5);
/// Time between two readings of an image on the network, while its server runs.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Time after which it gives up if all such readings have failed.
const READABLE_WITHIN: Duration = Duration::from_secs(30);

/// The server's state before the unmount. Needed because umount(2) does not report failed writes.
struct StateBefore {
    /// The path of the image, and the offset of the volume in it, in bytes.
    image: PathBuf,
    offset: u64,
    /// The volume is mounted read-only, so no change can be lost.
    read_only: bool,
    /// The server's process, and the number of locks that it holds on the image.
    server: u32,
    locks: usize,
    /// The server's process, if the image has no file that could be locked.
    unlocked: Option<ProcessEnd>,
    /// Why the volume has stopped.
    stopped: Option<String>,
}

impl StateBefore {
    /// Reads the state of the server. Returns `None` if it does not answer, or refuses the caller.
    fn query(dir: &Path) -> Option<Self> {
        let mount = report(dir).ok()?.mount;
        let mut options = MountOptions::new();
        options.add(&mount.options).ok()?;
        let (image, server) = (PathBuf::from(mount.image), mount.pid);
        let locks = locks_of(server, &image);
        let unlocked = scheme(image.as_os_str()).and_then(|_| ProcessEnd::of(server));
        let (offset, read_only) = (options.offset, options.read_only);
        Some(Self { image, offset, read_only, server, locks, unlocked, stopped: mount.stopped })
    }

    /// Blocks until the server has closed the image. Returns false if the server still runs, and the image could not be read for some
    /// time.
    fn wait_until_closed(&self) -> bool {
        if let Some(process) = &self.unlocked {
            // A program that has mounted the volume through the library goes on after it has closed the volume.
            let mut deadline = Instant::now() + READABLE_WITHIN;
            while !process.happens_within(ASK_AGAIN_AFTER) {
                match self.needs_recovery() {
                    Ok(false) => return true,
                    Ok(true) => deadline = Instant::now() + READABLE_WITHIN,
                    Err(_) if Instant::now() >= deadline => return false,
                    Err(_) => {}
                }
            }
            return true;
        }
        if !self.read_only {
            wait_until_unlocked(&self.image);
            return true;
        }
        // Other servers may hold a shared lock too, so the lock itself does not say when this server releases its own.
        let deadline = Instant::now() + READER_CLOSES_WITHIN;
        while holds(self.server, &self.image, self.locks.max(1)) && Instant::now() < deadline {
            sleep(INTERVAL);
        }
        true
    }

    /// Returns why the image says, after the server has closed it, that changes may be missing. Nothing is known of an image that cannot be
    /// opened or has no volume, because it is in use again, was removed or replaced, or its NBD server has ended: then returns `None`.
    fn not_closed(&self) -> Option<String> {
        match needs_recovery(&*self.open().ok()?) {
            Ok(true) => Some("the server did not close the volume cleanly".to_owned()),
            Err(error @ Error::Device { .. }) => Some(format!("the image could not be read: {error}")),
            Ok(false) | Err(_) => None,
        }
    }

    /// Returns true if the image says that the volume was not closed.
    fn needs_recovery(&self) -> io::Result<bool> {
        Ok(needs_recovery(&*self.open()?)?)
    }

    fn open(&self) -> io::Result<Arc<dyn Device>> {
        // Through the page cache, because the blocks may be smaller than the sectors of the device.
        let options = DeviceOptions::new().read_only(true).direct(Direct::Never).offset(self.offset);
        open_device(&self.image, &options)
    }
}

/// Makes everything durable that was written to a mount: has the kernel write back its dirty pages, then the server sync
/// the volume.
///
/// # Errors
/// If the server cannot sync. Errors of the kernel's write-back are ignored, as umount(2) ignores them with ext4: the program that
/// wrote the data got them, unless it did so through a mapping and ended, and syncfs(2) reports old errors again.
pub(super) fn sync_all(dir: &Path) -> io::Result<()> {
    let dir = File::open(dir)?;
    let _ = rustix::fs::syncfs(&dir);
    dir.sync_all()
}

/// Unmounts with fusermount3, which a user that is not root may run.
fn unmount_with_helper(dir: &Path, detach: bool) -> Result<(), UnmountError> {
    let failed = |cause: io::Error| UnmountError::Failed { dir: dir.display().to_string(), cause };
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(detach.then_some("-z")).arg("--").arg(dir);
    let output = command.output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())))
}

/// Blocks until no process has the image open for writing. Returns at once if the caller cannot open the image.
fn wait_until_unlocked(image: &Path) {
    if let Ok(image) = File::open(image) {
        let _ = rustix::io::retry_on_intr(|| flock(&image, FlockOperation::LockShared));
    }
}
