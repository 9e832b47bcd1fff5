//! The kernel's control of FUSE connections (`fusectl`).
//!
//! Systems with systemd mount `fusectl` on `/sys/fs/fuse/connections`; containers and small systems often do not. Without
//! it, a privileged caller reaches the same files through a mount that is attached nowhere, so nothing of the system's
//! tree changes. Format: Linux, `Documentation/filesystems/fuse.rst`, "Control filesystem".

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// The means to abort one FUSE connection. It never reaches another one: the kernel gives the number of a connection
/// that has ended to the next mount, but detaches this file from it.
#[derive(Debug)]
pub struct Abort(File);

impl Abort {
    /// Opens the means to abort a connection that exists.
    ///
    /// `connection` is the kernel's number of the connection, which is the minor device number of the mount.
    ///
    /// # Errors
    /// `NotFound` if no such connection exists. `PermissionDenied` if the caller is neither the owner of the mount nor
    /// root, or if `fusectl` is not mounted and the caller may not mount it.
    pub fn open(connection: &str) -> io::Result<Self> {
        open(connection, "abort", OFlags::WRONLY).map(Self)
    }

    /// Aborts the connection: every request under way and every later call on the mount fails. Has no effect on a
    /// connection that has ended.
    ///
    /// # Errors
    /// If the kernel refuses the write.
    pub fn abort(mut self) -> io::Result<()> {
        self.0.write_all(b"1")
    }
}

/// Aborts the FUSE connection that has the number `connection` now.
///
/// # Errors
/// As [`Abort::open`].
pub fn abort(connection: &str) -> io::Result<()> {
    Abort::open(connection)?.abort()
}

/// Returns the number of requests that the kernel holds for the server, sent or not, and has no reply to.
///
/// # Errors
/// As [`Abort::open`].
pub fn waiting(connection: &str) -> io::Result<u64> {
    let mut text = String::new();
    open(connection, "waiting", OFlags::RDONLY)?.read_to_string(&mut text)?;
    text.trim().parse().map_err(io::Error::other)
}

/// Opens one of the connection's files, where `fusectl` is mounted or else through [`unattached`].
fn open(connection: &str, file: &str, access: OFlags) -> io::Result<File> {
    let open =
        |folder: BorrowedFd<'_>, path: &str| openat(folder, path, access | OFlags::CLOEXEC, Mode::empty());
    let opened = match open(CWD, &format!("/sys/fs/fuse/connections/{connection}/{file}")) {
        Err(Errno::NOENT) => open(unattached()?.as_fd(), &format!("{connection}/{file}")),
        opened => opened,
    };
    Ok(File::from(opened?))
}

/// Mounts `fusectl` without attaching it to a directory. The kernel unmounts it when the descriptor is closed.
fn unattached() -> io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
