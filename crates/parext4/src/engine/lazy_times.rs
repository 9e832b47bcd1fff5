//! Timestamps that are written with the next transaction, whichever that is (H25).
//!
//! Invariant: an inode leaves the list only under a handle or in a commit, whose transaction then
//! includes its pending time. So a thread that does not find an inode in the list finds its time in
//! the running transaction or in an earlier one.

use std::collections::VecDeque;

use super::Engine;
use crate::error::Result;
use crate::fault::{Fault, guarded};
use crate::inode::Inode;
use crate::journal::Handle;
use crate::sync::{Arc, Mutex, Rank};

/// Inodes whose timestamps wait for a transaction, the one that has waited longest first.
#[derive(Debug)]
pub(crate) struct LazyTimes(Mutex<VecDeque<Arc<Inode>>>);

impl LazyTimes {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Rank::Leaf, VecDeque::new()))
    }

    /// Returns the number of inodes.
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Adds the inode, unless it is in the list.
    fn add(&self, inode: &Arc<Inode>) {
        let mut waiting = self.0.lock();
        // The flag is set under this lock, so a thread that finds the inode listed and then syncs
        // also finds it in the list.
        if inode.list() {
            waiting.push_back(Arc::clone(inode));
        }
    }

    /// Removes and returns the inode that has waited longest.
    fn remove_first(&self) -> Option<Arc<Inode>> {
        let mut waiting = self.0.lock();
        let inode = waiting.pop_front()?;
        guarded!(Fault::ListedAfterCommit, inode.unlist());
        if waiting.is_empty() {
            // Releases the memory of a list that was long.
            *waiting = VecDeque::new();
        }
        Some(inode)
    }

    /// Adds the pending times of the first `count` inodes to the handle's transaction, as far as it
    /// has credits and room. Returns the number of these inodes that remain in the list.
    pub(super) fn fold(&self, handle: &Handle<'_>, count: usize) -> usize {
        for folded in 0..count {
            if !handle.ensure(1) || handle.is_crowded() {
                return count - folded;
            }
            let Some(inode) = self.remove_first() else { break };
            if inode.has_lazy_times() {
                inode.fold_lazy(handle);
            }
        }
        0
    }
}

impl Engine {
    /// Sets the inode's modification time, to be written with the next transaction.
    pub(crate) fn touch_lazily(&self, inode: &Arc<Inode>) {
        if inode.touch_lazily() {
            guarded!(Fault::TimesUnlisted, self.lazy().add(inode));
        }
    }

    /// Makes all changes durable that were made before the call, pending times included. The caller
    /// has no open handle. Blocks as [`Journal::commit`](crate::journal::Journal::commit), and
    /// returns what it returns.
    ///
    /// # Errors
    /// If the volume has stopped or is closed, or a failure of this commit stops it.
    pub(crate) fn commit_all(&self) -> Result<bool> {
        guarded!(Fault::TimesLeftToCommit, self.fold_lazy_times()?);
        self.journal().commit_all()
    }

