//! The options of a mount, as `-o` and fstab have them.

mod parse;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use parext4::{OnError, OpenOptions, Policy};

pub use parse::OptionError;

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

/// Who keeps the contents of files in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// The kernel, with write-back. Files opened with `O_DIRECT` go past it.
    #[default]
    Kernel,
    /// The volume: every read and write comes to the server, and files are shared by range.
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
    /// How long a change may wait for its commit.
    pub commit: Duration,
    /// Who keeps contents in memory.
    pub cache: Cache,
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
    /// Replay a journal that needs it; else the volume can only be read.
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
            commit: COMMIT,
            cache: Cache::default(),
            threads: default_threads(),
            policy: Policy::default(),
            suid: false,
            dev: false,
            exec: true,
            sync: false,
            dirsync: false,
            uid: None,
            gid: None,
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
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions {
            read_only: self.read_only,
            recover: self.recover,
            commit_interval: Some(self.commit),
            policy: self.policy,
            explain: self.explain,
            ..OpenOptions::default()
        }
    }
}
