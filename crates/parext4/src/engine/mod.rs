//! The engine of an open volume: its device, geometry, health, caches, journal, allocator and table of inodes.
//!
//! Responsible for the parts that all operations need, for loading inodes, and for running changes in transactions
//! ([`Engine::transact`]). Not responsible for operations: modules above this one add their own to [`Engine`], and this one uses none of them.

mod block_watch;
mod commit_hooks;
mod commit_timer;
mod deletions;
mod departures;
mod engine_ref;
mod error_record;
mod idle_cache;
mod in_flight;
mod large_file;
mod lazy_times;
mod load;
mod orphans;
mod preallocation;
mod quota;
mod xattr_block;

// Its orders are visible to ThreadSanitizer, unlike those inside `std::sync::OnceLock`.
use once_cell::sync::OnceCell;
use parext4_device::Device;
use parext4_format::superblock::Superblock;

pub(crate) use block_watch::BlockWatch;
pub(crate) use commit_hooks::Hooks;
pub(crate) use commit_timer::CommitTimer;
pub(crate) use deletions::Deletions;
pub(crate) use departures::Departure;
pub(crate) use engine_ref::{EngineRef, UseCount};
pub(crate) use error_record::ErrorRecorder;
pub(crate) use idle_cache::IdleCache;
pub(crate) use in_flight::{Entered, InFlight};
pub(crate) use lazy_times::LazyTimes;
pub(crate) use orphans::{OrphanFile, Orphans};
pub(crate) use preallocation::Preallocated;

use crate::allocator::{Allocator, SuperCounts};
use crate::block_map::BlockMap;
use crate::clock::Clock;
use crate::dirty_files::DirtyFiles;
use crate::error::{Error, Result};
use crate::findings::ErrorPlace;
use crate::health::Health;
use crate::inode::{Inode, InodeCache};
use crate::journal::{Handle, Journal};
use crate::layout::Layout;
use crate::meta::MetaCache;
use crate::mmp::{MmpState, Protection};
use crate::page_cache::{PageCache, PageSize};
use crate::policy::{Policy, SplitAt};
use crate::quota::Quotas;
use crate::stats::VolumeUsage;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, Mutex};
use crate::write_count::WriteCount;

/// The parts of an open volume that all operations need.
#[derive(Debug)]
pub(crate) struct Engine {
    pub device: Arc<dyn Device>,
    pub layout: Arc<Layout>,
    /// As read at open. Its variable fields are in `allocator.counts()`.
    pub superblock: Arc<Superblock>,
    pub health: Arc<Health>,
    pub cache: Arc<MetaCache>,
    pub journal: Arc<Journal>,
    pub allocator: Arc<Allocator>,
    pub inodes: Arc<InodeCache>,
    pub orphans: Orphans,
    /// Orphans that a thread of the volume deletes.
    pub deletions: Deletions,
    /// Held while a directory moves from one parent to another.
    pub rename: Mutex<()>,
    /// The reason why the volume is read-only, if it is.
    pub read_only: Option<String>,
    /// Inodes with pending times, which the next transaction writes (H25).
    pub lazy: Arc<LazyTimes>,
    /// Inodes with preallocated blocks past the end of the file.
    pub preallocated: Preallocated,
    /// The page cache.
    pub pages: Arc<PageCache>,
    /// What a server does with files whose number of blocks has changed.
    pub block_watch: BlockWatch,
    /// Releases the memory of an idle page cache.
    pub idle_cache: IdleCache,
    /// Files with dirty pages.
    pub dirty: DirtyFiles,
    /// When unwritten extents are split.
    pub split_at: SplitAt,
    /// How operations on one file exclude each other.
    pub policy: Policy,
    /// The clock of all timestamps.
    pub clock: Clock,
    /// Counters of operations on file data.
    pub usage: VolumeUsage,
    /// Reads and writes of file data in flight.
    pub in_flight: InFlight,
    /// The result of closing the volume, with the text of the error. Held while the volume is being closed.
    pub closed: Mutex<Option<Result<(), Arc<str>>>>,
    /// Number of open I/O queues.
    pub queues: AtomicU32,
    pub generation: AtomicU32,
    pub users: UseCount,
    pub timer: OnceCell<CommitTimer>,
    /// The quota files, if the volume has them and may be changed.
    pub quotas: Option<Quotas>,
    /// Keeps other machines from writing to a volume with multi-mount protection.
    pub protection: Option<Protection>,
    /// The machine that has the volume open for writing, while this one only reads it.
    pub live: Option<MmpState>,
    /// Counts the bytes written to the device.
    pub written: Arc<WriteCount>,
    /// Records errors after the volume has stopped.
    pub recorder: Arc<ErrorRecorder>,
}

impl Engine {
    /// Returns an error if the volume may not be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_not_read_only()?;
        self.health.check()
    }

    /// Returns an error if the volume was opened read-only.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if the volume was opened read-only.
    pub(crate) fn check_not_read_only(&self) -> Result<()> {
        match &self.read_only {
            Some(why) => Err(Error::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }

    /// Returns true if the volume was opened read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.is_some()
    }

    /// Returns the inode's block map. Reads it from the device on first use.
    ///
    /// # Errors
    /// As [`BlockMap::load`].
    pub(crate) fn block_map<'a>(&self, inode: &'a Inode) -> Result<&'a BlockMap> {
        // A read-only volume cannot be damaged further, and the rest of the file can still be read.
        let block_map = inode.block_map(&self.layout, &self.cache, !self.is_read_only());
        block_map.map_err(|error| self.health.note(inode.ino(), error))
    }

    /// Runs `change` under a handle of `credits` blocks. Blocks until the journal has room. If `change` fails with a device error or
    /// corruption after a change, stops the volume (I8). Before any other error, `change` must have undone its changes.
    #[track_caller]
    pub(crate) fn transact<R>(
        &self,
        credits: u32,
        change: impl FnOnce(&Handle<'_>) -> Result<R>,
    ) -> Result<R> {
        self.check_writable()?;
        let handle = self.journal.begin(credits.min(self.journal.max_credits()))?;
        let result = change(&handle);
        // Before the handle ends: a commit may wait for that, and must not include an incomplete change.
        match result {
            Err(error @ (Error::Device { .. } | Error::Corrupt(_))) if handle.has_changes() => {
                Err(self.health.stop(error))
            }
            Err(error) => Err(self.health.note(ErrorPlace::default(), error)),
            done => done,
        }
    }

    /// Returns the generation number for a new inode.
    pub(crate) fn next_generation(&self) -> u32 {
        self.generation.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the counters of the superblock.
    pub(crate) fn counts(&self) -> &Arc<SuperCounts> {
        self.allocator.counts()
    }

    /// Returns the maximum size of a file in bytes, which depends on the format of its block map.
    pub(crate) fn max_size(&self, inode: &Inode) -> u64 {
        let blocks =
            if inode.has_extents() { self.layout.max_file_blocks } else { self.layout.max_indirect_blocks };
        blocks * self.block_size()
    }

    /// Returns the block size in bytes.
    pub(crate) fn block_size(&self) -> u64 {
        u64::from(self.layout.block_size.bytes())
    }

    /// Returns the size of a page of the cache.
    #[inline]
    pub(crate) fn page_size(&self) -> PageSize {
        self.pages.page_size()
    }
}
