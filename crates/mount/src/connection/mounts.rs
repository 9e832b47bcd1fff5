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
    /// The kernel's device number of the mounted file system, `MAJOR:MINOR`.
    pub device: String,
    /// The directory or file that it is mounted on.
    pub dir: PathBuf,
    /// The type of the file system, such as `ext4` or `fuse.parext4`.
    pub fs_type: OsString,
    /// The mounted block device, or for parext4 the image, unless an option gives another name.
    pub source: PathBuf,
}

impl Mount {
    /// Returns true if parext4 serves the mount.
    pub(crate) fn is_own(&self) -> bool {
        self.fs_type == OWN_TYPE
    }
}

/// Lists the mounts in the mount namespace of the calling process; a later one may hide an earlier one.
///
/// # Errors
/// Fails if /proc is not mounted.
pub fn list() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?).collect())
}

/// Lists the mounts in the mount namespace of another process.
///
/// # Errors
/// `PermissionDenied` if the process belongs to another user. Another error if the process has ended or is ending.
pub(crate) fn list_of(process: u32) -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read(format!("/proc/{process}/mountinfo"))?).collect())
}

/// Parses the lines of /proc/self/mountinfo.
fn parse(mounts: &[u8]) -> impl DoubleEndedIterator<Item = Mount> {
    mounts.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        let device = str::from_utf8(fields.nth(2)?).ok()?.to_owned();
        let dir = fields.nth(1).map(unescape)?.into();
        let mut after_options = fields.skip_while(|field| field != b"-").skip(1).map(unescape);
        let (fs_type, source) = (after_options.next()?, after_options.next()?.into());
        Some(Mount { device, dir, fs_type, source })
    })
}

/// Returns the topmost parext4 mount on `dir`.
pub(crate) fn mount_on(mounts: &[u8], dir: &Path) -> Option<Mount> {
    parse(mounts).rev().find(|mount| mount.is_own() && mount.dir == dir)
}

/// Returns the number of the FUSE connection of the mount on `dir`, a path without symbolic links.
pub(crate) fn connection_of(dir: &Path) -> Option<String> {
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    let device = mount_on(&mounts, dir)?.device;
    device.split_once(':').map(|(_, minor)| minor.to_owned())
}

/// Replaces the kernel's octal escapes in a field of a file below /proc, such as `\040` for a space.
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
            40 22 0:33 / /mnt/a\\040b rw,nosuid shared:1 - fuse.parext4 /images/old.img rw\n\
            41 40 0:34 / /mnt/a\\040b rw,nosuid - fuse.parext4 /images/new\\134.img rw\n\
            42 22 0:35 / /mnt/other rw - fuse.sshfs host: rw\n";
        let mount = |dir: &str| mount_on(mounts, Path::new(dir));
        let found = mount("/mnt/a b").unwrap();
        assert_eq!((found.device.as_str(), found.source.to_str().unwrap()), ("0:34", "/images/new\\.img"));
        assert_eq!(mount("/mnt/other"), None);
        assert_eq!(mount("/mnt/a"), None);
    }
}
