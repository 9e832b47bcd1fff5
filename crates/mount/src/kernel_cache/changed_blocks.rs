//! Notifies the kernel of files whose number of blocks has changed by write-back: that of the
//! volume, or that of the kernel with `cache=writeback`. The kernel does not expect these changes.
//!
//! The kernel may keep attributes for ever. A thread that may block on the kernel drops the
//! attributes of each noted file; until then programs may see the old number of blocks. An fsync(2)
//! of the file drops the attributes before it returns.
//!
//! Invariant: once all noted files are dropped, the kernel keeps no number from before a change. A
//! notification increases the version of the inode's attributes in the kernel, and the kernel
//! ignores the reply to a request for attributes that it sent before.

use std::collections::HashMap;
use std::sync::Arc;

use fuser::INodeNo;
use parext4_sync::Mutex;

use super::invalidation::Kernel;
use crate::threads::WorkerPool;

/// Files with a changed number of blocks of which the kernel is not notified yet.
#[derive(Debug)]
pub struct ChangedBlocks {
    kernel: Arc<dyn Kernel>,
    /// Number of times that each file was noted since its last notification began.
    noted: Mutex<HashMap<INodeNo, u64>>,
    thread: WorkerPool,
}

impl ChangedBlocks {
    /// Returns an empty set.
    pub fn new(kernel: Arc<dyn Kernel>) -> Self {
        Self { kernel, noted: Mutex::default(), thread: WorkerPool::new("parext4-blocks", 1) }
    }

    /// Notes a file after its number of blocks has changed. Does not block.
    pub fn note(self: &Arc<Self>, ino: INodeNo) {
        let is_first = {
            let mut noted = self.noted.lock();
            let count = noted.entry(ino).or_default();
            *count += 1;
            *count == 1
        };
        if is_first {
            let this = Arc::clone(self);
            self.thread.spawn(move || this.drop_until_known(ino));
        }
    }

    /// Makes the kernel drop the attributes of a file if it was noted and the kernel may not know.
    /// If the sender of the current request holds a reference to the inode, as by an open file,
    /// this blocks on no request.
    pub fn tell_of(&self, ino: INodeNo) {
        let is_noted = self.noted.lock().contains_key(&ino);
        if is_noted {
            self.kernel.drop_attributes(ino);
        }
    }

    /// Makes the kernel drop the attributes of a file, and repeats that until no change was noted
    /// meanwhile.
    fn drop_until_known(&self, ino: INodeNo) {
        let mut told = self.noted.lock().get(&ino).copied().unwrap_or_default();
        loop {
            self.kernel.drop_attributes(ino);
            let mut noted = self.noted.lock();
            match noted.get_mut(&ino) {
                Some(count) if *count > told => told = *count,
                _ => {
                    noted.remove(&ino);
                    return;
                }
            }
        }
    }

    /// Notifies the kernel of all noted files, and joins the thread. Later notes are ignored.
    pub fn join(&self) {
        self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Reports each notification, which blocks until it is released.
    #[derive(Debug)]
    struct SlowKernel {
        begun: Sender<INodeNo>,
        released: Mutex<Receiver<()>>,
    }

    impl Kernel for SlowKernel {
        fn drop_pages(&self, _: INodeNo, _: i64, _: i64) {}

        fn drop_attributes(&self, ino: INodeNo) {
            self.begun.send(ino).unwrap();
            self.released.lock().recv().unwrap();
        }

        fn forget_name(&self, _: INodeNo, _: &OsStr) {}
    }

    #[test]
    fn a_change_during_a_notification_gets_another_one() {
        let ((begun, notifications), (release, released)) = (channel(), channel());
        let kernel = SlowKernel { begun, released: Mutex::new(released) };
        let changed = Arc::new(ChangedBlocks::new(Arc::new(kernel)));
        let file = INodeNo(12);
        changed.note(file);
        assert_eq!(notifications.recv(), Ok(file));
        // Both share the next one.
        changed.note(file);
        changed.note(file);
        release.send(()).unwrap();
        assert_eq!(notifications.recv(), Ok(file));
        release.send(()).unwrap();
        changed.join();
        assert!(notifications.try_recv().is_err());
        // Nothing is left to tell.
        changed.tell_of(file);
        assert!(notifications.try_recv().is_err());
    }

    #[test]
    fn a_sync_tells_of_a_change_whose_notification_is_under_way() {
        let ((begun, notifications), (release, released)) = (channel(), channel());
        let kernel = SlowKernel { begun, released: Mutex::new(released) };
        let changed = Arc::new(ChangedBlocks::new(Arc::new(kernel)));
        changed.note(INodeNo(12));
        assert_eq!(notifications.recv(), Ok(INodeNo(12)));
        std::thread::scope(|scope| {
            scope.spawn(|| changed.tell_of(INodeNo(12)));
            assert_eq!(notifications.recv(), Ok(INodeNo(12)));
            release.send(()).unwrap();
            release.send(()).unwrap();
        });
        changed.join();
    }
}
