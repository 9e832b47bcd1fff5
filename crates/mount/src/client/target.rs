//! The mount that a user names by a directory. The search relies on nothing that another user can
//! change to make it find another mount.
//!
//! Finding it sends no request to the server of the mount, which may belong to another user and
//! never answer.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statx};
use rustix::mount::{OpenTreeFlags, UnmountFlags, open_tree, unmount};

use crate::connection::control::Connection;
use crate::connection::mount_on;
use crate::connection::mounts::Mount;

/// A directory or file that a volume is mounted on.
#[derive(Debug)]
pub(super) struct Target {
    /// The path, without symbolic links.
    pub path: PathBuf,
    pub mount: Mount,
    /// The directory that contains the mount point, and the name of the mount point in it. Other
    /// users may rename a directory above it, or replace it by a symbolic link.
    parent: OwnedFd,
    name: OsString,
}

impl Target {
    /// Finds the mount on `dir`. If no mount of parext4 is there, returns the path without symbolic
    /// links.
    pub fn find(dir: &Path) -> io::Result<Result<Self, PathBuf>> {
        let mounts = std::fs::read("/proc/self/mountinfo")?;
        // `components` drops a slash at the end, with which system calls would inspect the mounted
        // directory itself.
        let named: PathBuf = std::path::absolute(dir)?.components().collect();
        let (path, mount) = match mount_on(&mounts, &named) {
            Some(mount) => (named, Some(mount)),
            None => {
                let path = named.canonicalize()?;
                let mount = mount_on(&mounts, &path);
                (path, mount)
            }
        };
        let Some(mount) = mount else { return Ok(Err(path)) };
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Err(path)) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = open(above, flags, Mode::empty())?;
        if std::fs::read_link(path_of(&parent))? != above {
            return Err(io::Error::other("the path has changed"));
        }
        let name = name.to_owned();
        Ok(Ok(Self { path, mount, parent, name }))
    }

    /// Returns true if the server of the mount belongs to the calling user, so that it can be
    /// trusted. The kernel records the user that has mounted a FUSE file system; the name and the
    /// type of the mount prove nothing. `connection` is the connection of the mount, if the caller
    /// may see it.
    pub fn is_of_caller(&self, connection: Option<&Connection>) -> bool {
        let caller = rustix::process::geteuid().as_raw();
        // For a mount of another user namespace, the mount names the user by the number in that
        // namespace, and the connection by the number in the caller's.
        let is_same = connection.is_none_or(|connection| connection.user().is_ok_and(|user| user == caller));
        self.mount.user == Some(caller) && is_same
    }

    /// Returns true if no other mount covers this one now.
    pub fn is_topmost(&self) -> bool {
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        mount_on(&mounts, &self.path).is_some_and(|mount| mount == self.mount)
    }

    /// Calls umount2(2).
    pub fn unmount(&self, detach: bool) -> rustix::io::Result<()> {
        let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        unmount(self.place(), flags | UnmountFlags::NOFOLLOW)
    }

    /// Returns a copy of the mount that is attached to no directory, and keeps the volume mounted
    /// until it is closed. `None` if the caller lacks the privilege for it.
    pub fn copy(&self) -> Option<OwnedFd> {
        open_tree(CWD, self.place(), OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC).ok()
    }

    /// Returns true if `copy` is a [copy](Self::copy) of this mount: another user may have mounted
    /// over the directory in between. Sends no request to a server.
    pub fn is_copied_by(&self, copy: &OwnedFd) -> bool {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let facts = statx(copy, "", flags, StatxFlags::empty());
        facts.is_ok_and(|facts| facts.stx_dev_minor.to_string() == self.mount.connection())
    }

    /// Returns the path of the mount point, through the directory that was found.
    fn place(&self) -> PathBuf {
        path_of(&self.parent).join(&self.name)
    }
}

/// Returns a path by which a system call reaches an open file.
pub(super) fn path_of(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
