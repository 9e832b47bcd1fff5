//! Makes the kernel drop its pages of a file, or names, in threads that may block on the kernel.
//!
//! `FUSE_NOTIFY_INVAL_INODE` blocks on each page that a request of the kernel has locked, and
//! writes dirty pages back, which needs further requests. So no thread that executes requests sends
//! one: it hands the request that needs the notification to this module, whose threads execute no
//! requests.
//!
//! `FUSE_NOTIFY_INVAL_ENTRY` blocks while a request of the kernel holds the directory, as the
//! rename that it follows does. A rename that holds the directory may in turn wait for a
//! notification of pages. So separate threads send names.
//!
//! Invariant: each notification ends. The server answers every request that locks a page without
//! this module, and every request that locks a directory without the threads that send names.
//!
//! Asynchronous direct I/O counts against the kernel's limit of background requests, as read-ahead
//! and write-back do. At most half of that limit waits here ([`WaitPermit`]). Above it, a direct
//! write is answered before its pages are dropped, and a direct read that needs the kernel to write
//! back fails with `EAGAIN`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::{Arc, OnceLock};

use fuser::{INodeNo, Notifier};
use parext4_sync::atomic::{AtomicUsize, Ordering};

use super::KernelPages;
use crate::connection::background_requests;
use crate::threads::WorkerPool;

/// Limit of threads that block on the kernel's pages. Further requests queue.
const MAX_THREADS: usize = 32;

/// Sends notifications to the kernel.
pub trait Kernel: fmt::Debug + Send + Sync {
    /// Makes the kernel write back and drop the pages of the `len` bytes at `offset` of an inode,
    /// or all pages from `offset` on if `len` is 0. Blocks until the pages are dropped.
    fn drop_pages(&self, ino: INodeNo, offset: i64, len: i64);

    /// Makes the kernel drop the attributes of an inode. Blocks while the kernel evicts the inode.
    fn drop_attributes(&self, ino: INodeNo);

    /// Makes the kernel forget a name of a directory. Blocks while requests of the kernel hold the
    /// directory.
    fn forget_name(&self, parent: INodeNo, name: &OsStr);
}

/// A notifier that is set once the volume is mounted.
impl Kernel for OnceLock<Notifier> {
    fn drop_pages(&self, ino: INodeNo, offset: i64, len: i64) {
        if let Some(notifier) = self.get() {
            // An error means that the kernel does not know the inode, and so has no page of it.
            let _ = notifier.inval_inode(ino, offset, len);
        }
    }

    fn drop_attributes(&self, ino: INodeNo) {
        /// A negative offset, which means only the attributes and no pages.
        const ATTRIBUTES_ONLY: i64 = -1;
        if let Some(notifier) = self.get() {
            // An error means that the kernel does not know the inode.
            let _ = notifier.inval_inode(ino, ATTRIBUTES_ONLY, 0);
        }
    }

    fn forget_name(&self, parent: INodeNo, name: &OsStr) {
        if let Some(notifier) = self.get() {
            // An error means that the kernel does not know the name.
            let _ = notifier.inval_entry(parent, name);
        }
    }
}

/// The threads that send the notifications, and their queues.
#[derive(Debug)]
pub struct Invalidation {
    /// Threads that block on pages.
    threads: WorkerPool,
    /// Threads that block on directories. Requests that hold a directory wait for `threads`, never
    /// for these.
    name_threads: WorkerPool,
    kernel: Arc<dyn Kernel>,
    /// Direct reads and writes that wait for the kernel.
    waiting_direct: Arc<AtomicUsize>,
    /// Maximum of `waiting_direct`.
    max_direct: usize,
}

/// Permission for a direct read or write to wait for the kernel. Dropping it makes room for another
/// one.
#[derive(Debug)]
pub struct WaitPermit(Arc<AtomicUsize>);

impl Drop for WaitPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Invalidation {
    pub(crate) fn new(kernel: Arc<dyn Kernel>) -> Self {
        Self::with_limits(kernel, MAX_THREADS, usize::from(background_requests() / 2))
    }

    /// Limits the threads that block on the kernel's pages, and the direct reads and writes that
    /// wait for it.
    pub fn with_limits(kernel: Arc<dyn Kernel>, max_threads: usize, max_direct: usize) -> Self {
        let threads = WorkerPool::new("parext4-kernel", max_threads);
        let name_threads = WorkerPool::new("parext4-names", max_threads);
        Self { threads, name_threads, kernel, waiting_direct: Arc::new(AtomicUsize::new(0)), max_direct }
    }

