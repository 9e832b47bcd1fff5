//! What the kernel says of our mounts, in the lines of /proc/self/mountinfo.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount of ours.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The kernel's number of it, `MAJOR:MINOR`.
    pub device: String,
    /// What is mounted: the image, unless an option names it otherwise.
    pub source: PathBuf,
}

/// What of ours is mounted on `dir`; the last mount is on top.
pub(crate) fn mount_on(mounts: &[u8], dir: &Path) -> Option<Mount> {
    mounts.split(|&byte| byte == b'\n').rev().find_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        let device = str::from_utf8(fields.nth(2)?).ok()?.to_owned();
        let mounted_on = fields.nth(1).map(unescape)?;
        let mut behind = fields.skip_while(|field| field != b"-").skip(1);
        let ours = behind.next()? == b"fuse.parext4" && mounted_on == dir.as_os_str();
        ours.then(|| behind.next().map(|source| Mount { device, source: PathBuf::from(unescape(source)) }))?
    })
}

/// The number of the FUSE connection of what is mounted on `dir`, a path without links.
pub(crate) fn connection_of(dir: &Path) -> Option<String> {
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    let device = mount_on(&mounts, dir)?.device;
    device.split_once(':').map(|(_, minor)| minor.to_owned())
}

/// Undoes the kernel's escapes, `\040` for a space.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, behind)) = rest.split_first() {
        let octal = (byte == b'\\').then(|| behind.first_chunk::<3>()).flatten();
        let code = octal.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &behind[3..] } else { behind };
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn the_topmost_mount_is_found() {
        let mounts = b"22 1 8:1 / / rw - ext4 /dev/root rw\n\
            40 22 0:33 / /mnt/a\\040b rw,nosuid shared:1 - fuse.parext4 /images/old.img rw\n\
            41 40 0:34 / /mnt/a\\040b rw,nosuid - fuse.parext4 /images/new\\134.img rw\n\
            42 22 0:35 / /mnt/other rw - fuse.sshfs host: rw\n";
        let mount = |dir: &str| mount_on(mounts, Path::new(dir));
        let source = PathBuf::from(OsStr::from_bytes(b"/images/new\\.img"));
        assert_eq!(mount("/mnt/a b"), Some(Mount { device: "0:34".to_owned(), source }));
        assert_eq!(mount("/mnt/other"), None);
        assert_eq!(mount("/mnt/a"), None);
    }
}
