//! Unmounting from outside, and waiting until the server has let go of the image.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use parext4::device::open_device;
use parext4::{DeviceOptions, needs_recovery};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount as sys_unmount};

use crate::mounts::mount_on;
use crate::options::MountOptions;
use crate::report::report;

/// Why a directory was not unmounted.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Nothing of ours is mounted there.
    #[error("{0} is not a mount of parext4")]
    NotMounted(String),
    /// Files are open, or it is somebody's working directory.
    #[error("{0} is in use")]
    InUse(String),
    /// It is unmounted, but earlier changes may be lost.
    #[error("{dir} is unmounted, but what was not synced before may be lost: {why}")]
    NotDurable {
        /// The directory.
        dir: String,
        /// What happened to the volume.
        why: String,
    },
    /// Anything else.
    #[error("{dir}: {cause}")]
    Failed {
        /// The directory.
        dir: String,
        /// Why.
        cause: io::Error,
    },
}

/// Unmounts a directory that a volume is mounted on, and waits until the server has closed the image. With `detach`,
/// takes it out of sight at once and waits for nothing: it ends when nobody uses it any more.
///
/// # Errors
/// See [`UnmountError`]; without `detach`, a directory that is in use stays mounted.
pub fn unmount(dir: &Path, detach: bool) -> Result<(), UnmountError> {
    let failed = |cause: io::Error| UnmountError::Failed { dir: dir.display().to_string(), cause };
    let dir = dir.canonicalize().map_err(failed)?;
    let mounts = std::fs::read("/proc/self/mountinfo").map_err(failed)?;
    let mounted = mount_on(&mounts, &dir);
    let source = mounted.ok_or_else(|| UnmountError::NotMounted(dir.display().to_string()))?.source;
    if detach {
        return take_away(&dir, detach);
    }
    let last_words = LastWords::hear(&dir);
    take_away(&dir, detach)?;
    match last_words {
        Some(last_words) => {
            wait_for(&last_words.image);
            last_words.judge(&dir)
        }
        None => {
            wait_for(&source);
            Ok(())
        }
    }
}

/// Ends the mount itself.
fn take_away(dir: &Path, detach: bool) -> Result<(), UnmountError> {
    let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::NOFOLLOW };
    match sys_unmount(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(UnmountError::InUse(dir.display().to_string())),
        Err(Errno::PERM) => with_helper(dir, detach),
        Err(error) => Err(UnmountError::Failed { dir: dir.display().to_string(), cause: error.into() }),
    }
}

/// The server's state before the unmount, because umount(2) reports no failed write.
struct LastWords {
    /// The image, and where the volume begins in it.
    image: PathBuf,
    offset: u64,
    /// True if the image is mounted read-only, so no change can be lost.
    read_only: bool,
    /// Why changes are not durable, if some are not.
    lost: Option<String>,
}

impl LastWords {
    /// Has the server make everything durable, and asks it for its state. `None` if it does not answer, or refuses the
    /// caller.
    fn hear(dir: &Path) -> Option<Self> {
        let synced = sync_all(dir);
        let mount = report(dir).ok()?.mount;
        let mut options = MountOptions::default();
        options.add(&mount.options).ok()?;
        let lost = mount.stopped.or_else(|| synced.err().map(|error| error.to_string()));
        Some(Self { image: mount.image.into(), offset: options.offset, read_only: options.read_only, lost })
    }

    /// Fails if the image, which the server has closed, lacks changes.
    fn judge(self, dir: &Path) -> Result<(), UnmountError> {
        let not_durable = |why| Err(UnmountError::NotDurable { dir: dir.display().to_string(), why });
        if self.read_only {
            return Ok(());
        }
        if let Some(why) = self.lost {
            return not_durable(why);
        }
        let device = open_device(&self.image, &DeviceOptions::new().read_only(true).offset(self.offset));
        // If the image cannot be opened, it is in use again or was removed, so nothing can be said.
        if device.is_ok_and(|device| needs_recovery(&*device).unwrap_or(false)) {
            return not_durable("the server did not close the volume in good order".to_owned());
        }
        Ok(())
    }
}

/// Makes everything durable that was written below a directory: first the kernel's dirty pages, then the server's
/// state.
///
/// # Errors
/// If the server cannot. What the kernel could not write back was reported to the program that wrote it; syncfs(2) would
/// report it again, however long ago that was.
pub(crate) fn sync_all(dir: &Path) -> io::Result<()> {
    let dir = File::open(dir)?;
    let _ = rustix::fs::syncfs(&dir);
    dir.sync_all()
}

/// As a user who is not root.
fn with_helper(dir: &Path, detach: bool) -> Result<(), UnmountError> {
    let failed = |cause: io::Error| UnmountError::Failed { dir: dir.display().to_string(), cause };
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(detach.then_some("-z")).arg("--").arg(dir);
    let output = command.output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())))
}

/// The server holds a lock on the image as long as it uses it. An image that we cannot open, or that is only read,
/// is not waited for.
fn wait_for(image: &Path) {
    if let Ok(image) = File::open(image) {
        let _ = rustix::io::retry_on_intr(|| flock(&image, FlockOperation::LockShared));
    }
}
