//! The engine of an open volume: its device, geometry, health, caches, journal, allocator and table
//! of inodes.
//!
//! Responsible for the parts that all operations need, for loading inodes, and for running changes
//! in transactions ([`Engine::transact`]). Not responsible for operations: modules above this one
//! add their own to [`Engine`], and this one uses none of them.

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
mod parts;
mod preallocation;
mod quota;
mod xattr_block;

// Its orders are visible to ThreadSanitizer, unlike those inside `std::sync::OnceLock`.
use once_cell::sync::OnceCell;

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
pub(crate) use parts::EngineParts;
pub(crate) use preallocation::Preallocated;

use crate::allocator::SuperCounts;
use crate::block_map::BlockMap;
use crate::error::{Error, Result};
use crate::findings::ErrorPlace;
use crate::inode::Inode;
use crate::journal::Handle;
use crate::page_cache::PageSize;
use crate::quota::Quotas;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, Mutex, Rank};

/// The parts of an open volume that all operations need.
#[derive(Debug)]
pub(crate) struct Engine {
    parts: EngineParts,
    orphans: Orphans,
    /// Held while a directory moves from one parent to another.
    rename: Mutex<()>,
    /// Inodes with preallocated blocks past the end of the file.
    preallocated: Preallocated,
    /// What a server does with files whose number of blocks has changed.
    block_watch: BlockWatch,
    /// Reads and writes of file data in flight.
    in_flight: InFlight,
    /// The result of closing the volume, with the text of the error. Held while the volume is being
    /// closed.
    closed: Mutex<Option<Result<(), Arc<str>>>>,
    /// Number of open I/O queues.
    queues: AtomicU32,
    generation: AtomicU32,
    users: UseCount,
    timer: OnceCell<CommitTimer>,
    /// The quota files, if the volume has them and may be changed.
    quotas: Option<Quotas>,
}

impl Engine {
    /// Returns the engine of a volume that is being opened. `generation` is the first generation of
    /// a new inode.
    pub(crate) fn new(parts: EngineParts, generation: u32) -> Self {
        Self {
            parts,
            orphans: Orphans::new(),
            rename: Mutex::new(Rank::Rename, ()),
            preallocated: Preallocated::new(),
            block_watch: BlockWatch::default(),
            in_flight: InFlight::new(),
            closed: Mutex::new(Rank::Close, None),
            queues: AtomicU32::new(0),
            generation: AtomicU32::new(generation),
            users: UseCount::new(),
            timer: OnceCell::new(),
            quotas: None,
        }
    }

    /// Sets the quota files, which are read through the engine.
    pub(crate) fn set_quotas(&mut self, quotas: Option<Quotas>) {
        self.quotas = quotas;
    }

    /// Returns an error if the volume may not be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_not_read_only()?;
        self.health().check()
    }

    /// Returns an error if the volume was opened read-only.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if the volume was opened read-only.
    pub(crate) fn check_not_read_only(&self) -> Result<()> {
        match self.read_only() {
            Some(why) => Err(Error::ReadOnly(why.to_owned())),
            None => Ok(()),
        }
    }

    /// Returns true if the volume was opened read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only().is_some()
    }

    /// Returns the inode's block map. Reads it from the device on first use.
    ///
    /// # Errors
    /// As [`BlockMap::load`].
    pub(crate) fn block_map<'a>(&self, inode: &'a Inode) -> Result<&'a BlockMap> {
        // A read-only volume cannot be damaged further, and the rest of the file can still be read.
        let block_map = inode.block_map(self.layout(), self.cache(), !self.is_read_only());
        block_map.map_err(|error| self.health().note(inode.ino(), error))
    }

    /// Runs `change` under a handle of `credits` blocks. Blocks until the journal has room. If
    /// `change` fails with a device error or corruption after a change, stops the volume (I8).
    /// Before any other error, `change` must have undone its changes.
    #[track_caller]
    pub(crate) fn transact<R>(
        &self,
        credits: u32,
        change: impl FnOnce(&Handle<'_>) -> Result<R>,
    ) -> Result<R> {
        self.check_writable()?;
        let handle = self.journal().begin(credits.min(self.journal().max_credits()))?;
        let result = change(&handle);
        // Before the handle ends: a commit may wait for that, and must not include an incomplete
        // change.
        match result {
            Err(error @ (Error::Device { .. } | Error::Corrupt(_))) if handle.has_changes() => {
                Err(self.health().stop(error))
            }
            Err(error) => Err(self.health().note(ErrorPlace::default(), error)),
            done => done,
        }
    }

    /// Returns the generation number for a new inode.
    pub(crate) fn next_generation(&self) -> u32 {
        self.generation.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the counters of the superblock.
    pub(crate) fn counts(&self) -> &Arc<SuperCounts> {
        self.allocator().counts()
    }

    /// Returns the maximum size of a file in bytes, which depends on the format of its block map.
    pub(crate) fn max_size(&self, inode: &Inode) -> u64 {
        let blocks = if inode.has_extents() {
            self.layout().max_file_blocks
        } else {
            self.layout().max_indirect_blocks
        };
        blocks * self.block_size()
    }

    /// Returns the block size in bytes.
    pub(crate) fn block_size(&self) -> u64 {
        u64::from(self.layout().block_size.bytes())
    }

    /// Returns the size of a page of the cache.
    #[inline]
    pub(crate) fn page_size(&self) -> PageSize {
        self.pages().page_size()
    }
}
