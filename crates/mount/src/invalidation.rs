//! Drops the kernel's pages of a file in threads that may block on the kernel.
//!
//! `FUSE_NOTIFY_INVAL_INODE` blocks on each page that a request of the kernel has locked, and has dirty pages written
//! back, which takes further requests. So no thread that serves requests sends one. It hands the request that needs the
//! notification to this module, whose threads serve no requests. The server answers every request that locks a page
//! without this module, so each notification ends.
//!
//! Asynchronous direct I/O counts against the kernel's limit of background requests, as read-ahead and write-back do. At
//! most half of that limit waits here. Above it, a direct write is answered before its pages are dropped, and a direct
//! read that needs the kernel to write back fails with `EAGAIN`.

use std::fmt;
use std::sync::{Arc, OnceLock};

use fuser::{INodeNo, Notifier};

use crate::capabilities::background_requests;
use crate::kernel_pages::KernelPages;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::workers::Workers;

/// Limit of threads that block on the kernel. Further requests queue.
const THREADS: usize = 32;

/// The kernel, as far as notifications go.
pub trait Kernel: fmt::Debug + Send + Sync {
    /// Writes back and drops the pages of the `len` bytes at `offset` of an inode, or all pages from there on if `len` is 0.
    /// Blocks until they are dropped.
    fn drop_pages(&self, ino: INodeNo, offset: i64, len: i64);
}

/// Set once the volume is mounted.
impl Kernel for OnceLock<Notifier> {
    fn drop_pages(&self, ino: INodeNo, offset: i64, len: i64) {
        if let Some(notifier) = self.get() {
            // An error means that the kernel does not know the inode, and so has no page of it.
            let _ = notifier.inval_inode(ino, offset, len);
        }
    }
}

/// The threads that send the notifications, and their queue.
#[derive(Debug)]
pub struct Invalidation {
    threads: Workers,
    kernel: Arc<dyn Kernel>,
    /// Direct reads and writes that wait for the kernel.
    direct: Arc<AtomicUsize>,
    most_direct: usize,
}

/// Counts a direct read or write as waiting for the kernel until it is dropped.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Invalidation {
    pub(crate) fn new(kernel: Arc<dyn Kernel>) -> Self {
        Self::with_limits(kernel, THREADS, usize::from(background_requests() / 2))
    }

    /// At most `threads` threads block on the kernel, and at most `most_direct` direct reads and writes wait for it.
    pub fn with_limits(kernel: Arc<dyn Kernel>, threads: usize, most_direct: usize) -> Self {
        let (threads, direct) = (Workers::new("parext4-kernel", threads), Arc::new(AtomicUsize::new(0)));
        Self { threads, kernel, direct, most_direct }
    }

    /// Lets a direct read or write wait for the kernel. `None` if half of the kernel's background requests wait already:
    /// more of them would keep the kernel from sending the requests that they wait for.
    pub fn place(&self) -> Option<Place> {
        // Relaxed: the count guards no data.
        let place = (self.direct.fetch_add(1, Ordering::Relaxed), Place(Arc::clone(&self.direct)));
        (place.0 < self.most_direct).then_some(place.1)
    }

    /// Has the kernel write back and drop all pages of an inode, then runs `then`, which must not wait.
    pub fn drop_all(&self, pages: Arc<KernelPages>, then: impl FnOnce() + Send + 'static) {
        let kernel = Arc::clone(&self.kernel);
        self.threads.give(move || {
            pages.while_dropped(|| kernel.drop_pages(pages.ino, 0, 0));
            then();
        });
    }

    /// Has the kernel drop the pages of the `len` bytes at `offset`, which were written directly, then runs `answer`, which
    /// must not wait. Without a free [`place`](Self::place), runs `answer` first.
    pub fn drop_written(
        &self,
        pages: Arc<KernelPages>,
        offset: u64,
        len: usize,
        answer: impl FnOnce() + Send + 'static,
    ) {
        let kernel = Arc::clone(&self.kernel);
        let (offset, len) = (offset.cast_signed(), i64::try_from(len).unwrap_or(i64::MAX));
        let Some(place) = self.place() else {
            answer();
            return self.threads.give(move || kernel.drop_pages(pages.ino, offset, len));
        };
        self.threads.give(move || {
            kernel.drop_pages(pages.ino, offset, len);
            drop(place);
            answer();
        });
    }

    /// Has the kernel drop all pages of an inode, after a write that has been answered left data there though it failed.
    pub fn drop_failed(&self, pages: &Arc<KernelPages>) {
        if pages.note_failed() {
            let (kernel, pages) = (Arc::clone(&self.kernel), Arc::clone(pages));
            self.threads.give(move || {
                pages.begin_to_drop_failed();
                pages.while_dropped(|| kernel.drop_pages(pages.ino, 0, 0));
            });
        }
    }

    /// Returns the number of requests that wait for the kernel.
    pub fn under_way(&self) -> usize {
        self.threads.unfinished()
    }

    /// Waits until all notifications handed over are done; later ones are dropped.
    pub fn finish(&self) {
        self.threads.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn direct_writes_leave_places_for_what_they_wait_for() {
        let pages = Arc::new(KernelPages::new(INodeNo(12), false));
        let invalidation = Invalidation::with_limits(Arc::new(OnceLock::new()), THREADS, 3);
        // All threads block, as on the kernel.
        let stuck = Arc::new(Barrier::new(THREADS + 1));
        for _ in 0..THREADS {
            let stuck = Arc::clone(&stuck);
            invalidation.drop_all(Arc::clone(&pages), move || {
                stuck.wait();
            });
        }
        let (answer, answers) = channel();
        for nth in 0..4 {
            let answer = answer.clone();
            invalidation.drop_written(Arc::clone(&pages), 0, 4096, move || answer.send(nth).unwrap());
        }
        assert_eq!(answers.try_iter().collect::<Vec<_>>(), [3]);
        stuck.wait();
        invalidation.finish();
        assert_eq!(answers.try_iter().count(), 3);
        assert_eq!(invalidation.direct.load(Ordering::Relaxed), 0);
    }
}
