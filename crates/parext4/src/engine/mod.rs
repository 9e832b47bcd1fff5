//! What all operations on an open volume need: its device, geometry, health, caches, journal, allocator and table of inodes.
//! Changes run in [`Engine::transact`]. Modules above this one add their own operations to [`Engine`]; this one uses none of
//! them.

mod commit_hooks;
mod commit_timer;
mod discard;
mod error_record;
mod idle_cache;
mod in_flight;
mod lazy_times;
mod orphans;
mod preallocation;
mod use_count;
mod xattr_block;

use std::sync::OnceLock;

use parext4_device::Device;
use parext4_format::superblock::Superblock;

pub(crate) use commit_hooks::Hooks;
pub(crate) use commit_timer::CommitTimer;
pub(crate) use error_record::ErrorRecorder;
pub(crate) use idle_cache::IdleCache;
pub(crate) use in_flight::{Entered, InFlight};
pub(crate) use lazy_times::LazyTimes;
pub(crate) use orphans::{OrphanFile, Orphans};
pub(crate) use preallocation::Preallocated;
pub(crate) use use_count::{Use, UseCount};

use crate::allocator::{Allocator, SuperCounts};
use crate::dirty_files::DirtyFiles;
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::findings::ErrorPlace;
use crate::health::Health;
use crate::inode::{Inode, InodeCache};
use crate::journal::{Handle, Journal};
use crate::layout::Layout;
use crate::meta::MetaCache;
use crate::page_cache::PageCache;
use crate::policy::{Policy, SplitAt};
use crate::stats::VolumeUsage;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, Mutex};

/// What all operations on an open volume need.
#[derive(Debug)]
pub(crate) struct Engine {
    pub device: Arc<dyn Device>,
    pub layout: Arc<Layout>,
    /// As read at open; what changes of it is in `allocator.counts()`.
    pub superblock: Arc<Superblock>,
    pub health: Arc<Health>,
    pub cache: Arc<MetaCache>,
    pub journal: Arc<Journal>,
    pub allocator: Arc<Allocator>,
    pub inodes: Arc<InodeCache>,
    pub orphans: Orphans,
    /// Held while a directory moves from one parent to another.
    pub rename: Mutex<()>,
    /// Why the volume may not be written, if so.
    pub read_only: Option<String>,
    /// Inodes whose timestamps wait to ride along with a transaction (H25).
    pub lazy: Arc<LazyTimes>,
    /// Inodes with blocks mapped ahead of their end.
    pub preallocated: Preallocated,
    /// File data in memory.
    pub pages: Arc<PageCache>,
    /// Gives the memory of idle file data back.
    pub idle_cache: IdleCache,
    /// Files with data that is in memory only.
    pub dirty: DirtyFiles,
    /// When unwritten extents are cut.
    pub split_at: SplitAt,
    /// How operations on one file keep out of each other's way.
    pub policy: Policy,
    /// What operations on file data did.
    pub usage: VolumeUsage,
    /// Reads and writes of file data under way.
    pub in_flight: InFlight,
    /// Queues of operations that are open.
    pub queues: AtomicU32,
    pub generation: AtomicU32,
    pub users: UseCount,
    pub timer: OnceLock<CommitTimer>,
    /// Records errors when the volume has stopped.
    pub recorder: Arc<ErrorRecorder>,
}

impl Engine {
    /// An error if the volume may not be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_not_read_only()?;
        self.health.check()
    }

    /// # Errors
    /// [`Error::ReadOnly`] if the volume was opened read-only.
    pub(crate) fn check_not_read_only(&self) -> Result<()> {
        match &self.read_only {
            Some(why) => Err(Error::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }

    /// Whether the volume was opened read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.is_some()
    }

    /// Runs `change` in a handle of `credits` blocks. If it fails half-way on the device or on corruption,
    /// the volume stops (I8); other errors `change` must have undone.
    #[track_caller]
    pub(crate) fn transact<R>(
        &self,
        credits: u32,
        change: impl FnOnce(&Handle<'_>) -> Result<R>,
    ) -> Result<R> {
        self.check_writable()?;
        let handle = self.journal.begin(credits.min(self.journal.max_credits()))?;
        let result = change(&handle);
        // Before the handle ends: a commit may wait for that, and must not take along what was done half-way.
        match result {
            Err(error @ (Error::Device { .. } | Error::Corrupt(_))) if handle.has_changes() => {
                Err(self.health.stop(error))
            }
            Err(error) => Err(self.health.note(ErrorPlace::default(), error)),
            done => done,
        }
    }

    /// Has the inode's timestamps ride along with the next transaction.
    pub(crate) fn touch_lazily(&self, inode: &Arc<Inode>) {
        if inode.touch_lazily() && !planted(Fault::TimesUnlisted) {
            self.lazy.add(inode);
        }
    }

    /// The generation number for a new inode.
    pub(crate) fn next_generation(&self) -> u32 {
        self.generation.fetch_add(1, Ordering::Relaxed)
    }

    /// The counters of the superblock.
    pub(crate) fn counts(&self) -> &Arc<SuperCounts> {
        self.allocator.counts()
    }

    /// Bytes in a block.
    pub(crate) fn block_size(&self) -> u64 {
        u64::from(self.layout.block_size)
    }
}
