//! Unmounts a directory from another process than the server, and waits until the server has closed
//! the image.
//!
//! 1. The kernel's records identify the [target](super::target) and the user of its server. The
//!    module [`foreign`] unmounts a mount of another user.
//! 2. A copy of the mount that is attached to no directory keeps the volume mounted, and the
//!    directory is unmounted. From then on no program can change the volume through the directory.
//!    Users without the privilege for a copy unmount after step 3.
//! 3. The kernel writes back its pages, and the server syncs and reports its state.
//! 4. The copy is closed. If that ends the connection, the server closes the image. If not, another
//!    mount holds the volume.
//!
//! Every long wait is announced. Every wait has a limit, except for the sync of step 3, which only
//! the server ends; the server belongs to the caller.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::elsewhere::Holders;
use super::foreign;
use super::last_state::StateAtSync;
use super::patience::{Announce, announced};
use super::standby::end_standby;
use super::sync::sync;
use super::target::{Target, path_of};
use super::umount_call::{UnmountError, detach_or_unmount};
use crate::connection::control::Connection;

/// Options of an unmount.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "functions have none")]
pub struct Unmount<'a> {
    /// Whether to return at once: the directory is empty from then on, and the mount ends when its
    /// last file is closed.
    pub detach: bool,
    /// Prints what the caller waits for, and the other holders of the volume.
    pub announce: Announce<'a>,
    /// Returns a command that calls [`call_umount`](super::call_umount) on the directory that is
    /// its last argument, with `--lazy` before it for `detach`.
    pub call_umount: &'a dyn Fn() -> io::Result<Command>,
}

/// Time for which the number of requests may stay the same until the kernel's write-back counts as
/// answered. An unmounted directory sends no other requests, unless another mount holds the volume.
const PATIENCE: Duration = Duration::from_secs(10);
/// Like [`PATIENCE`], while the directory is mounted.
const PATIENCE_IN_USE: Duration = Duration::from_secs(2);

/// Unmounts the volume that is mounted on a directory or file, and waits until the server has
/// closed the image. If the volume stays mounted elsewhere, returns before that, but after all
/// changes are durable. Ends a standby of the caller that waits to mount on the directory.
///
/// # Errors
/// See [`UnmountError`]. Without `detach`, a directory that is in use stays mounted.
pub fn unmount(dir: &Path, how: &Unmount<'_>) -> Result<(), UnmountError> {
    let failed = |cause: io::Error| UnmountError::Failed { dir: dir.display().to_string(), cause };
    let target = match Target::find(dir).map_err(failed)? {
        Ok(target) => target,
        Err(path) => {
            let ended = end_standby(&path, how.announce).map_err(failed)?;
            return if ended { Ok(()) } else { Err(UnmountError::NotMounted(path.display().to_string())) };
        }
    };
    let connection = Connection::open(target.mount.connection()).ok();
    if !target.is_of_caller(connection.as_ref()) {
        let command = (how.call_umount)().map_err(failed)?;
        return foreign::unmount(&target, connection.as_ref(), how.detach, command, how.announce);
    }
    if how.detach {
        return detach_or_unmount(&target, true);
    }
    let state = unmount_and_sync(&target, connection.as_ref(), how.announce)?;
    let why = match Holders::of(target.mount.connection(), connection.as_ref()) {
        Some(holders) if holders.here => state.unsynced(),
        Some(holders) => {
            let dir = target.path.display();
            (how.announce)(&format!("{dir} is unmounted; the volume is still held by {holders}"));
            state.lost()
        }
        None => state.close(&target.path, connection.is_some(), how.announce),
    };
    match why {
        Some(why) => Err(UnmountError::NotDurable { dir: target.path.display().to_string(), why }),
        None => Ok(()),
    }
}

/// Unmounts `target`, and syncs the volume. If the caller may copy the mount, the sync uses a copy
/// after the unmount.
fn unmount_and_sync(
    target: &Target,
    connection: Option<&Connection>,
    announce: Announce<'_>,
) -> Result<StateAtSync, UnmountError> {
    let waits = format!("{}: waiting for the server to make everything durable", target.path.display());
    let sync = |path: &Path, patience| {
        let sync = || StateAtSync::new(sync(path, connection, patience), target.mount.connection());
        announced(announce, &waits, sync)
    };
    let covered = || {
        let dir = target.path.display().to_string();
        UnmountError::Failed { dir, cause: io::Error::other("another mount covers it now") }
    };
    let Some(copy) = target.copy() else {
        if !target.is_topmost() {
            return Err(covered());
        }
        let state = sync(&target.path, PATIENCE_IN_USE);
        detach_or_unmount(target, false)?;
        return Ok(state);
    };
    if !target.is_copied_by(&copy) || !target.is_topmost() {
        return Err(covered());
    }
    detach_or_unmount(target, false)?;
    Ok(sync(&path_of(&copy), PATIENCE))
}
