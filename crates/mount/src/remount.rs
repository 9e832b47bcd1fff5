//! Making a mount read-only or writable again while it is in use, as mount(8) asks with `remount`.
//!
//! The kernel does not tell a FUSE server about a remount. It writes its cache back, and from then on refuses changes,
//! or allows them again. So the process that remounts does the rest: it checks that the server can do what is asked,
//! and makes everything durable.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};

use crate::options::{Atime, MountOptions, OptionError};
use crate::report::{ReportError, report};
use crate::unmount::sync_all;

/// Why a mount was not changed.
#[derive(Debug, thiserror::Error)]
pub enum RemountError {
    /// An option is not known.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The server does not answer.
    #[error(transparent)]
    Server(#[from] ReportError),
    /// Options are asked for that the server cannot change.
    #[error("{dir}: \"remount\" changes ro, rw, suid, dev and exec only; it is mounted with {options}")]
    Fixed {
        /// The directory.
        dir: String,
        /// The options of the server.
        options: String,
    },
    /// It is to be writable, but was mounted otherwise.
    #[error(
        "{0}: its image is open for reading only, because it was mounted with \"ro\"; unmount it and mount it again"
    )]
    ImageReadOnly(String),
    /// It is to be writable, but has stopped.
    #[error("{dir}: changes are refused because of an earlier error: {why}")]
    Stopped {
        /// The directory.
        dir: String,
        /// The error.
        why: String,
    },
    /// Files are open for writing.
    #[error("{0}: files are open for writing")]
    InUse(String),
    /// It is read-only, but what was written before may not be durable.
    #[error("{dir} is read-only now, but not everything written before is durable: {cause}")]
    NotDurable {
        /// The directory.
        dir: String,
        /// Why.
        cause: io::Error,
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

/// Changes the mount on `dir` as `lists` of options say. When a mount has become read-only, everything written before is
/// durable.
///
/// # Errors
/// See [`RemountError`]; but for [`RemountError::NotDurable`], the mount is as before.
pub fn remount(dir: &Path, lists: &[String]) -> Result<(), RemountError> {
    let name = || dir.display().to_string();
    let server = report(dir)?.mount;
    let mut now = MountOptions::default();
    now.add(&server.options)?;
    let mut wanted = now.clone();
    lists.iter().try_for_each(|list| wanted.add(list))?;
    // mount(8) passes on the options that the kernel lists for the mount, which say "relatime" also for strictatime.
    if wanted.atime == Atime::Relative {
        wanted.atime = now.atime;
    }
    if !differs_in_flags_only(&now, &wanted) {
        return Err(RemountError::Fixed { dir: name(), options: server.options });
    }
    if let Some(why) = server.stopped.filter(|_| !wanted.read_only) {
        return Err(RemountError::Stopped { dir: name(), why });
    }
    if now.read_only && !wanted.read_only {
        return Err(RemountError::ImageReadOnly(name()));
    }
    match mount_remount(dir, flags(&wanted), "") {
        Ok(()) => {}
        Err(Errno::BUSY) => return Err(RemountError::InUse(name())),
        Err(error) => return Err(RemountError::Failed { dir: name(), cause: error.into() }),
    }
    if wanted.read_only && !now.read_only {
        sync_all(dir).map_err(|cause| RemountError::NotDurable { dir: name(), cause })?;
    }
    Ok(())
}

/// Returns true if the kernel alone can do what is asked.
fn differs_in_flags_only(now: &MountOptions, wanted: &MountOptions) -> bool {
    let MountOptions { read_only, suid, dev, exec, remount, .. } = *wanted;
    *wanted == MountOptions { read_only, suid, dev, exec, remount, ..now.clone() }
}

/// The flags of the mount; those of times of access stay as they are.
fn flags(options: &MountOptions) -> MountFlags {
    let flags = [
        (options.read_only, MountFlags::RDONLY),
        (!options.suid, MountFlags::NOSUID),
        (!options.dev, MountFlags::NODEV),
        (!options.exec, MountFlags::NOEXEC),
        (options.sync, MountFlags::SYNCHRONOUS),
        (options.dirsync, MountFlags::DIRSYNC),
    ];
    flags.into_iter().filter(|(is, _)| *is).map(|(_, flag)| flag).collect()
}
