//! The parts of an engine: what opening a volume creates, and how operations reach them.

use once_cell::sync::OnceCell;
use parext4_device::Device;
use parext4_format::superblock::Superblock;

use super::{
    BlockWatch, CommitTimer, Deletions, Engine, ErrorRecorder, IdleCache, InFlight, LazyTimes, Orphans,
    Preallocated,
};
use crate::allocator::Allocator;
use crate::clock::Clock;
use crate::dirty_files::DirtyFiles;
use crate::error::Result;
use crate::health::Health;
use crate::inode::InodeCache;
use crate::journal::Journal;
use crate::layout::Layout;
use crate::meta::MetaCache;
use crate::mmp::{MmpState, Protection};
use crate::page_cache::PageCache;
use crate::policy::{Policy, SplitAt};
use crate::quota::Quotas;
use crate::stats::VolumeUsage;
use crate::sync::atomic::AtomicU32;
use crate::sync::{Arc, Mutex};
use crate::write_count::WriteCount;

/// The parts of an engine that opening a volume creates.
#[derive(Debug)]
pub(crate) struct EngineParts {
    pub device: Arc<dyn Device>,
    pub layout: Arc<Layout>,
    /// As read at open. Its variable fields are in `allocator.counts()`.
    pub superblock: Arc<Superblock>,
    pub health: Arc<Health>,
    pub cache: Arc<MetaCache>,
    pub journal: Arc<Journal>,
    pub allocator: Arc<Allocator>,
    pub inodes: Arc<InodeCache>,
    /// Orphans that a thread of the volume deletes.
    pub deletions: Deletions,
    /// The reason why the volume is read-only, if it is.
    pub read_only: Option<String>,
    /// Inodes with pending times, which the next transaction writes (H25).
    pub lazy: Arc<LazyTimes>,
    /// The page cache.
    pub pages: Arc<PageCache>,
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
    /// Returns the device.
    #[inline]
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.parts.device
    }

    /// Returns the geometry.
    #[inline]
    pub(crate) fn layout(&self) -> &Arc<Layout> {
        &self.parts.layout
    }

    /// Returns the superblock as read at open. Its variable fields are in [`counts`](Self::counts).
    #[inline]
    pub(crate) fn superblock(&self) -> &Arc<Superblock> {
        &self.parts.superblock
    }

    /// Returns the health of the volume.
    #[inline]
    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.parts.health
    }

    /// Returns the cache of metadata blocks.
    #[inline]
    pub(crate) fn cache(&self) -> &Arc<MetaCache> {
        &self.parts.cache
    }

    /// Returns the journal.
    #[inline]
    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.parts.journal
    }

    /// Returns the allocator.
    #[inline]
    pub(crate) fn allocator(&self) -> &Arc<Allocator> {
        &self.parts.allocator
    }

    /// Returns the inodes in memory.
    #[inline]
    pub(crate) fn inodes(&self) -> &Arc<InodeCache> {
        &self.parts.inodes
    }

    /// Returns the clock of all timestamps.
    #[inline]
    pub(crate) fn clock(&self) -> Clock {
        self.parts.clock
    }

    /// Returns the orphans.
    #[inline]
    pub(crate) fn orphans(&self) -> &Orphans {
        &self.orphans
    }

    /// Returns the orphans that a thread of the volume deletes.
    #[inline]
    pub(crate) fn deletions(&self) -> &Deletions {
        &self.parts.deletions
    }

    /// Returns the lock that is held while a directory moves from one parent to another.
    #[inline]
    pub(crate) fn rename(&self) -> &Mutex<()> {
        &self.rename
    }

    /// Returns the reason why the volume is read-only, if it is.
    #[inline]
    pub(crate) fn read_only(&self) -> Option<&str> {
        self.parts.read_only.as_deref()
    }

    /// Returns the inodes with pending times, which the next transaction writes (H25).
    #[inline]
    pub(crate) fn lazy(&self) -> &Arc<LazyTimes> {
        &self.parts.lazy
    }

    /// Returns the inodes with preallocated blocks past the end of the file.
    #[inline]
    pub(crate) fn preallocated(&self) -> &Preallocated {
        &self.preallocated
    }

    /// Returns the page cache.
    #[inline]
    pub(crate) fn pages(&self) -> &Arc<PageCache> {
        &self.parts.pages
    }

    /// Returns what a server does with files whose number of blocks has changed.
    #[inline]
    pub(crate) fn block_watch(&self) -> &BlockWatch {
        &self.block_watch
    }

    /// Returns the timer that releases the memory of an idle page cache.
    #[inline]
    pub(crate) fn idle_cache(&self) -> &IdleCache {
        &self.parts.idle_cache
    }

    /// Returns the files with dirty pages.
    #[inline]
    pub(crate) fn dirty(&self) -> &DirtyFiles {
        &self.parts.dirty
    }

    /// Returns when unwritten extents are split.
    #[inline]
    pub(crate) fn split_at(&self) -> SplitAt {
        self.parts.split_at
    }

    /// Returns how operations on one file exclude each other.
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        self.parts.policy
    }

    /// Returns the counters of operations on file data.
    #[inline]
    pub(crate) fn usage(&self) -> &VolumeUsage {
        &self.parts.usage
    }

    /// Returns the reads and writes of file data in flight.
    #[inline]
    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Returns the result of closing the volume, with the text of the error. Its lock is held while
    /// the volume is being closed.
    #[inline]
    pub(crate) fn closed(&self) -> &Mutex<Option<Result<(), Arc<str>>>> {
        &self.closed
    }

    /// Returns the number of open I/O queues.
    #[inline]
    pub(crate) fn queues(&self) -> &AtomicU32 {
        &self.queues
    }

    /// Returns the timer of commits.
    #[inline]
    pub(crate) fn timer(&self) -> &OnceCell<CommitTimer> {
        &self.timer
    }

    /// Returns the quota files, if the volume has them and may be changed.
    #[inline]
    pub(crate) fn quotas(&self) -> Option<&Quotas> {
        self.quotas.as_ref()
    }

    /// Returns what keeps other machines from writing to a volume with multi-mount protection.
    #[inline]
    pub(crate) fn protection(&self) -> Option<&Protection> {
        self.parts.protection.as_ref()
    }

    /// Returns the machine that has the volume open for writing, while this one only reads it.
    #[inline]
    pub(crate) fn live(&self) -> Option<&MmpState> {
        self.parts.live.as_ref()
    }

    /// Returns the counter of bytes written to the device.
    #[inline]
    pub(crate) fn written(&self) -> &Arc<WriteCount> {
        &self.parts.written
    }

    /// Returns the recorder of errors after the volume has stopped.
    #[inline]
    pub(crate) fn recorder(&self) -> &Arc<ErrorRecorder> {
        &self.parts.recorder
    }
}
