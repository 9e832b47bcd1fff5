//! Controls FUSE connections through the kernel's `fusectl` file system.
//!
//! Systems with systemd mount `fusectl` on `/sys/fs/fuse/connections`; containers and small systems
//! often do not. Without that mount, a privileged caller reaches the same files through a detached
//! mount, which does not appear in the directory tree. Format: Linux,
//! `Documentation/filesystems/fuse.rst`, "Control filesystem".

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// The control file that aborts one FUSE connection. It never aborts another connection: the kernel
/// may give the number of an ended connection to the next mount, but detaches this file from the
/// number.
#[derive(Debug)]
pub struct Abort(File);

impl Abort {
    /// Opens the control file of the connection `connection`, the minor device number of the mount.
    ///
    /// # Errors
    /// `NotFound` if no such connection exists. `PermissionDenied` if the caller is neither the
    /// owner of the mount nor root, or if `fusectl` is not mounted and the caller may not mount it.
    pub fn open(connection: &str) -> io::Result<Self> {
        open(connection, "abort", OFlags::WRONLY).map(Self)
    }

    /// Aborts the connection: every request in flight and every later call on the mount fails. Has
    /// no effect on a connection that has ended.
    ///
    /// # Errors
    /// If the kernel refuses the write.
    pub fn abort(mut self) -> io::Result<()> {
        self.0.write_all(b"1")
    }
}

/// Aborts the FUSE connection that currently has the number `connection`.
///
/// # Errors
/// As [`Abort::open`].
pub fn abort(connection: &str) -> io::Result<()> {
    Abort::open(connection)?.abort()
}

/// Returns the number of requests that the kernel has no reply to, whether it has sent them or not.
///
/// # Errors
/// As [`Abort::open`].
pub fn waiting(connection: &str) -> io::Result<u64> {
    let mut text = String::new();
    open(connection, "waiting", OFlags::RDONLY)?.read_to_string(&mut text)?;
    text.trim().parse().map_err(io::Error::other)
}

/// A connection that the kernel may end at any time. If another connection gets its number, this
/// value does not refer to that one.
#[derive(Debug)]
pub(crate) struct Connection(File);

impl Connection {
    /// Finds the connection that currently has the number `connection`.
    ///
    /// # Errors
    /// As [`Abort::open`].
    pub fn open(connection: &str) -> io::Result<Self> {
        open(connection, "", OFlags::PATH | OFlags::DIRECTORY).map(Self)
    }

    /// Returns true if the file system is mounted anywhere, or a process uses a file of it.
    pub fn exists(&self) -> bool {
        self.waiting().is_some()
    }

    /// Returns the number of requests that the kernel has no reply to, whether it has sent them or
    /// not. `None` if the connection has ended.
    pub fn waiting(&self) -> Option<u64> {
        // The kernel removes the files from the folder of a connection that ends.
        let file = openat(&self.0, "waiting", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = String::new();
        File::from(file).read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }

    /// Returns the user that has mounted the file system, in the caller's user namespace.
    ///
    /// # Errors
    /// If the folder cannot be inspected.
    pub fn user(&self) -> io::Result<u32> {
        Ok(self.0.metadata()?.uid())
    }
}

/// Opens one of the connection's files, through the mount of `fusectl` or else through a
/// [`detached_mount`].
fn open(connection: &str, file: &str, access: OFlags) -> io::Result<File> {
    let open =
        |folder: BorrowedFd<'_>, path: &str| openat(folder, path, access | OFlags::CLOEXEC, Mode::empty());
    let opened = match open(CWD, &format!("/sys/fs/fuse/connections/{connection}/{file}")) {
        Err(Errno::NOENT) => open(detached_mount()?.as_fd(), &format!("{connection}/{file}")),
        opened => opened,
    };
    Ok(File::from(opened?))
}

/// Mounts `fusectl` without attaching it to a directory. Closing the descriptor unmounts it.
fn detached_mount() -> io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
