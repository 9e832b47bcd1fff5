//! Mounts whose server has ended without unmounting, such as one that was killed. Every call on
//! them fails with `ENOTCONN`.

use std::io::ErrorKind;
use std::path::Path;

use super::target::Target;
use super::umount_call::{UnmountError, detach_or_unmount};
use crate::connection::control::Connection;

/// Limit of mounts on one directory that are removed.
const MAX_MOUNTS: usize = 16;

/// Unmounts the topmost mounts of parext4 on `dir`, while they belong to the calling user and their
/// servers have ended. Returns the number of unmounted ones.
///
/// # Errors
/// If such a mount cannot be unmounted.
pub fn remove_dead_mounts(dir: &Path) -> Result<usize, UnmountError> {
    let dead = || Target::find(dir).ok()?.ok().filter(is_dead_and_of_caller);
    for removed in 0..MAX_MOUNTS {
        let Some(target) = dead() else { return Ok(removed) };
        // Another process may have mounted there meanwhile.
        if !target.is_topmost() {
            return Ok(removed);
        }
        // Programs that still use the mount do not prevent this.
        detach_or_unmount(&target, true)?;
    }
    Ok(MAX_MOUNTS)
}

fn is_dead_and_of_caller(target: &Target) -> bool {
    let connection = Connection::open(target.mount.connection()).ok();
    let is_dead = || target.path.metadata().is_err_and(|error| error.kind() == ErrorKind::NotConnected);
    target.is_of_caller(connection.as_ref()) && is_dead()
}
