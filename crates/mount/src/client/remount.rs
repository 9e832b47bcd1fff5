//! Changes the options of a mount in use, as mount(8) does with `remount`.
//!
//! The kernel does not tell a FUSE server about a remount: it writes its cache back, and from then
//! on refuses changes, or permits them again. So the process that remounts does the rest: it first
//! checks that the server supports the options, and makes the server open the volume for writing if
//! it was mounted read-only. Afterwards it makes all changes durable.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};

use super::sync::sync_all;
use super::target::Target;
use crate::connection::control::Connection;
use crate::options::{Atime, MountOptions, OptionError};
use crate::report::{ReportError, report};
use crate::switch::make_writable;

/// Why a mount was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemountError {
    /// An option is unknown or not supported.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The server does not answer.
    #[error(transparent)]
    Server(#[from] ReportError),
    /// An option cannot be changed while the volume is mounted.
    #[error("{dir}: \"remount\" changes ro, rw, suid, dev and exec only; it is mounted with {options}")]
    Fixed {
        /// The directory on which the volume is mounted.
        dir: String,
        /// The options of the server.
        options: String,
    },
    /// The mount belongs to another user.
    #[error("{0} was mounted by another user, who alone can change it")]
    OtherUser(String),
    /// `rw` was requested, but the server cannot open the volume for writing.
    #[error("{dir} stays read-only: {why}")]
    ReadOnly {
        /// The directory.
        dir: String,
        /// Why the volume cannot be opened.
        why: String,
    },
    /// `rw` was requested, but the volume has stopped.
    #[error("{dir}: changes are refused because of an earlier error: {why}")]
    Stopped {
        /// The directory.
        dir: String,
        /// The error that stopped the volume.
        why: String,
    },
    /// Files are open for writing.
    #[error("{0}: files are open for writing")]
    InUse(String),
    /// The mount is read-only now, but changes made before may not be durable.
    #[error("{dir} is read-only now, but earlier writes may not be durable: {cause}")]
    NotDurable {
        /// The directory.
        dir: String,
        /// The error.
        cause: io::Error,
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

/// Changes the options of the mount on `dir`. `lists` are lists of options, separated by commas.
/// After a change to read-only, all earlier writes are durable.
///
/// # Errors
/// See [`RemountError`]. Except for [`RemountError::NotDurable`], the mount is unchanged.
pub fn remount(dir: &Path, lists: &[String]) -> Result<(), RemountError> {
    let name = || dir.display().to_string();
    check_owner(dir)?;
    let server = report(dir)?.mount;
    let mut current = MountOptions::new();
    current.add(&server.options)?;
    let mut wanted = current.clone();
    lists.iter().try_for_each(|list| wanted.add(list))?;
    // mount(8) passes on the options that the kernel lists for the mount, which say "relatime" also
    // for strictatime.
    if wanted.atime == Atime::Relative {
        wanted.atime = current.atime;
    }
    if !differs_in_flags_only(&current, &wanted) {
        return Err(RemountError::Fixed { dir: name(), options: server.options });
    }
    if let Some(why) = server.stopped.filter(|_| !wanted.read_only) {
        return Err(RemountError::Stopped { dir: name(), why });
    }
    if current.read_only
        && !wanted.read_only
        && let Some(why) = make_writable(dir).map_err(|cause| RemountError::Failed { dir: name(), cause })?
    {
        return Err(RemountError::ReadOnly { dir: name(), why });
    }
    match mount_remount(dir, mount_flags(&wanted), "") {
        Ok(()) => {}
        Err(Errno::BUSY) => return Err(RemountError::InUse(name())),
        Err(error) => return Err(RemountError::Failed { dir: name(), cause: error.into() }),
    }
    if wanted.read_only && !current.read_only {
        sync_all(dir).map_err(|cause| RemountError::NotDurable { dir: name(), cause })?;
    }
    Ok(())
}

/// Fails if the server of the mount on `dir` belongs to another user: its report would decide which
/// flags the mount keeps.
fn check_owner(dir: &Path) -> Result<(), RemountError> {
    let found =
        Target::find(dir).map_err(|cause| RemountError::Failed { dir: dir.display().to_string(), cause })?;
    // Without a mount there is no server.
    let Ok(target) = found else { return Ok(()) };
    let connection = Connection::open(target.mount.connection()).ok();
    match target.is_of_caller(connection.as_ref()) {
        true => Ok(()),
        false => Err(RemountError::OtherUser(dir.display().to_string())),
    }
}

/// Returns true if the options differ only in flags that the kernel can change without the server.
fn differs_in_flags_only(current: &MountOptions, wanted: &MountOptions) -> bool {
    let MountOptions { read_only, suid, dev, exec, remount, nonempty, .. } = *wanted;
    let current = current.clone().remount(remount).nonempty(nonempty);
    *wanted == current.read_only(read_only).suid(suid).dev(dev).exec(exec)
}

/// Returns the mount flags of the options. Without a flag for times of access, the kernel keeps the
/// current one.
fn mount_flags(options: &MountOptions) -> MountFlags {
    let flags = [
        (options.read_only, MountFlags::RDONLY),
        (!options.suid, MountFlags::NOSUID),
        (!options.dev, MountFlags::NODEV),
        (!options.exec, MountFlags::NOEXEC),
        (options.sync, MountFlags::SYNCHRONOUS),
        (options.dirsync, MountFlags::DIRSYNC),
    ];
    flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect()
}
