//! Mounts as the kernel lists them in /proc/self/mountinfo.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The type that mounts of parext4 have.
const OWN_TYPE: &str = "fuse.parext4";

/// A mount: a line of /proc/self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mount {
    /// The kernel's number of the mount, and of the mount that it is mounted on.
    id: u64,
    parent: u64,
    /// The kernel's device number of the mounted file system, `MAJOR:MINOR`.
    pub device: String,
    /// The directory or file of the mounted file system that is the root of the mount: `/`, except
    /// for a bind mount.
    pub root: PathBuf,
    /// The directory or file on which the file system is mounted.
    pub dir: PathBuf,
    /// The type of the file system, such as `ext4` or `fuse.parext4`.
    pub fs_type: OsString,
    /// The mounted block device, or for parext4 the image, unless an option gives another name.
    pub source: PathBuf,
    /// The user that has mounted a FUSE file system, as the kernel has recorded it.
    pub user: Option<u32>,
}

impl Mount {
    /// Returns true if the type of the mount is that of parext4. Any user can choose the type of a
    /// FUSE mount.
    pub(crate) fn is_own(&self) -> bool {
        self.fs_type == OWN_TYPE
    }

    /// Returns the kernel's number of the FUSE connection.
    pub(crate) fn connection(&self) -> &str {
        self.device.split_once(':').map_or("", |(_, minor)| minor)
    }
}

/// Lists the mounts in the mount namespace of the calling process; a later one may hide an earlier
/// one.
///
/// # Errors
/// Fails if /proc is not mounted.
pub fn list() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?).collect())
}

/// Lists the mounts in the mount namespace of another process.
///
/// # Errors
/// `PermissionDenied` if the process belongs to another user. Another error if the process has
/// ended or is ending.
pub(crate) fn list_of(process: u32) -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read(format!("/proc/{process}/mountinfo"))?).collect())
}

/// Parses the lines of /proc/self/mountinfo.
fn parse(mounts: &[u8]) -> impl Iterator<Item = Mount> {
    mounts.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        let mut number = || str::from_utf8(fields.next()?).ok()?.parse().ok();
        let (id, parent) = (number()?, number()?);
        let device = str::from_utf8(fields.next()?).ok()?.to_owned();
        let (root, dir) = (unescape(fields.next()?).into(), unescape(fields.next()?).into());
        let mut after_options = fields.skip_while(|field| field != b"-").skip(1);
        let (fs_type, source) = (unescape(after_options.next()?), unescape(after_options.next()?).into());
        let user = after_options.next().and_then(user_of);
        Some(Mount { id, parent, device, root, dir, fs_type, source, user })
    })
}

/// Returns the user of a FUSE mount from the options of its superblock. FUSE writes its own options
/// last.
fn user_of(options: &[u8]) -> Option<u32> {
    let mut options = options.rsplit(|&byte| byte == b',');
    let value = options.find_map(|option| option.strip_prefix(b"user_id="))?;
    str::from_utf8(value).ok()?.parse().ok()
}

/// Returns the topmost mount on `dir`, if its type is that of parext4.
pub(crate) fn mount_on(mounts: &[u8], dir: &Path) -> Option<Mount> {
    let on_dir: Vec<_> = parse(mounts).filter(|mount| mount.dir == dir).collect();
    let is_covered = |mount: &Mount| on_dir.iter().any(|other| other.parent == mount.id);
    on_dir.iter().rfind(|mount| !is_covered(mount)).filter(|mount| mount.is_own()).cloned()
}

/// Returns the number of the FUSE connection of the mount on `dir`, a path without symbolic links.
pub(crate) fn connection_of(dir: &Path) -> Option<String> {
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    Some(mount_on(&mounts, dir)?.connection().to_owned())
}

/// Replaces the kernel's octal escapes in a field of a file below /proc, such as `\040` for a
/// space.
pub fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = (byte == b'\\').then(|| after.first_chunk::<3>()).flatten();
        let code = octal.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_is_found() {
        let mounts = b"22 1 8:1 / / rw - ext4 /dev/root rw\n\
            41 40 0:34 /sub /mnt/a\\040b rw,nosuid - fuse.parext4 /images/new\\134.img rw,user_id=7,group_id=8\n\
            40 22 0:33 / /mnt/a\\040b rw,nosuid shared:1 - fuse.parext4 /images/old.img rw\n\
            42 22 0:35 / /mnt/other rw - fuse.sshfs host: rw\n\
            43 22 0:36 / /mnt/covered rw - fuse.parext4 /images/x.img rw\n\
            44 43 0:37 / /mnt/covered rw - tmpfs none rw\n";
        let mount = |dir: &str| mount_on(mounts, Path::new(dir));
        let found = mount("/mnt/a b").unwrap();
        assert_eq!((found.connection(), found.source.to_str().unwrap()), ("34", "/images/new\\.img"));
        assert_eq!((found.root.to_str().unwrap(), found.user), ("/sub", Some(7)));
        assert_eq!(mount("/mnt/other"), None);
        assert_eq!(mount("/mnt/a"), None);
        assert_eq!(mount("/mnt/covered"), None, "another file system covers it");
    }

    #[test]
    fn a_name_of_a_mount_is_not_taken_for_its_user() {
        let line = b"40 22 0:33 / /m rw - fuse.parext4 a,user_id=0 rw,context=\"x,user_id=0\",user_id=1000,group_id=0\n";
        assert_eq!(mount_on(line, Path::new("/m")).unwrap().user, Some(1000));
        assert_eq!(user_of(b"rw"), None);
    }
}
