//! Defines the options to open a volume.

use std::path::Path;
use std::time::Duration;

use parext4_device::{Device, DeviceOptions};
use parext4_format::quota::QuotaKinds;

use super::Volume;
use super::open_device::open_image;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::memory_limit;
use crate::mmp::MmpOptions;
use crate::policy::ResearchOptions;
use crate::sync::Arc;

/// Options to open a volume.
///
/// ```
/// use std::sync::Arc;
/// use parext4::{MemDevice, MkfsOptions, VolumeOptions, mkfs};
///
/// # fn main() -> Result<(), parext4::Error> {
/// let device = Arc::new(MemDevice::new(16 << 20));
/// mkfs(&*device, &MkfsOptions::new())?;
/// let volume = VolumeOptions::new().read_only(true).cache_bytes(64 << 20).open_device(device)?;
/// assert!(volume.read_dir("/")?.count() > 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VolumeOptions {
    /// Opens the volume without writing to the device, and replays a journal that needs recovery in
    /// memory. Off by default.
    pub read_only: bool,
    /// Uses the journal, and replays it if it needs recovery. On by default.
    ///
    /// If false, the open ignores the journal. A volume whose journal needs recovery can then only
    /// be opened with `read_only`: it lacks the changes that are only in the journal, and may be
    /// inconsistent. Any other volume is changed like a volume without a journal.
    pub recover: bool,
    /// The device with the journal, of a volume whose journal is on a device of its own. `None` by
    /// default.
    ///
    /// Such a volume can only be opened with it, except to read a volume that was closed cleanly.
    pub journal_device: Option<Arc<dyn Device>>,
    /// Budget of inodes, directories and other metadata in memory, in bytes. Entries in use may
    /// exceed it.
    ///
    /// The default is a 128th of the memory that the process may use, but at least 16 MiB and at
    /// most 1 GiB.
    pub metadata_cache_bytes: usize,
    /// Limit of file data in the page cache, in bytes. The cache allocates the memory when it needs
    /// it.
    ///
    /// The default is a quarter of the memory that the process may use, but at least 64 MiB. The
    /// process may use the memory of the machine, or of its control group if that is less.
    pub cache_bytes: u64,
    /// Time after its last use at which the page cache releases its memory to the system, except
    /// for dirty pages. The release may take up to twice as long. `None`: the cache keeps its
    /// memory. One minute by default.
    pub cache_idle: Option<Duration>,
    /// Limit of dirty bytes in the page cache. Writers above it must write back first. `None`, the
    /// default: 40 % of `cache_bytes`.
    pub dirty_limit_bytes: Option<u64>,
    /// Longest time between a change of metadata and its commit. `None`: only syncs, a full journal
    /// and closing commit. Five seconds by default.
    pub commit_interval: Option<Duration>,
    /// Longest time between a buffered write and its write-back. `None`: only syncs, the limit of
    /// dirty bytes and closing write back. Five seconds by default.
    pub write_back_interval: Option<Duration>,
    /// Deletes inodes that have neither names nor users in a thread of the volume. A thread that
    /// drops the last [`InodeRef`](crate::InodeRef) of a removed file then does not wait for the
    /// deletion, and the space of the file is free a moment later. Closing the volume executes all
    /// deletions; after a crash the next open does. Off by default: the thread that drops the last
    /// `InodeRef` deletes.
    ///
    /// For servers, in which one thread drops files for many users.
    pub delete_in_background: bool,
    /// Records why operations on files wait for each other, for [`Volume::explain`]. Off by
    /// default: every operation then acquires a lock of its file twice, which slows down threads
    /// that share one file.
    pub explain: bool,
    /// Fills the volume as mke2fs does from a directory: data may use all free blocks, writes in
    /// flight reserve no more blocks than they use, and directories get no index while fewer than
    /// 4096 blocks are free. Off by default: the last 2 % of the volume, at most 4096 clusters, are
    /// then for metadata only, and directories of more than one block get an index, as in the
    /// kernel.
    pub fill_completely: bool,
    /// The kinds of quotas whose limits are enforced. None by default; usage is always counted.
    pub enforced_quotas: QuotaKinds,
    /// The clock of all timestamps. The system's by default; a fixed time gives images that are the
    /// same each time.
    pub clock: Clock,
    /// Options of multi-mount protection, for volumes that have it.
    pub mmp: MmpOptions,
    /// Options for comparison and research. Ordinary programs keep their defaults.
    pub research: ResearchOptions,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            recover: true,
            journal_device: None,
            metadata_cache_bytes: default_metadata_cache(),
            cache_bytes: (memory_limit::memory() / 4).max(64 << 20),
            cache_idle: Some(Duration::from_mins(1)),
            dirty_limit_bytes: None,
            commit_interval: Some(Duration::from_secs(5)),
            write_back_interval: Some(Duration::from_secs(5)),
            delete_in_background: false,
            explain: false,
            fill_completely: false,
            enforced_quotas: QuotaKinds::default(),
            clock: Clock::system(),
            mmp: MmpOptions::new(),
            research: ResearchOptions::new(),
        }
    }
}

