//! An open volume.

mod ahead;
mod background;
mod close;
mod device_queues;
mod dirty;
mod geometry;
mod idle_cache;
mod in_flight;
mod label;
mod open;
mod readers;
mod record;
mod recorded;
mod recover;
mod statistics;
mod timer;
mod trim;
mod turns;
mod users;
mod writers;

use std::sync::OnceLock;

use parext4_device::Device;
use parext4_format::superblock::Superblock;

pub(crate) use device_queues::QUEUE_DEPTH;
pub(crate) use dirty::{BATCH, PAGES_AT_ONCE};
pub use geometry::{Info, OnError, Space};
pub(crate) use in_flight::{Entered, InFlight};
pub use open::OpenOptions;
pub use recorded::{RecordedError, RecordedErrors};
pub use recover::{Replayed, needs_recovery, replay_journal};
pub(crate) use users::Use;
#[cfg(shuttle)]
pub use writers::Writers;

use crate::allocator::{Allocator, SuperCounts};
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::findings::ErrorPlace;
use crate::health::Health;
use crate::inode::{Inode, InodeCache};
use crate::journal::{CommitHooks, Freed, Handle, Journal};
use crate::layout::Layout;
use crate::meta::MetaCache;
use crate::namespace::{Namespace, Orphans};
use crate::page_cache::PageCache;
use crate::policy::{Policy, SplitAt};
use crate::stats::VolumeUsage;
use crate::sync::Rank;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, Mutex};

/// An open ext4 volume. Cheap to clone; all clones are the same volume.
///
/// Every method may be called from any number of threads at once.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use parext4::{MemDevice, MkfsOptions, OpenOptions, Volume, mkfs};
///
/// # fn main() -> Result<(), parext4::Error> {
/// let device = Arc::new(MemDevice::new(16 << 20));
/// mkfs(&*device, &MkfsOptions::default())?;
/// let volume = Volume::open(device, &OpenOptions::default())?;
/// let file = volume.create("/log", 0o644)?;
/// std::thread::scope(|scope| {
///     for thread in 0..4_u64 {
///         let file = &file;
///         scope.spawn(move || file.write_at(&[thread as u8; 4096], thread * 4096));
///     }
/// });
/// file.sync_all()?;
/// let mut byte = [0; 512];
/// file.read_at(&mut byte, 3 * 4096)?;
/// assert_eq!(byte[0], 3);
/// drop(file);
/// volume.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Volume {
    pub(crate) inner: Use,
}

/// What all parts of an open volume share.
#[derive(Debug)]
pub(crate) struct Inner {
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
    pub namespace: Namespace,
    /// Why the volume may not be written, if so.
    read_only: Option<String>,
    /// Inodes whose timestamps wait to ride along with a transaction (H25).
    lazy: Arc<LazyTimes>,
    /// Inodes with blocks mapped ahead of their end.
    ahead: ahead::Ahead,
    /// File data in memory.
    pub pages: Arc<PageCache>,
    /// Gives the memory of idle file data back.
    pub idle_cache: idle_cache::IdleCache,
    /// Files with data that is in memory only.
    pub dirty: dirty::DirtyFiles,
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
    generation: AtomicU32,
    users: users::Users,
    timer: OnceLock<timer::Timer>,
    /// Records errors when the volume has stopped.
    recorder: Arc<record::Recorder>,
}

impl Inner {
    /// An error if the volume may not be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if let Some(why) = &self.read_only {
            return Err(Error::ReadOnly(why.clone()));
        }
        self.health.check()
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

    /// Runs `operation`; if space runs out, frees the blocks mapped ahead of idle files, commits if freed blocks wait
    /// for that, and runs it again if blocks became allocatable, also by another thread's commit. It must have changed
    /// nothing when it fails so.
    pub(crate) fn with_space<R>(&self, mut operation: impl FnMut() -> Result<R>) -> Result<R> {
        /// Others may take what a commit gives, again and again; on a full volume it ends somewhere.
        const TRIES: u32 = 8;
        for _ in 1..TRIES {
            let before = self.allocator.releases();
            match operation() {
                Err(Error::NoSpace) => {}
                other => return other,
            }
            self.return_ahead_of_idle()?;
            if self.allocator.has_held_blocks() {
                self.journal.commit_all()?;
            }
            if self.allocator.releases() == before {
                return Err(Error::NoSpace);
            }
        }
        operation()
    }

    /// Has the inode's timestamps ride along with the next transaction.
    pub(crate) fn touch_lazily(&self, inode: &Arc<Inode>) {
        if inode.touch_lazily() && !planted(Fault::TimesUnlisted) {
            self.lazy.0.lock().push(Arc::clone(inode));
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

/// Inodes whose timestamps wait for a transaction.
#[derive(Debug)]
struct LazyTimes(Mutex<Vec<Arc<Inode>>>);

impl LazyTimes {
    fn new() -> Self {
        Self(Mutex::new(Rank::Leaf, Vec::new()))
    }
}

/// What the journal does for the volume at a commit. It holds parts of the volume, not the volume, so that
/// a commit never is the last to let go of it.
#[derive(Debug)]
struct Hooks {
    allocator: Arc<Allocator>,
    lazy: Arc<LazyTimes>,
    health: Arc<Health>,
}

impl CommitHooks for Hooks {
    fn closing(&self, handle: &Handle<'_>) {
        // If this transaction has no credit left for the superblock, the next one records them.
        if handle.ensure(1)
            && let Some(errors) = self.health.take_unrecorded()
        {
            self.allocator.counts().record_errors(handle, &errors);
        }
        let mut waiting = std::mem::take(&mut *self.lazy.0.lock());
        // What does not fit this transaction waits for the next.
        while let Some(inode) = waiting.pop() {
            if !handle.ensure(1) {
                waiting.push(inode);
                break;
            }
            if !planted(Fault::ListedForEver) {
                inode.unlist();
            }
            if inode.has_lazy_times() {
                inode.fold_lazy(handle);
            }
        }
        self.lazy.0.lock().append(&mut waiting);
    }

    fn released(&self, freed: &[Freed]) {
        self.allocator.release(freed);
    }
}
