//! The options of a mount, as `-o` of mount(8) and fstab(5) spell them.

mod accepted;
mod error;
#[cfg(test)]
mod keywords;
mod parse;
mod setters;
mod text;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use parext4::{OnError, Policy, QuotaKinds, ResearchOptions, VolumeOptions};

pub use error::OptionError;

/// The condition under which a read updates the time of last access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Atime {
    /// Reads never update it.
    Never,
    /// Reads update it if the file has changed since the last access, or that access was a day ago.
    #[default]
    Relative,
    /// Reads always update it.
    Strict,
}

/// The page cache that serves the reads and writes of programs. In every mode, files opened with
/// `O_DIRECT` bypass the kernel's page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cache {
    /// The kernel's page cache serves reads. Each write(2) is a request to the server, which stores
    /// the data in the volume's page cache, so write(2) returns `ENOSPC` and `EIO` as on the
    /// kernel's ext4.
    #[default]
    Kernel,
    /// The kernel's page cache serves reads and stores writes; the kernel sends the data to the
    /// server later. Small writes are several times as fast, but write(2) succeeds on a full
    /// volume: fsync(2) or close(2) reports the loss.
    Writeback,
    /// The volume's page cache serves reads and writes: each read(2) and write(2) is a request to
    /// the server, and threads share a file by byte range.
    Direct,
}

/// The options of a mount. [`add`](Self::add) parses lists of options; a method of each option's
/// name sets that option.
///
/// ```
/// use parext4_mount::{Atime, MountOptions};
///
/// # fn main() -> Result<(), parext4_mount::OptionError> {
/// let mut options = MountOptions::new().atime(Atime::Never).threads(4);
/// options.add("ro,allow_other")?;
/// assert!(options.read_only && options.allow_other && options.threads == 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountOptions {
    /// Whether the mount leaves the volume unchanged.
    pub read_only: bool,
    /// Whether users other than the one that mounts have access, as file permissions allow.
    pub allow_other: bool,
    /// Offset of the volume in the image, in bytes.
    pub offset: u64,
    /// Number of the partition of the image that holds the volume. Only the command line program
    /// uses it; other programs set `offset`.
    pub partition: Option<NonZeroU32>,
    /// The condition under which reads update the time of last access.
    pub atime: Atime,
    /// Whether reads of directories update their times of last access.
    pub diratime: bool,
    /// The longest time from a change to its commit.
    pub commit: Duration,
    /// The page cache that serves programs.
    pub cache: Cache,
    /// Memory budget of inodes, directories and other metadata, in bytes. `None` derives it from
    /// the machine's memory.
    pub metadata_cache: Option<usize>,
    /// Memory budget of the volume's own page cache, in bytes. `None` selects the engine's default.
    pub page_cache: Option<u64>,
    /// Number of threads that read requests from the kernel.
    pub threads: usize,
    /// The rule which operations on one file may run at the same time.
    pub policy: Policy,
    /// Whether set-ID bits take effect.
    pub suid: bool,
    /// Whether device files can be opened.
    pub dev: bool,
    /// Whether programs can be executed.
    pub exec: bool,
    /// Whether every change is durable before the call returns.
    pub sync: bool,
    /// Whether every change of a directory is durable before the call returns.
    pub dirsync: bool,
    /// The owner that all files show and new files get. With it, chown(2) to another owner fails.
    pub uid: Option<u32>,
    /// Like `uid`, for the group.
    pub gid: Option<u32>,
    /// Whether mounts of the volume can map users and groups (mount_setattr(2) with
    /// `MOUNT_ATTR_IDMAP`).
    pub idmap: bool,
    /// Whether a new inode gets the group of its directory instead of the caller's. `None` selects
    /// the setting of the superblock.
    pub group_of_directory: Option<bool>,
    /// Whether statfs(2) counts the file system's own blocks in the size of the volume.
    pub minix_df: bool,
    /// Name of the mount in lists of mounts. `None` selects the path of the image.
    pub fsname: Option<String>,
    /// Whether to change an existing mount. Only the command line program uses it; a new mount
    /// ignores it.
    pub remount: bool,
    /// Whether to mount on a directory that holds files, which the mount then hides. Only the
    /// command line program uses it; other programs may mount on any directory.
    pub nonempty: bool,
    /// Whether to wait until the volume's owner on another machine is gone before mounting. Only
    /// the command line program uses it.
    pub standby: bool,
    /// Whether to use the journal, and replay it if necessary. If false, a volume whose journal
    /// needs recovery can only be mounted read-only.
    pub recover: bool,
    /// The device with the journal, by a path or a URL, for a volume whose journal is on a device
    /// of its own. Only the command line program opens it; other programs set
    /// [`VolumeOptions::journal_device`](parext4::VolumeOptions).
    pub journal: Option<PathBuf>,
    /// Reaction to corruption. `None` selects the setting of the superblock.
    pub on_error: Option<OnError>,
    /// The user that may use the reserved blocks beside root. `None` selects the setting of the
    /// superblock.
    pub resuid: Option<u32>,
    /// Like `resuid`, for a group.
    pub resgid: Option<u32>,
    /// The quotas whose limits are enforced. None by default; usage is always counted.
    pub quotas: QuotaKinds,
    /// Whether to record why operations on files wait for each other.
    pub explain: bool,
    /// The log file of a server in the background. Only the command line program uses it.
    pub log: Option<PathBuf>,
}