/// Returns the default of [`VolumeOptions::metadata_cache_bytes`].
fn default_metadata_cache() -> usize {
    let bytes = (memory_limit::memory() / 128).clamp(16 << 20, 1 << 30);
    usize::try_from(bytes).unwrap_or(64 << 20)
}

impl VolumeOptions {
    /// Returns the defaults: for reading and writing, with the journal.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`read_only`](field@Self::read_only).
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets [`enforced_quotas`](field@Self::enforced_quotas).
    #[must_use]
    pub fn enforced_quotas(mut self, enforced: QuotaKinds) -> Self {
        self.enforced_quotas = enforced;
        self
    }

    /// Sets [`recover`](field@Self::recover).
    #[must_use]
    pub fn recover(mut self, recover: bool) -> Self {
        self.recover = recover;
        self
    }

    /// Sets [`journal_device`](field@Self::journal_device).
    #[must_use]
    pub fn journal_device(mut self, device: impl Into<Option<Arc<dyn Device>>>) -> Self {
        self.journal_device = device.into();
        self
    }

    /// Sets [`metadata_cache_bytes`](field@Self::metadata_cache_bytes).
    #[must_use]
    pub fn metadata_cache_bytes(mut self, bytes: usize) -> Self {
        self.metadata_cache_bytes = bytes;
        self
    }

    /// Sets [`cache_bytes`](field@Self::cache_bytes).
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Sets [`cache_idle`](field@Self::cache_idle).
    #[must_use]
    pub fn cache_idle(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.cache_idle = time.into();
        self
    }

    /// Sets [`dirty_limit_bytes`](field@Self::dirty_limit_bytes).
    #[must_use]
    pub fn dirty_limit_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.dirty_limit_bytes = bytes.into();
        self
    }

    /// Sets [`commit_interval`](field@Self::commit_interval).
    #[must_use]
    pub fn commit_interval(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.commit_interval = time.into();
        self
    }

    /// Sets [`write_back_interval`](field@Self::write_back_interval).
    #[must_use]
    pub fn write_back_interval(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.write_back_interval = time.into();
        self
    }

    /// Sets [`delete_in_background`](field@Self::delete_in_background).
    #[must_use]
    pub fn delete_in_background(mut self, in_background: bool) -> Self {
        self.delete_in_background = in_background;
        self
    }

    /// Sets [`explain`](field@Self::explain).
    #[must_use]
    pub fn explain(mut self, explain: bool) -> Self {
        self.explain = explain;
        self
    }

    /// Sets [`fill_completely`](field@Self::fill_completely).
    #[must_use]
    pub fn fill_completely(mut self, fills: bool) -> Self {
        self.fill_completely = fills;
        self
    }

    /// Sets [`clock`](field@Self::clock).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use parext4::{Clock, MemDevice, MkfsOptions, VolumeOptions, mkfs};
    ///
    /// let device = Arc::new(MemDevice::new(16 << 20));
    /// mkfs(&*device, &MkfsOptions::new())?;
    /// let volume = VolumeOptions::new().clock(Clock::fixed(86_400)).open_device(device)?;
    /// volume.write("/file", "text")?;
    /// assert_eq!(volume.metadata("/file")?.mtime.seconds, 86_400);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets [`mmp`](field@Self::mmp).
    #[must_use]
    pub fn mmp(mut self, options: MmpOptions) -> Self {
        self.mmp = options;
        self
    }

    /// Sets [`research`](field@Self::research).
    #[must_use]
    pub fn research(mut self, options: ResearchOptions) -> Self {
        self.research = options;
        self
    }

    /// Opens the volume in an image file or on a block device, and locks the path: a reader
    /// excludes writers, a writer excludes readers and writers. I/O is direct where the device and
    /// the volume's block size allow it.
    ///
    /// # Errors
    /// [`Error::Device`] if the device cannot be opened or is in use; the errors of
    /// [`Volume::open_device`](Volume::open_device).
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let options = DeviceOptions::new().read_only(self.read_only);
        let device = open_image(path, &options).map_err(|e| Error::device("opening the device", e))?;
        self.open_device(device)
    }

    /// Opens the volume on `device`.
    ///
    /// # Errors
    /// The errors of [`Volume::open_device`].
    pub fn open_device(&self, device: Arc<dyn Device>) -> Result<Volume> {
        Volume::open_device(device, self)
    }
}
