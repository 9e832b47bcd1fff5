//! Sets the attributes of a copy by its descriptor, so that no other file can get them.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Result, ensure};
use parext4::{FileType, Metadata};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, fsetxattr, fstat,
    futimens, linkat, makedev, openat, setxattr, utimensat,
};

use super::outside::{Dir, Identity};

/// A file that this command has made.
pub enum Made<'a> {
    /// An open file.
    Open(&'a File),
    /// A file that cannot be opened, or that its permissions forbid to open: only its name is resolved (`O_PATH`).
    Resolved(OwnedFd),
}

impl Made<'_> {
    /// Resolves a name. Does not follow a symbolic link.
    pub fn resolve(dir: &Dir, name: &OsStr) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self::Resolved(openat(&**dir, name, flags, Mode::empty())?))
    }

    /// Fails if this is another kind of file than the one that was made, or a file that also has another name.
    pub fn expect(&self, metadata: &Metadata) -> Result<()> {
        let found = fstat(self.fd())?;
        let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
        let is_same = match metadata.file_type {
            FileType::Symlink => kind.is_symlink(),
            FileType::Fifo => kind.is_fifo(),
            FileType::Socket => kind.is_socket(),
            FileType::CharDevice => kind.is_char_device(),
            FileType::BlockDevice => kind.is_block_device(),
            FileType::Regular => kind.is_file(),
            FileType::Directory => kind.is_dir(),
        };
        let device = metadata.rdev.map_or(found.st_rdev, |(major, minor)| makedev(major, minor));
        ensure!(
            is_same && found.st_nlink == 1 && found.st_rdev == device,
            "was replaced while it was copied"
        );
        Ok(())
    }

    /// Returns the identity of the file.
    pub fn identity(&self) -> Result<Identity> {
        Identity::of(self.fd())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Open(file) => file.as_fd(),
            Self::Resolved(fd) => fd.as_fd(),
        }
    }

    /// Returns a path of the file itself, also of a symbolic link, for calls that accept no descriptor of this kind.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd().as_raw_fd())
    }

    pub fn set_owner(&self, uid: u32, gid: u32) -> Result<()> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        match self {
            Self::Open(file) => fchown(file, uid, gid)?,
            Self::Resolved(fd) => chownat(fd, "", uid, gid, AtFlags::EMPTY_PATH)?,
        }
        Ok(())
    }

    pub fn set_xattr(&self, name: &OsStr, value: &[u8]) -> rustix::io::Result<()> {
        match self {
            Self::Open(file) => fsetxattr(file, name, value, XattrFlags::empty()),
            Self::Resolved(_) => setxattr(self.path(), name, value, XattrFlags::empty()),
        }
    }

    pub fn set_permissions(&self, mode: u32) -> Result<()> {
        match self {
            Self::Open(file) => fchmod(file, Mode::from_raw_mode(mode))?,
            Self::Resolved(_) => std::fs::set_permissions(self.path(), Permissions::from_mode(mode))?,
        }
        Ok(())
    }

    pub fn set_times(&self, times: &Timestamps) -> Result<()> {
        match self {
            Self::Open(file) => futimens(file, times)?,
            Self::Resolved(_) => utimensat(CWD, self.path(), times, AtFlags::empty())?,
        }
        Ok(())
    }

    /// Gives the file a further name; fails if there is one.
    pub fn link(&self, dir: &Dir, name: &OsStr) -> rustix::io::Result<()> {
        linkat(CWD, self.path(), &**dir, name, AtFlags::SYMLINK_FOLLOW)
    }
}
