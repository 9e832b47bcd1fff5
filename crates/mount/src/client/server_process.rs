//! The process that serves a mount, and the end of its hold on the image.
//!
//! This module trusts only the kernel: `/proc/PID/fdinfo` names the FUSE connection of each file of
//! `/dev/fuse`, and the locks of each file. A process chooses its own command line and name, and
//! the path of an image may lead to another file by now.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};

use super::elsewhere::{SEARCHES_FOR, all_processes};
use super::process_end::ProcessEnd;
use super::target::path_of;

/// Time between the first two checks whether the server has closed its image; it grows up to
/// [`LONGEST_INTERVAL`].
const INTERVAL: Duration = Duration::from_millis(2);
const LONGEST_INTERVAL: Duration = Duration::from_millis(200);

/// A process that serves a mount.
#[derive(Debug)]
pub(super) struct ServerProcess {
    pub pid: u32,
    end: ProcessEnd,
    image: Option<OpenImage>,
}

/// An image that a server has open.
#[derive(Debug)]
struct OpenImage {
    /// The server's descriptor.
    descriptor: PathBuf,
    file: File,
    inode: u64,
}

impl ServerProcess {
    /// Returns the process `pid`, which claims to serve a connection, if the kernel confirms that.
    /// `image` is the path of the image that the process names.
    pub fn confirm(pid: u32, connection: &str, image: &Path) -> Option<Self> {
        // The handle is opened first: while its process has not ended, no other process gets the
        // number.
        let end = ProcessEnd::of(pid)?;
        let is_server =
            serves(pid, connection, Instant::now() + SEARCHES_FOR) && !end.happens_within(Duration::ZERO);
        is_server.then(|| Self { pid, end, image: OpenImage::of(pid, image) })
    }

    /// Finds the server of a mount of another user among the processes of that user, within
    /// [`SEARCHES_FOR`]. Opens no file that the server names.
    pub fn find(user: u32, connection: &str) -> Option<Self> {
        let is_users =
            |pid: &u32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == user);
        let deadline = Instant::now() + SEARCHES_FOR;
        let server = |pid| {
            let end = ProcessEnd::of(pid)?;
            serves(pid, connection, deadline).then_some(Self { pid, end, image: None })
        };
        let processes = all_processes().into_iter().take_while(|_| Instant::now() < deadline);
        processes.filter(is_users).find_map(server)
    }

    /// Blocks until the process has ended or has released its lock of the image, for at most
    /// `time`. Returns false if neither has happened.
    pub fn has_closed_within(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let mut interval = INTERVAL;
        loop {
            if self.end.happens_within(interval.min(time)) || self.has_released_image() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            interval = (interval * 2).min(LONGEST_INTERVAL);
        }
    }

    /// Blocks until the process has ended, for at most `time`.
    pub fn ends_within(&self, time: Duration) -> bool {
        self.end.happens_within(time)
    }

    /// Returns a path by which the caller can open the image that the server had open, even if the
    /// image's own path leads to another file.
    pub fn image(&self) -> Option<PathBuf> {
        Some(path_of(&self.image.as_ref()?.file))
    }

    fn has_released_image(&self) -> bool {
        self.image.as_ref().is_some_and(|image| !image.is_locked())
    }
}

impl OpenImage {
    /// Finds the image of a server: the file that it has locked. If it has locked several, such as
    /// a journal on a device of its own, returns the one with the path `path`.
    fn of(pid: u32, path: &Path) -> Option<Self> {
        let mut locked: Vec<_> =
            descriptors(pid).filter(|descriptor| !locks(descriptor).is_empty()).collect();
        locked.sort_by_key(|descriptor| fs::read_link(descriptor).is_ok_and(|link| link != path));
        locked.into_iter().find_map(|descriptor| Self::open(descriptor).ok())
    }

    fn open(descriptor: PathBuf) -> io::Result<Self> {
        // A descriptor leads to its file, even if the path names another file by now.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(open(&descriptor, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        if !metadata.is_file() && !metadata.file_type().is_block_device() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self { descriptor, inode: metadata.ino(), file })
    }

    fn is_locked(&self) -> bool {
        let inode = self.inode.to_string();
        let is_same = |lock: &String| {
            // The field is MAJOR:MINOR:INODE. On some file systems the device has another number in
            // stat(2).
            lock.split_ascii_whitespace()
                .any(|field| field.rsplit_once(':').is_some_and(|(_, ino)| ino == inode))
        };
        locks(&self.descriptor).iter().any(is_same)
    }
}

/// Returns the paths of the descriptors of a process.
fn descriptors(pid: u32) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Returns the kernel's description of a descriptor.
fn facts(descriptor: &Path) -> Option<String> {
    /// Limit of the bytes of a description that are read. The relevant lines come first, or are
    /// few. A process can make the kernel list any number of locks and watches.
    const MAX_FACTS: u64 = 64 << 10;
    let process = descriptor.parent()?.parent()?;
    let file = File::open(process.join("fdinfo").join(descriptor.file_name()?)).ok()?;
    let mut facts = Vec::new();
    file.take(MAX_FACTS).read_to_end(&mut facts).ok()?;
    Some(String::from_utf8_lossy(&facts).into_owned())
}

/// Returns the flock(2) locks that a descriptor holds.
fn locks(descriptor: &Path) -> Vec<String> {
    let facts = facts(descriptor).unwrap_or_default();
    let locks = facts.lines().filter_map(|line| line.strip_prefix("lock:"));
    locks.filter(|lock| lock.contains(" FLOCK ")).map(str::to_owned).collect()
}

/// Returns true if a process has a file of the connection open. Older kernels do not name the
/// connection of a file; then any file of `/dev/fuse` counts. Searches until `deadline`.
fn serves(pid: u32, connection: &str, deadline: Instant) -> bool {
    descriptors(pid).take_while(|_| Instant::now() < deadline).any(|descriptor| {
        if !fs::read_link(&descriptor).is_ok_and(|file| file.ends_with("fuse")) {
            return false;
        }
        let facts = facts(&descriptor).unwrap_or_default();
        match facts.lines().find_map(|line| line.strip_prefix("fuse_connection:")) {
            Some(number) => number.trim() == connection,
            None => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locked_file_of_a_process_is_its_image_until_it_is_unlocked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let find = || OpenImage::of(std::process::id(), file.path()).filter(|image| image.is_of(file.path()));
        assert!(find().is_none());
        file.as_file().lock_shared().unwrap();
        let image = find().unwrap();
        assert!(image.is_locked());
        file.as_file().unlock().unwrap();
        assert!(!image.is_locked());
    }

    impl OpenImage {
        fn is_of(&self, path: &Path) -> bool {
            path.metadata().unwrap().ino() == self.inode
        }
    }

    #[test]
    fn a_process_that_serves_nothing_is_not_confirmed() {
        assert!(ServerProcess::confirm(std::process::id(), "4294967295", Path::new("/image")).is_none());
        assert!(ServerProcess::find(rustix::process::geteuid().as_raw(), "4294967295").is_none());
    }
}
