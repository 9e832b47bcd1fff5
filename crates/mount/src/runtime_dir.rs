//! The directory for the files of running servers: logs, and the claims of standbys. Only its owner
//! can enter it, so no other user can lock, read or replace the files in it.

use std::env;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Length of the longest file name that is made of a path, in bytes.
const MAX_NAME: usize = 180;

/// Returns the directory. Creates it if necessary.
///
/// # Errors
/// If none of its possible places can be used.
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

/// Returns the paths of the file for `path` in all places that exist, because an earlier process
/// may have used another place.
pub(crate) fn files_of<'a>(path: &'a Path, suffix: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    places().into_iter().filter(|dir| is_private(dir)).map(move |dir| dir.join(file_name(path, suffix)))
}

/// Returns the name of a file for a path, such as `mnt-data.log` for `/mnt/data`. For a long path,
/// the name has the start of the path and a hash of all of it.
#[must_use]
pub fn file_name(path: &Path, suffix: &str) -> String {
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
    let mut name = String::new();
    for byte in bytes {
        match byte {
            b'/' => name.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' => name.push(char::from(*byte)),
            // Bytes are escaped as systemd-escape(1) does.
            _ => name.push_str(&format!("\\x{byte:02x}")),
        }
    }
    if name.len() > MAX_NAME {
        let hash = format!("~{:016x}", fnv_1a(bytes));
        name.truncate(MAX_NAME - hash.len());
        name += &hash;
    }
    name + suffix
}

/// Returns a hash that is the same in all versions of the program, because processes of several
/// versions find each other's files.
fn fnv_1a(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(BASIS, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// Returns the possible places of the directory, the best one first.
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

/// Returns true if `dir` is a directory that belongs to the calling user, and that no other user
/// can enter.
fn is_private(dir: &Path) -> bool {
    let Ok(metadata) = fs::symlink_metadata(dir) else { return false };
    metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o077 == 0
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn names_are_made_of_paths() {
        assert_eq!(file_name(Path::new("/mnt/my data"), ".log"), "mnt-my\\x20data.log");
        assert_ne!(file_name(Path::new("/a-b"), ""), file_name(Path::new("/a/b"), ""));
        assert_eq!(fnv_1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn the_names_of_long_paths_differ() {
        let (start, end) = ("/x".repeat(1000), "/y".repeat(1000));
        let paths = [&start, &format!("{start}/a"), &format!("/a{end}"), &end];
        let names = paths.map(|path| file_name(Path::new(path), ".log"));
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
        for (path, name) in paths.iter().zip(&names) {
            assert!(name.len() <= 255 && name.starts_with(&path[1..9].replace('/', "-")), "{name}");
            assert!(name.ends_with(".log"), "{name}");
        }
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
