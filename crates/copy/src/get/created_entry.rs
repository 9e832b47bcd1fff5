//! Sets the attributes of a copy by its descriptor, so that no other file can get them.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use crate::error::{Result, ensure};
use parext4::{FileType, Metadata};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, fremovexattr,
    fsetxattr, fstat, futimens, linkat, makedev, openat, readlinkat, removexattr, setxattr, utimensat,
};
use rustix::io::Errno;

use super::confined_path::{Dir, Identity};

/// A file that this command has made, or a directory that was there.
pub enum CreatedEntry<'a> {
    /// An open file.
    Open(&'a File),
    /// A file that cannot be opened, or that its permissions forbid to open: only its name is
    /// resolved (`O_PATH`).
    Resolved(OwnedFd),
}

impl CreatedEntry<'_> {
    /// Resolves a name. Does not follow a symbolic link.
    pub fn resolve(dir: &Dir, name: &OsStr) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self::Resolved(openat(&**dir, name, flags, Mode::empty())?))
    }

    /// Fails if this is not the file that was made: another kind of file, another device or another
    /// target of a symbolic link, a file that also has another name, or for root (`is_root`) a file
    /// that root does not own.
    pub fn expect(&self, metadata: &Metadata, target: Option<&OsStr>, is_root: bool) -> Result<()> {
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
        let is_owner = !is_root || found.st_uid == 0;
        let has_target = match target {
            Some(target) => {
                kind.is_symlink() && readlinkat(self.fd(), "", Vec::new())?.as_bytes() == target.as_bytes()
            }
            None => true,
        };
        ensure!(
            is_same && is_owner && has_target && found.st_nlink == 1 && found.st_rdev == device,
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

    /// Returns a path of the file itself, also of a symbolic link, for calls that accept no
    /// descriptor of this kind.
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

    /// Removes the access control lists that the file has inherited from its directory.
    pub fn remove_inherited_lists(&self, kind: FileType) -> Result<()> {
        let names: &[&str] = match kind {
            FileType::Directory => &["system.posix_acl_access", "system.posix_acl_default"],
            FileType::Symlink => &[],
            _ => &["system.posix_acl_access"],
        };
        for &name in names {
            let removed = match self {
                Self::Open(file) => fremovexattr(file, name),
                Self::Resolved(_) => removexattr(self.path(), name),
            };
            match removed {
                Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};
    use std::sync::Arc;

    use super::*;

    /// What another user may put in the place of a symbolic link or a fifo that was made.
    #[test]
    fn files_that_were_not_made_are_not_used() {
        let volume = testkit::volume::scratch();
        let link = volume.symlink("/link", "target").unwrap().metadata();
        let dir = tempfile::tempdir().unwrap();
        let open: Dir = Arc::new(fs::File::open(dir.path()).unwrap().into());
        let name = OsStr::new("name");
        let path = dir.path().join(name);
        let expect = |is_root| {
            let entry = CreatedEntry::resolve(&open, name).unwrap();
            entry.expect(&link, Some(OsStr::new("target")), is_root).is_ok()
        };
        symlink("target", &path).unwrap();
        assert!(expect(false));
        if lchown(&path, Some(0), None).is_ok() {
            assert!(expect(true));
            lchown(&path, Some(1000), None).unwrap();
            assert!(!expect(true), "a link of another owner");
        } else {
            testkit::skipped("only root changes owners");
        }
        fs::remove_file(&path).unwrap();
        symlink("elsewhere", &path).unwrap();
        assert!(!expect(false), "another target");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "target").unwrap();
        assert!(!expect(false), "another kind of file");
    }
}
