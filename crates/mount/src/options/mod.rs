//! The options of a mount, as `-o` and fstab have them.

mod accepted;
mod error;
mod parse;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use parext4::{OnError, Policy, ResearchOptions, VolumeOptions};

pub use error::OptionError;

/// When a read changes the time of last access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// Never.
    Never,
    /// If the file has changed since it was read last, or that was a day ago.
    #[default]
    Relative,
    /// Always.
    Strict,
}

/// Which page cache serves the reads and writes of programs. In every mode, files opened with `O_DIRECT` bypass the
/// kernel's page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// The kernel's page cache serves reads. Each write(2) is a request to the server, which stores the data in the
    /// volume's page cache, so write(2) returns `ENOSPC` and `EIO` as on the kernel's ext4.
    #[default]
    Kernel,
    /// The kernel's page cache serves reads and takes writes; the kernel sends the data to the server later. Small
    /// writes are several times as fast, but write(2) succeeds on a full volume: fsync(2) or close(2) reports the loss.
    Writeback,
    /// The volume's page cache serves reads and writes: each read(2) and write(2) is a request to the server, and
    /// threads share a file by byte range.
    Direct,
}

/// How a volume is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Change nothing on the device.
    pub read_only: bool,
    /// Let other users in; the permissions say what they may do.
    pub allow_other: bool,
    /// Where the volume begins in the image, in bytes.
    pub offset: u64,
    /// When reads change the time of last access.
    pub atime: Atime,
    /// Whether reads of directories change their times of last access.
    pub diratime: bool,
    /// How long a change may wait for its commit.
    pub commit: Duration,
    /// Who keeps contents in memory.
    pub cache: Cache,
    /// The budget of inodes, directories and other metadata in memory, in bytes; `None`: by the memory of the machine.
    pub metadata_cache: Option<usize>,
    /// Budget of the volume's own page cache, in bytes, if not the library's default.
    pub page_cache: Option<u64>,
    /// Threads that take requests from the kernel.
    pub threads: usize,
    /// Which operations on one file may go on at once.
    pub policy: Policy,
    /// Heed set-ID bits.
    pub suid: bool,
    /// Heed device files.
    pub dev: bool,
    /// Let programs be run.
    pub exec: bool,
    /// Make every change durable before it returns.
    pub sync: bool,
    /// Make every change of a directory durable before it returns.
    pub dirsync: bool,
    /// Whose all files are shown to be, and what is made is; nobody is given another file then.
    pub uid: Option<u32>,
    /// As `uid`, of the group.
    pub gid: Option<u32>,
    /// Let mounts of the volume map users and groups (`mount_setattr(2)` with `MOUNT_ATTR_IDMAP`).
    pub idmap: bool,
    /// A new inode is of the group of its directory, not of the caller's.
    pub group_of_directory: bool,
    /// The size of the volume, as statfs(2) tells it, has the file system's own blocks in it.
    pub minix_df: bool,
    /// What the mount is called in lists of mounts; `None`: the path of the image.
    pub fsname: Option<String>,
    /// Change a mount that exists. The command line program acts on it; a new mount ignores it.
    pub remount: bool,
    /// Use the journal, and replay it if it needs that; else a volume whose journal needs it can only be read.
    pub recover: bool,
    /// What happens when the volume turns out to be corrupt; `None`: as its superblock says.
    pub on_error: Option<OnError>,
    /// Who may use the reserved blocks beside root; `None`: as the superblock says.
    pub resuid: Option<u32>,
    /// As `resuid`, by the group.
    pub resgid: Option<u32>,
    /// Note why operations on files wait for each other.
    pub explain: bool,
    /// Where a server in the background writes what goes wrong. For the program: the mount itself opens nothing.
    pub log: Option<PathBuf>,
}

impl Default for MountOptions {
    /// As without `-o`. What an image has of set-ID bits and device files is not trusted.
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: false,
            offset: 0,
            atime: Atime::default(),
            diratime: true,
            commit: COMMIT,
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
            group_of_directory: false,
            minix_df: false,
            fsname: None,
            remount: false,
            recover: true,
            on_error: None,
            resuid: None,
            resgid: None,
            explain: false,
            log: None,
        }
    }
}

/// As the kernel's ext4.
const COMMIT: Duration = Duration::from_secs(5);
/// More gain nothing: one takes requests while the others work.
const MOST_THREADS: usize = 64;

fn default_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * processors).clamp(4, MOST_THREADS)
}

impl MountOptions {
    /// How to open the volume.
    #[must_use]
    pub fn open_options(&self) -> VolumeOptions {
        let mut options = VolumeOptions::new()
            .read_only(self.read_only)
            .recover(self.recover)
            .commit_interval(self.commit)
            .explain(self.explain)
            .research(ResearchOptions::new().policy(self.policy));
        options.metadata_cache_bytes = self.metadata_cache.unwrap_or(options.metadata_cache_bytes);
        options.cache_bytes = self.page_cache.unwrap_or(options.cache_bytes);
        options
    }
}