impl Default for MountOptions {
    /// Returns the options of a mount without `-o`. Set-ID bits and device files of an image are
    /// not trusted.
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: false,
            offset: 0,
            partition: None,
            atime: Atime::default(),
            diratime: true,
            commit: DEFAULT_COMMIT,
            cache: Cache::default(),
            metadata_cache: None,
            page_cache: None,
            threads: default_threads(),
            policy: Policy::default(),
            suid: false,
            dev: false,
            exec: true,
            sync: false,
            dirsync: false,
            uid: None,
            gid: None,
            idmap: false,
            group_of_directory: None,
            minix_df: false,
            fsname: None,
            remount: false,
            nonempty: false,
            standby: false,
            recover: true,
            journal: None,
            on_error: None,
            resuid: None,
            resgid: None,
            quotas: QuotaKinds::default(),
            explain: false,
            log: None,
        }
    }
}

/// The default interval between commits, which is that of the kernel's ext4.
const DEFAULT_COMMIT: Duration = Duration::from_secs(5);
/// Limit of request threads. One thread reads requests while the others execute them, so more
/// threads gain nothing.
const MAX_THREADS: usize = 64;

fn default_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * processors).clamp(4, MAX_THREADS)
}

impl MountOptions {
    /// Returns true if the requests by which the kernel sets times reach the server. Requests for
    /// data that the kernel's own threads have written back come from root, and without
    /// `allow_other` only the owner's requests reach the server.
    pub(crate) fn receives_times(&self) -> bool {
        self.allow_other || rustix::process::geteuid().is_root()
    }

    /// Returns the page cache that serves programs. With `strictatime` each read is a request, as
    /// with `cache=direct`: a read that the kernel's pages answer does not update the time of last
    /// access.
    pub(crate) fn effective_cache(&self) -> Cache {
        if self.atime == Atime::Strict { Cache::Direct } else { self.cache }
    }

    /// Returns the options of a list, separated by commas, that a mount accepts but does not act
    /// on, with the reason for each. Leaves out the options for mount(8), systemd and other
    /// programs.
    pub fn without_effect(list: &str) -> impl Iterator<Item = (&str, &'static str)> {
        accepted::without_effect(list)
    }

    /// Returns the options with which the volume is opened.
    #[must_use]
    pub fn open_options(&self) -> VolumeOptions {
        let mut options = VolumeOptions::new()
            .read_only(self.read_only)
            .recover(self.recover)
            .commit_interval(self.commit)
            .delete_in_background(true)
            .explain(self.explain)
            .enforced_quotas(self.quotas)
            .research(ResearchOptions::new().policy(self.policy));
        options.metadata_cache_bytes = self.metadata_cache.unwrap_or(options.metadata_cache_bytes);
        options.cache_bytes = self.page_cache.unwrap_or(options.cache_bytes);
        options
    }
}
