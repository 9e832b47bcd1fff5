//! Deletions that are pending: inodes without names and users, which a thread of the volume
//! deletes.
//!
//! Responsible for the queue, for the thread, and for waiting until deletions have ended. Not
//! responsible for deleting an inode: [`node`](crate::inode_ref) passes that as a function.
//! Invariant: an inode in the queue is an orphan on the device, so a crash or a refusal of the
//! system to start the thread loses no deletion.
//!
//! The thread deletes one inode after the other, each under handles of its own, and holds neither a
//! lock nor a handle between two of them. So a sync, whose commit waits for open handles, waits for
//! a part of one deletion, however many are pending.

use std::collections::VecDeque;
use std::sync::Weak;

use super::Engine;
use crate::inode::Inode;
use crate::journal::Participant;
use crate::sync::{Arc, Condvar, Mutex, Rank};
use crate::threads::{self, JoinHandle};

/// Number of pending deletions above which a thread that removes a name executes [`HELP`] of them,
/// so that removals do not outrun the deletions. Each pending one keeps an inode in memory.
#[cfg(not(test))]
const MANY: usize = 16 << 10;
#[cfg(test)]
const MANY: usize = 64;
/// Number of deletions that such a thread executes.
const HELP: usize = 2;

/// Number of objects below which the committer drops them itself: to wake the thread takes longer.
const FEW: usize = 64;

/// Deletes an inode without names and users.
type Delete = fn(&Arc<Engine>, &Arc<Inode>);

/// Objects that a commit has encoded.
type Encoded = Vec<Arc<dyn Participant>>;

/// The pending deletions of a volume.
#[derive(Clone, Debug)]
pub(crate) struct Deletions {
    /// `None` if the thread that drops the last reference to an inode deletes it.
    queue: Option<Arc<Queue>>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<DeletionQueue>,
    /// Notified when an inode is added, when a deletion has ended, and when the thread must end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct DeletionQueue {
    waiting: VecDeque<Arc<Inode>>,
    /// What commits have encoded: the last references to inodes that were deleted.
    discarded: Encoded,
    /// Number of inodes that were added so far.
    added: u64,
    /// Number of deletions that have ended so far.
    ended: u64,
    thread: Option<JoinHandle<()>>,
    /// True from when the thread is started until it ends.
    has_thread: bool,
    stopped: bool,
}

impl Deletions {
    /// Returns an empty queue. Without `in_background`, nothing is ever queued.
    pub(crate) fn new(in_background: bool) -> Self {
        let queue =
            || Queue { state: Mutex::new(Rank::Leaf, DeletionQueue::default()), changed: Condvar::default() };
        Self { queue: in_background.then(|| Arc::new(queue())) }
    }

    /// Has the thread delete an inode by `delete`. Does not block. Returns false if the caller must
    /// delete it: no thread can run.
    pub(crate) fn defer(&self, engine: &Arc<Engine>, inode: &Arc<Inode>, delete: Delete) -> bool {
        let Some(queue) = &self.queue else { return false };
        let mut state = queue.state.lock();
        if state.stopped {
            return false;
        }
        if state.thread.is_none() {
            let (queue, engine) = (Arc::clone(queue), Arc::downgrade(engine));
            state.thread = threads::spawn("parext4-delete", move || queue.run(&engine, delete));
            state.has_thread = state.thread.is_some();
            // A system that refuses the thread is not asked again for each inode.
            state.stopped = !state.has_thread;
        }
        if !state.has_thread {
            return false;
        }
        state.waiting.push_back(Arc::clone(inode));
        state.added += 1;
        queue.changed.notify_all();
        true
    }

    /// Returns the number of deletions that have not ended.
    pub(crate) fn pending(&self) -> u64 {
        let Some(queue) = &self.queue else { return 0 };
        let state = queue.state.lock();
        state.added - state.ended
    }

