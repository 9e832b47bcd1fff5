//! The lock of an image. A server holds a flock(2) lock on its image until it has closed the image:
//! a shared lock if the volume is mounted read-only, else an exclusive one. umount(2) returns
//! before the server has closed the image, because the kernel does not wait for a FUSE server.
//!
//! `/proc/locks` lists the locks. It omits locks of processes outside the caller's PID namespace.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::connection::mounts;

/// The list of locks.
const LOCKS: &str = "/proc/locks";
/// Size of one read of the list, in bytes. The kernel returns at most one page for each read.
const READ_SIZE: usize = 4096;
/// Number of times that the list must lack a lock before the lock counts as released.
const READINGS: u32 = 3;

/// Returns true if a process that holds a lock on `image` is about to release it: a server whose
/// mount has ended, or a process that has ended. Returns false if `/proc` does not list such a
/// process.
#[must_use]
pub fn is_being_closed(image: &Path) -> bool {
    is_listed(|| holders(image).into_iter().any(|process| is_closing(process, image)))
}

/// Returns a process that holds a lock on `image`, if `/proc` lists one.
#[must_use]
pub fn lock_holder(image: &Path) -> Option<u32> {
    (0..READINGS).find_map(|_| holders(image).into_iter().next())
}

/// Returns true if one of [`READINGS`] readings of the list satisfies `found`. A reading may miss a
/// lock: see [`read_locks`].
fn is_listed(found: impl Fn() -> bool) -> bool {
    (0..READINGS).any(|_| found())
}

/// Returns the process of each lock on `image`.
fn holders(image: &Path) -> Vec<u32> {
    let Ok(image) = image.metadata() else { return Vec::new() };
    parse(&read_locks().unwrap_or_default(), image.ino())
}

/// Reads the list in as few calls as the kernel permits. Each call continues at the number of the
/// next lock, so if a lock is released between two calls, the second call skips a lock.
fn read_locks() -> io::Result<String> {
    let mut file = File::open(LOCKS)?;
    let mut locks = Vec::new();
    let mut part = vec![0; READ_SIZE];
    loop {
        match file.read(&mut part)? {
            0 => return String::from_utf8(locks).map_err(io::Error::other),
            len => locks.extend_from_slice(&part[..len]),
        }
    }
}

/// Parses `/proc/locks`. Compares only inode numbers: some file systems have another device number
/// there than in stat(2).
fn parse(locks: &str, inode: u64) -> Vec<u32> {
    let process = |line: &str| {
        // The fields are number, kind, ADVISORY, READ or WRITE, process, device and inode. A lock
        // that a process waits for has the kind `->`.
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_flock = fields.next()? == "FLOCK";
        let process = fields.nth(2)?.parse().ok()?;
        let (_, found) = fields.next()?.rsplit_once(':')?;
        (is_flock && found.parse() == Ok(inode)).then_some(process)
    };
    locks.lines().filter_map(process).collect()
}

/// Returns true if a process has ended, or if it is a server that has unmounted `image`.
fn is_closing(process: u32, image: &Path) -> bool {
    // Any user that may read the image can lock it, and can choose the name of the process.
    let is_trusted = |owner: u32| owner == 0 || owner == rustix::process::geteuid().as_raw();
    if fs::metadata(format!("/proc/{process}")).is_ok_and(|process| !is_trusted(process.uid())) {
        return false;
    }
    // The command line is empty after the end of the process.
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let arguments: Vec<&OsStr> = command.split(|&byte| byte == 0).map(OsStr::from_bytes).collect();
    let is_server = arguments.get(1).is_some_and(|command| *command == "mount");
    if !is_server {
        return command.is_empty();
    }
    let image = image.canonicalize().unwrap_or_else(|_| image.to_owned());
    match mounts::list_of(process) {
        Ok(mounts) => !mounts.iter().any(|mount| {
            // The source has another name with the option `fsname`.
            mount.is_own() && (mount.source == image || arguments.contains(&mount.dir.as_os_str()))
        }),
        // Another user's server is unknown; a process that is ending has no mounts.
        Err(error) => error.kind() != ErrorKind::PermissionDenied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locks_of_a_file_are_found_by_its_inode() {
        let locks = "1: FLOCK  ADVISORY  WRITE 9284 fe:00:3932 0 EOF\n\
            1: -> FLOCK  ADVISORY  READ 9300 fe:00:3932 0 EOF\n\
            2: POSIX  ADVISORY  READ 71 fe:00:3932 128 128\n\
            3: FLOCK  ADVISORY  READ 72 fe:00:39 0 EOF\n\
            4: FLOCK  ADVISORY  READ 73 00:2a:3932 0 EOF\n";
        assert_eq!(parse(locks, 3932), [9284, 73]);
        assert_eq!(parse(locks, 39), [72]);
        assert!(parse("", 39).is_empty());
    }

    #[test]
    fn a_lock_of_this_process_is_listed_until_it_is_released() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let is_listed = || is_listed(|| holders(file.path()).contains(&std::process::id()));
        assert!(!is_listed());
        file.as_file().lock_shared().unwrap();
        assert!(is_listed());
        assert!(!is_being_closed(file.path()), "this process is no server");
        file.as_file().unlock().unwrap();
        assert!(!is_listed());
    }
}
