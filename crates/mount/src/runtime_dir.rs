//! The directory for the files of running servers: logs, and the claims of standbys. Only its owner can enter it, so no other user can
//! lock, read or replace what is in it.

use std::env;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Longest name of a file that is made of a path, in bytes.
const MAX_NAME: usize = 180;

/// Returns the directory, and makes it if necessary.
///
/// # Errors
/// If none of the places for it can be used.
pub fn make() -> io::Result<PathBuf> {
    let mut error = None;
    for dir in places() {
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(cause) if cause.kind() != ErrorKind::AlreadyExists => error = Some(cause),
            _ if is_private(&dir) => return Ok(dir),
            _ => error = Some(io::Error::other(format!("{}: other users can enter it", dir.display()))),
        }
    }
    Err(error.unwrap_or_else(|| ErrorKind::NotFound.into()))
}

/// Returns the places that exist, with a file name for `path`: an earlier process may have chosen another place.
pub(crate) fn files_of<'a>(path: &'a Path, suffix: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    places().into_iter().filter(|dir| is_private(dir)).map(move |dir| dir.join(file_name(path, suffix)))
}

/// Returns the name of a file for a path, such as `mnt-data.log` for `/mnt/data`.
#[must_use]
pub fn file_name(path: &Path, suffix: &str) -> String {
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
    let mut name = String::new();
    for byte in bytes {
        match byte {
            b'/' => name.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' => name.push(char::from(*byte)),
            // As systemd-escape(1) does.
            _ => name.push_str(&format!("\\x{byte:02x}")),
        }
    }
    // The end of a long path differs more often than its start.
    name.replace_range(..name.len().saturating_sub(MAX_NAME), "");
    name + suffix
}

/// Returns where the directory may be, the best place first.
fn places() -> Vec<PathBuf> {
    let user = rustix::process::geteuid();
    let of_user = if user.is_root() {
        Some("/run/parext4".into())
    } else {
        env::var_os("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())
            .map(|dir| dir.join("parext4"))
    };
    of_user.into_iter().chain([format!("/tmp/parext4-{}", user.as_raw()).into()]).collect()
}

/// Returns true if `dir` is a directory that belongs to the calling user, and that no other user can enter.
fn is_private(dir: &Path) -> bool {
    let Ok(metadata) = fs::symlink_metadata(dir) else { return false };
    metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o077 == 0
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn names_are_made_of_paths() {
        assert_eq!(file_name(Path::new("/mnt/my data"), ".log"), "mnt-my\\x20data.log");
        assert_ne!(file_name(Path::new("/a-b"), ""), file_name(Path::new("/a/b"), ""));
        let long = file_name(Path::new(&"/x".repeat(1000)), ".log");
        assert!(long.len() <= 255 && long.ends_with("-x.log"), "{long}");
    }

    #[test]
    fn a_directory_of_others_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, expected) in [(0o755, false), (0o710, false), (0o700, true)] {
            fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_private(dir.path()), expected, "{mode:o}");
        }
        let link = dir.path().join("link");
        symlink(dir.path(), &link).unwrap();
        assert!(!is_private(&link) && !is_private(&dir.path().join("missing")));
    }
}