    /// Blocks until as many deletions have ended as are pending now.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn wait(&self) {
        let Some(queue) = &self.queue else { return };
        let mut state = queue.state.lock();
        let target = state.added;
        while state.has_thread && state.ended < target {
            queue.changed.wait(&mut state);
        }
    }

    /// Deletes [`HELP`] inodes in the calling thread if [`MANY`] are waiting. The caller, which has
    /// removed a name, holds no lock.
    pub(crate) fn help(&self, engine: &Arc<Engine>, delete: Delete) {
        let Some(queue) = &self.queue else { return };
        for _ in 0..HELP {
            let mut state = queue.state.lock();
            if state.waiting.len() <= MANY {
                return;
            }
            let next = state.waiting.pop_front();
            drop(state);
            next.into_iter().for_each(|inode| queue.delete(engine, &inode, delete));
        }
    }

    /// Has the thread drop objects that a commit has encoded, if it runs and they are many: to free
    /// the memory of a deleted inode takes longer than to encode it, and operations wait for the
    /// commit. Does not block.
    pub(crate) fn discard(&self, objects: Encoded) {
        let Some(queue) = self.queue.as_ref().filter(|_| objects.len() >= FEW) else { return };
        let mut state = queue.state.lock();
        if !state.has_thread {
            drop(state);
            return drop(objects);
        }
        state.discarded.extend(objects);
        queue.changed.notify_all();
    }

    /// Executes all pending deletions, and stops the thread. Later ones are executed by the threads
    /// that drop the inodes.
    pub(crate) fn finish(&self) {
        let Some(queue) = &self.queue else { return };
        let mut state = queue.state.lock();
        state.stopped = true;
        queue.changed.notify_all();
        let thread = state.thread.take();
        drop(state);
        threads::join(thread);
    }
}

impl Queue {
    /// The body of the thread.
    fn run(&self, engine: &Weak<Engine>, delete: Delete) {
        let _ended = ThreadEnd(self);
        while let Some((inode, discarded)) = self.next() {
            drop(discarded);
            let Some(inode) = inode else { continue };
            let Some(engine) = engine.upgrade() else { return };
            self.delete(&engine, &inode, delete);
        }
    }

    /// Blocks until an inode waits or objects are to be dropped, and returns them. Returns `None`
    /// once nothing waits and the thread must end.
    fn next(&self) -> Option<(Option<Arc<Inode>>, Encoded)> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && state.discarded.is_empty() {
            if state.stopped {
                return None;
            }
            // Releases the memory of a queue that was long.
            state.waiting = VecDeque::new();
            self.changed.wait(&mut state);
        }
        Some((state.waiting.pop_front(), std::mem::take(&mut state.discarded)))
    }

    fn delete(&self, engine: &Arc<Engine>, inode: &Arc<Inode>, delete: Delete) {
        // Nothing can be deleted once the volume has stopped. The next open deletes the orphans.
        if engine.health().check().is_ok() {
            delete(engine, inode);
        }
        self.state.lock().ended += 1;
        self.changed.notify_all();
    }
}

/// Records the end of the thread, also by a panic, so that no thread waits for it.
struct ThreadEnd<'a>(&'a Queue);