    /// Permits a direct read or write to wait for the kernel. Returns `None` if half of the
    /// kernel's background requests wait already: with more of them waiting, the kernel could not
    /// send the requests that they wait for.
    pub fn try_wait_for_kernel(&self) -> Option<WaitPermit> {
        // Relaxed, because the count guards no data.
        let already_waiting = self.waiting_direct.fetch_add(1, Ordering::Relaxed);
        let permit = WaitPermit(Arc::clone(&self.waiting_direct));
        (already_waiting < self.max_direct).then_some(permit)
    }

    /// Makes the kernel write back and drop all pages of an inode, waits until the server has
    /// answered the write-back requests that it has begun, and then calls `then`, which must not
    /// block. The caller does not block.
    pub fn drop_all(&self, pages: Arc<KernelPages>, then: impl FnOnce() + Send + 'static) {
        let kernel = Arc::clone(&self.kernel);
        self.threads.spawn(move || {
            pages.record_drop(|| kernel.drop_pages(pages.ino, 0, 0));
            pages.after_write_back(then);
        });
    }

    /// Makes the kernel drop the pages of the `len` bytes at `offset`, which were written directly,
    /// then calls `reply`, which must not block. Without a [permit](Self::try_wait_for_kernel),
    /// calls `reply` first. Does not block.
    pub fn drop_written(
        &self,
        pages: Arc<KernelPages>,
        offset: u64,
        len: usize,
        reply: impl FnOnce() + Send + 'static,
    ) {
        let kernel = Arc::clone(&self.kernel);
        let (offset, len) = (offset.cast_signed(), i64::try_from(len).unwrap_or(i64::MAX));
        let Some(permit) = self.try_wait_for_kernel() else {
            reply();
            return self.threads.spawn(move || kernel.drop_pages(pages.ino, offset, len));
        };
        self.threads.spawn(move || {
            kernel.drop_pages(pages.ino, offset, len);
            drop(permit);
            reply();
        });
    }

    /// Makes the kernel drop all pages of an inode, after a failed write has left its data in them.
    /// Does not block.
    pub fn drop_failed(&self, pages: &Arc<KernelPages>) {
        if pages.note_failed() {
            let (kernel, pages) = (Arc::clone(&self.kernel), Arc::clone(pages));
            self.threads.spawn(move || {
                pages.start_dropping_failed();
                pages.record_drop(|| kernel.drop_pages(pages.ino, 0, 0));
            });
        }
    }

    /// Queues a notification that makes the kernel forget the name `name` of `parent`. The thread
    /// that sends it blocks until the request that holds the directory ends; this call does not
    /// block.
    pub fn forget_name(&self, parent: INodeNo, name: OsString) {
        let kernel = Arc::clone(&self.kernel);
        self.name_threads.spawn(move || kernel.forget_name(parent, &name));
    }

    /// Returns the number of notifications that are queued or wait for the kernel.
    pub fn waiting(&self) -> usize {
        self.threads.unfinished() + self.name_threads.unfinished()
    }

    /// Sends all queued notifications and joins the threads. Later notifications are dropped.
    pub fn join(&self) {
        self.threads.join();
        self.name_threads.join();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn write_back_that_is_under_way_is_answered_before_the_pages_count_as_written() {
        let pages = Arc::new(KernelPages::new(INodeNo(12), true));
        let invalidation = Invalidation::new(Arc::new(OnceLock::new()));
        let request = pages.start_write_back();
        let (sender, written) = channel();
        invalidation.drop_all(Arc::clone(&pages), move || sender.send(()).unwrap());
        invalidation.join();
        assert!(written.try_recv().is_err(), "a write-back request is not answered");
        drop(request);
        written.try_recv().unwrap();
    }

    #[test]
    fn direct_writes_leave_room_for_the_requests_that_they_wait_for() {
        let pages = Arc::new(KernelPages::new(INodeNo(12), false));
        let invalidation = Invalidation::with_limits(Arc::new(OnceLock::new()), MAX_THREADS, 3);
        // All threads block, as on the kernel.
        let barrier = Arc::new(Barrier::new(MAX_THREADS + 1));
        for _ in 0..MAX_THREADS {
            let barrier = Arc::clone(&barrier);
            invalidation.drop_all(Arc::clone(&pages), move || {
                barrier.wait();
            });
        }
        let (reply, replies) = channel();
        for nth in 0..4 {
            let reply = reply.clone();
            invalidation.drop_written(Arc::clone(&pages), 0, 4096, move || reply.send(nth).unwrap());
        }
        assert_eq!(replies.try_iter().collect::<Vec<_>>(), [3]);
        barrier.wait();
        invalidation.join();
        assert_eq!(replies.try_iter().count(), 3);
        assert_eq!(invalidation.waiting_direct.load(Ordering::Relaxed), 0);
    }
}