    /// Adds the times that are pending now to the running transaction. Commits the transaction and
    /// continues with the next one whenever it is full. Blocks while a commit closes its
    /// transaction, because that commit may have passed the list already.
    pub(crate) fn fold_lazy_times(&self) -> Result<()> {
        // Inodes leave the list in the order in which they joined it, so these leave it first,
        // although other threads add inodes and remove some.
        let mut waiting = self.lazy().len();
        while waiting > 0 {
            let handle = self.journal().begin(1)?;
            waiting = self.lazy().fold(&handle, waiting);
        }
        Ok(())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::thread::{JoinHandle, sleep, spawn};
    use std::time::Duration;

    use parext4_device::MemDevice;
    use parext4_format::inode::Timestamp;

    use super::*;
    use crate::clock::Clock;
    use crate::inode_ref::InodeRef;
    use crate::journal::Participant;
    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::namespace::SetAttributes;
    use crate::sync::atomic::AtomicU64;
    use crate::volume::{Volume, VolumeOptions};

    const LONG_AGO: Timestamp = Timestamp { seconds: 5, nanoseconds: 0 };

    /// Returns a device, a volume on it that commits only if asked to, and a file with an old time
    /// that is durable.
    fn volume_with_file() -> (Arc<MemDevice>, Volume, InodeRef) {
        let device = Arc::new(MemDevice::new(16 << 20));
        mkfs(&*device, &MkfsOptions::new()).unwrap();
        let options = VolumeOptions::new().commit_interval(None).write_back_interval(None);
        let volume = Volume::open_device(Arc::clone(&device) as _, &options).unwrap();
        volume.write("/f", "text").unwrap();
        let file = volume.resolve("/f").unwrap();
        file.set_attributes(&SetAttributes::new().mtime(LONG_AGO)).unwrap();
        volume.sync().unwrap();
        (device, volume, file)
    }

    /// An object that, when it is encoded, sets the time of a file and starts a sync.
    #[derive(Debug)]
    struct LateWriter {
        volume: Volume,
        file: InodeRef,
        sync: Mutex<Option<JoinHandle<()>>>,
        joined: AtomicU64,
    }

    impl Participant for LateWriter {
        fn encode(&self) -> Result<()> {
            let volume = self.volume.clone();
            self.volume.engine.touch_lazily(&self.file.inode);
            *self.sync.lock() = Some(spawn(move || volume.sync().unwrap()));
            // Until the sync waits for this commit, or for the gate.
            sleep(Duration::from_millis(100));
            Ok(())
        }

        fn joined(&self) -> &AtomicU64 {
            &self.joined
        }
    }

    #[test]
    fn a_sync_during_a_commit_includes_times_that_the_commit_does_not() {
        let (device, volume, file) = volume_with_file();
        let late = Arc::new(LateWriter {
            volume: volume.clone(),
            file,
            sync: Mutex::new(Rank::Leaf, None),
            joined: AtomicU64::new(0),
        });
        let root = volume.resolve("/").unwrap();
        let change = |handle: &Handle<'_>| {
            root.inode.join(handle);
            handle.join(&late);
            Ok(())
        };
        volume.engine.transact(1, change).unwrap();
        volume.engine.journal().commit_all().unwrap();
        late.sync.lock().take().unwrap().join().unwrap();
        let after = Volume::open_device(Arc::new(device.fork()), &VolumeOptions::new()).unwrap();
        assert_ne!(after.metadata("/f").unwrap().mtime, LONG_AGO);
    }

    #[test]
    fn an_inode_is_listed_though_another_thread_has_set_its_time() {
        let (_device, volume, file) = volume_with_file();
        // The clock may tick between the two calls, which would list the inode in any case.
        for _ in 0..20 {
            // So that the inode has not the time of this tick.
            file.set_attributes(&SetAttributes::new().mtime(LONG_AGO)).unwrap();
            // As far as another thread may be in `touch_lazily`.
            file.inode.touch_modified();
            volume.engine.touch_lazily(&file.inode);
            assert_eq!(volume.engine.lazy().len(), 1);
            volume.engine.touch_lazily(&file.inode);
            assert_eq!(volume.engine.lazy().len(), 1, "listed once");
            volume.sync().unwrap();
            assert_eq!(volume.engine.lazy().len(), 0);
        }
    }

    #[test]
    fn a_sync_commits_no_time_that_is_committed() {
        let (_device, volume, file) = volume_with_file();
        let open = volume.open_direct("/f", &crate::OpenOptions::read_write()).unwrap();
        let write_and_sync = || {
            open.write_all_at(b"text", 0).unwrap();
            open.sync_all().unwrap();
            file.inode.changed_in()
        };
        // The clock ticks between two writes now and then, but not each time.
        let is_equal = |_| {
            let (before, first) = (Clock::system().now(), write_and_sync());
            assert!(file.metadata().mtime >= before);
            first == write_and_sync()
        };
        assert!((0..100).any(is_equal), "each sync has committed");
        let old = SetAttributes::new().mtime(LONG_AGO);
        for _ in 0..20 {
            file.set_attributes(&old).unwrap();
            write_and_sync();
            assert_ne!(file.metadata().mtime, LONG_AGO, "a time that was set is not the time of the write");
        }
    }
}