impl Drop for ThreadEnd<'_> {
    fn drop(&mut self) {
        self.0.state.lock().has_thread = false;
        self.0.changed.notify_all();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread;
    use std::time::Duration;

    use rangelock::ByteRange;

    use super::*;
    use crate::error::Error;
    use crate::sync::atomic::AtomicU64;
    use crate::{Device, InodeRef, MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};

    const FILES: u32 = 40;

    fn open(device: &Arc<MemDevice>) -> Volume {
        let options = VolumeOptions::new().commit_interval(None).write_back_interval(None);
        let device = Arc::clone(device) as Arc<dyn Device>;
        Volume::open_device(device, &options.delete_in_background(true)).unwrap()
    }

    fn new_volume(options: &MkfsOptions) -> (Arc<MemDevice>, Volume) {
        let device = Arc::new(MemDevice::new(16 << 20));
        mkfs(&*device, options).unwrap();
        let volume = open(&device);
        (device, volume)
    }

    /// Returns removed files with data.
    fn removed(volume: &Volume, files: usize) -> Vec<InodeRef> {
        let remove = |nth| {
            let path = format!("/{nth}");
            volume.write(&path, [1; 5000]).unwrap();
            let node = volume.resolve(&path).unwrap();
            volume.remove_file(&path).unwrap();
            node
        };
        (0..files).map(remove).collect()
    }

    #[test]
    fn a_long_deletion_holds_up_neither_threads_that_drop_files_nor_a_sync() {
        let (device, volume) = new_volume(&MkfsOptions::new());
        let free = volume.space().free_inodes;
        let files = removed(&volume, FILES as usize);
        // The deletion of the first file waits for this.
        let first = Arc::clone(&files[0].inode);
        let held = first.ranges.exclusive(ByteRange::ALL);
        drop(files);
        volume.write("/other", "text").unwrap();
        volume.sync().unwrap();
        let deletions = volume.engine.deletions();
        assert_eq!((deletions.pending(), volume.space().free_inodes), (u64::from(FILES), free - 1 - FILES));
        drop(held);
        deletions.wait();
        assert_eq!((deletions.pending(), volume.space().free_inodes), (0, free - 1));
        volume.close().unwrap();
        testkit::volume::assert_clean(&device, "deleted in the background");
    }

    #[test]
    fn a_close_executes_the_pending_deletions() {
        let (device, volume) = new_volume(&MkfsOptions::new());
        let free = volume.space();
        drop(removed(&volume, FILES as usize));
        volume.close().unwrap();
        testkit::volume::assert_clean(&device, "closed");
        let volume = Volume::open_device(device, &VolumeOptions::new().read_only(true)).unwrap();
        let left = volume.space();
        assert_eq!((left.free_inodes, left.free_blocks), (free.free_inodes, free.free_blocks));
    }

    #[test]
    fn the_open_after_a_crash_executes_the_pending_deletions() {
        let (device, volume) = new_volume(&MkfsOptions::new());
        let free = volume.space().free_inodes;
        let files = removed(&volume, FILES as usize);
        let middle = Arc::clone(&files[files.len() / 2].inode);
        let held = middle.ranges.exclusive(ByteRange::ALL);
        drop(files);
        volume.sync().unwrap();
        volume.abort().unwrap();
        drop(held);
        drop(volume);
        let volume = open(&device);
        assert_eq!(volume.space().free_inodes, free);
        volume.close().unwrap();
        testkit::volume::assert_clean(&device, "after a crash");
    }

    #[test]
    fn a_thread_that_removes_a_name_helps_when_many_deletions_are_pending() {
        let (_, volume) = new_volume(&MkfsOptions::new());
        let files = removed(&volume, MANY + 5);
        let first = Arc::clone(&files[0].inode);
        let held = first.ranges.exclusive(ByteRange::ALL);
        drop(files);
        let deletions = volume.engine.deletions();
        let waiting = || deletions.queue.as_ref().unwrap().state.lock().waiting.len();
        assert!(
            testkit::poll::until(|| waiting() == MANY + 4),
            "the thread has not begun to delete the first file"
        );
        let pending = || usize::try_from(deletions.pending()).unwrap();
        assert_eq!(pending(), MANY + 5);
        // Each removal deletes two files, and then its own file is added.
        for left in [MANY + 4, MANY + 3, MANY + 2] {
            drop(removed(&volume, 1));
            assert_eq!(pending(), left);
        }
        drop(held);
        volume.close().unwrap();
    }

    #[test]
    fn an_inode_number_that_a_pending_deletion_frees_is_waited_for() {
        let (_, volume) = new_volume(&MkfsOptions::new().inode_ratio(Some(1 << 20)));
        let files = removed(&volume, 1);
        let first = Arc::clone(&files[0].inode);
        let held = first.ranges.exclusive(ByteRange::ALL);
        drop(files);
        let create = |nth: u32| volume.write(format!("/{nth}"), "");
        (1..=volume.space().free_inodes).for_each(|nth| create(nth).unwrap());
        thread::scope(|scope| {
            let created = scope.spawn(|| create(0));
            // Long enough for an attempt that does not wait.
            thread::sleep(Duration::from_millis(50));
            drop(held);
            created.join().unwrap().unwrap();
        });
        assert!(matches!(create(u32::MAX), Err(Error::NoInodes)));
    }

    /// Tells the name of the thread that drops it.
    #[derive(Debug)]
    struct Probe {
        joined: AtomicU64,
        dropped: Sender<Option<String>>,
    }

    impl Participant for Probe {
        fn encode(&self) -> crate::error::Result<()> {
            Ok(())
        }

        fn joined(&self) -> &AtomicU64 {
            &self.joined
        }
    }

    impl Drop for Probe {
        fn drop(&mut self) {
            self.dropped.send(thread::current().name().map(str::to_owned)).unwrap();
        }
    }

    #[test]
    fn the_thread_frees_the_many_objects_of_a_commit() {
        let (_device, volume) = new_volume(&MkfsOptions::new());
        // The thread runs from the first deletion on.
        drop(removed(&volume, 1));
        let (dropped, drops) = channel();
        let root = volume.resolve("/").unwrap();
        let own = thread::current().name().map(str::to_owned);
        for (objects, expected) in [(1, own), (FEW, Some("parext4-delete".into()))] {
            let change = |handle: &crate::journal::Handle<'_>| {
                root.inode.join(handle);
                for _ in 0..objects {
                    handle.join(&Arc::new(Probe { joined: AtomicU64::new(0), dropped: dropped.clone() }));
                }
                Ok(())
            };
            volume.engine.transact(1, change).unwrap();
            volume.engine.journal().commit_all().unwrap();
            for _ in 0..objects {
                assert_eq!(drops.recv_timeout(Duration::from_mins(1)).unwrap(), expected, "{objects}");
            }
        }
        volume.close().unwrap();
    }
}
