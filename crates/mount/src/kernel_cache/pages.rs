//! Tracks whether the kernel's page cache may hold pages of an inode, from the requests that fill
//! it.
//!
//! The kernel fills its pages by reads and writes of whole pages, which it sends without the owner
//! of a lock; direct requests name an owner. Pages may outlive all open files, so the record lives
//! until the kernel has forgotten the inode.

use std::sync::Arc;

use fuser::{Errno, INodeNo};
use parext4_sync::Mutex;
use parext4_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::write_back::{WriteBack, WriteBackRequest};

/// The kernel's pages of one inode.
#[derive(Debug)]
pub struct KernelPages {
    pub(crate) ino: INodeNo,
    /// Number of requests that filled pages. A request is counted before it reads the data: if a
    /// direct write finds the count unchanged after it has written, every later fill reads its
    /// data.
    fills: AtomicU64,
    /// Value of `fills` before all pages were last dropped.
    dropped: AtomicU64,
    /// Number of open files through which a program can dirty pages without a request: by a shared
    /// mapping, and with `cache=writeback` by every write.
    writers: AtomicUsize,
    /// The `writers` that were opened while the file was append-only, if it has been since.
    appenders: Mutex<Appenders>,
    /// Reference that each file open for writing shares.
    write_access: Arc<WriteAccess>,
    /// 1 while a notification is queued that drops the data of failed writes, else 0.
    dropping_failed: AtomicUsize,
    /// The failed write-back. The lock is held while a writer is counted.
    lost: Mutex<Lost>,
    /// The write-back requests in progress.
    write_back: WriteBack,
    /// True if writes stay in the kernel's page cache (`cache=writeback`).
    writeback: bool,
}

/// The write-back requests that have failed.
#[derive(Debug, Default)]
struct Lost {
    /// Error of the last failed request, see [`KernelPages::lost`].
    errno: Option<Errno>,
    count: u64,
}

#[derive(Debug, Default)]
struct Appenders {
    count: usize,
    /// Number of times that the file has ceased to be append-only.
    period: u64,
}

/// An open file through which a program can dirty the kernel's pages. It counts until it is
/// dropped.
#[derive(Debug)]
pub(crate) struct PageWriter {
    pages: Arc<KernelPages>,
    /// The period in which the file was append-only when it was opened.
    append_only: Option<u64>,
}

/// A token that is held while a file is open for writing.
#[derive(Debug, Default)]
pub(crate) struct WriteAccess(());

impl KernelPages {
    /// Returns the record of an inode of which the kernel has no pages.
    pub fn new(ino: INodeNo, writeback: bool) -> Self {
        let (fills, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        let (writers, appenders) = (AtomicUsize::new(0), Mutex::default());
        let (dropping_failed, lost) = (AtomicUsize::new(0), Mutex::default());
        let (write_back, write_access) = (WriteBack::default(), Arc::default());
        Self {
            ino,
            fills,
            dropped,
            writers,
            appenders,
            write_access,
            dropping_failed,
            lost,
            write_back,
            writeback,
        }
    }

    /// Counts a file as open for writing until the result is dropped.
    pub(crate) fn open_for_writing(&self) -> Arc<WriteAccess> {
        Arc::clone(&self.write_access)
    }

    /// Returns true if a file is open for writing, in any cache mode.
    pub fn is_open_for_writing(&self) -> bool {
        Arc::strong_count(&self.write_access) > 1
    }

    /// Counts a request that fills pages, before the request reads the data.
    pub fn note_fill(&self) {
        self.fills.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts an open file that can dirty pages.
    pub(crate) fn add_writer(self: &Arc<Self>, append_only: bool) -> PageWriter {
        // The lock is held over both counts, because they are compared.
        let mut appenders = self.appenders.lock();
        let mut lost = self.lost.lock();
        if self.writers.fetch_add(1, Ordering::SeqCst) == 0 {
            lost.errno = None;
        }
        appenders.count += usize::from(append_only);
        let append_only = append_only.then_some(appenders.period);
        PageWriter { pages: Arc::clone(self), append_only }
    }

    /// Stops counting open files as appenders, because the file has ceased to be append-only, so
    /// any of them may be mapped.
    pub(crate) fn forget_appenders(&self) {
        let mut appenders = self.appenders.lock();
        appenders.count = 0;
        appenders.period += 1;
    }

    /// Returns true if all open files that can dirty pages were opened when the file was
    /// append-only, as it has been since. Then data that the kernel writes back was stored to a
    /// mapping, which the kernel's ext4 would have refused, but FUSE permits. A mapping keeps its
    /// file open until its pages are written back.
    pub fn are_only_mapped_by_appenders(&self) -> bool {
        let appenders = self.appenders.lock();
        appenders.count == self.writers.load(Ordering::SeqCst)
    }

    /// Returns true if the kernel may have pages, dirty or clean.
    pub fn may_exist(&self) -> bool {
        self.fills.load(Ordering::SeqCst) != self.dropped.load(Ordering::SeqCst)
            || self.writeback && self.has_writer()
    }

    /// Returns true if the kernel may have dirty pages, or has sent data of them in a write-back
    /// request that is not answered.
    pub fn may_be_dirty(&self) -> bool {
        self.has_writer() && (self.may_exist() || !self.write_back.is_idle())
    }

    /// Returns true if the file may be longer in the kernel than in the volume.
    pub fn may_be_longer(&self) -> bool {
        self.writeback && self.has_writer()
    }

    /// Returns true if a handle, or a mapping that was made through one, may write to the file.
    pub fn has_writer(&self) -> bool {
        self.writers.load(Ordering::SeqCst) > 0
    }

    /// Counts a write-back request from its arrival until it is answered.
    pub fn start_write_back(&self) -> WriteBackRequest {
        self.write_back.start()
    }

    /// Runs `action`, which must not block, once all write-back requests that have arrived are
    /// answered.
    pub(crate) fn after_write_back(&self, action: impl FnOnce() + Send + 'static) {
        self.write_back.after_current(action);
    }

    /// Records that a write-back request has failed. The kernel marks its pages clean, so their
    /// data is lost.
    pub(crate) fn note_lost(&self, errno: Errno) {
        let mut lost = self.lost.lock();
        *lost = Lost { errno: Some(errno), count: lost.count + 1 };
    }

    /// Returns the number of write-back requests that have failed.
    pub(crate) fn losses(&self) -> u64 {
        self.lost.lock().count
    }

    /// Forgets the error of a failed write-back, because the kernel has sent an fsync(2), and it
    /// sends none while it reports a failure itself. Keeps the error if more write-back requests
    /// have failed than the `losses` from before the fsync(2), which does not report the later
    /// ones.
    pub(crate) fn forget_reported(&self, losses: u64) {
        let mut lost = self.lost.lock();
        if lost.count == losses {
            lost.errno = None;
        }
    }

    /// Forgets the error of a failed write-back, because all data was truncated.
    pub(crate) fn forget_lost(&self) {
        self.lost.lock().errno = None;
    }

    /// Returns the error of the last failed write-back request, unless it was forgotten. A file
    /// through which a program can dirty pages must have been open ever since. The first close
    /// after the failure returns the error, too.
    pub(crate) fn lost(&self) -> Option<Errno> {
        let lost = self.lost.lock();
        lost.errno.filter(|_| self.has_writer())
    }

    /// Records that a failed write has left its data in the kernel's pages. Returns false if a
    /// queued notification will drop them: many failed writes share one notification.
    pub fn note_failed(&self) -> bool {
        self.dropping_failed.swap(1, Ordering::SeqCst) == 0
    }

    /// Records that the queued notification starts. It may miss the data of writes that fail from
    /// now on.
    pub fn start_dropping_failed(&self) {
        self.dropping_failed.store(0, Ordering::SeqCst);
    }

    /// Runs `drop_all`, which makes the kernel drop all pages. Pages that are filled while it runs
    /// count as present.
    pub fn record_drop(&self, drop_all: impl FnOnce()) {
        let fills = self.fills.load(Ordering::SeqCst);
        drop_all();
        self.dropped.fetch_max(fills, Ordering::SeqCst);
    }
}

impl Drop for PageWriter {
    fn drop(&mut self) {
        let mut appenders = self.pages.appenders.lock();
        appenders.count -= usize::from(self.append_only == Some(appenders.period));
        self.pages.writers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_exist_from_a_fill_until_all_are_dropped() {
        let pages = KernelPages::new(INodeNo(12), false);
        assert!(!pages.may_exist());
        pages.note_fill();
        assert!(pages.may_exist());
        pages.record_drop(|| pages.note_fill());
        assert!(pages.may_exist(), "filled while they were dropped");
        pages.record_drop(|| ());
        assert!(!pages.may_exist());
    }

    #[test]
    fn many_failed_writes_share_one_queued_notification() {
        let pages = KernelPages::new(INodeNo(12), false);
        assert!(pages.note_failed());
        assert!(!pages.note_failed());
        pages.start_dropping_failed();
        assert!(pages.note_failed(), "the notification that has started may have passed the page already");
    }

    #[test]
    fn lost_data_is_reported_until_a_sync_or_the_last_close() {
        let pages = Arc::new(KernelPages::new(INodeNo(12), true));
        let lost = || pages.lost().map(Errno::code);
        let first = pages.add_writer(false);
        pages.note_lost(Errno::ENOSPC);
        let second = pages.add_writer(false);
        drop(first);
        assert_eq!(lost(), Some(libc::ENOSPC));
        pages.forget_reported(pages.losses());
        assert_eq!(lost(), None);
        let losses = pages.losses();
        pages.note_lost(Errno::EIO);
        pages.forget_reported(losses);
        assert_eq!(lost(), Some(libc::EIO), "lost after the sync began");
        pages.forget_lost();
        assert_eq!(lost(), None);
        pages.note_lost(Errno::EIO);
        drop(second);
        assert_eq!(lost(), None);
        let _third = pages.add_writer(false);
        assert_eq!(lost(), None);
    }

    #[test]
    fn only_a_writer_makes_pages_dirty() {
        for writeback in [false, true] {
            let pages = Arc::new(KernelPages::new(INodeNo(12), writeback));
            let writer = pages.add_writer(false);
            assert_eq!((pages.may_be_dirty(), pages.may_be_longer()), (writeback, writeback));
            pages.note_fill();
            assert!(pages.may_be_dirty());
            let request = pages.start_write_back();
            pages.record_drop(|| ());
            assert!(pages.may_be_dirty(), "the request may fail");
            drop(request);
            assert_eq!(pages.may_be_dirty(), writeback);
            pages.note_fill();
            assert!(!pages.are_only_mapped_by_appenders());
            let appender = pages.add_writer(true);
            assert!(!pages.are_only_mapped_by_appenders());
            drop(writer);
            assert!(pages.are_only_mapped_by_appenders());
            pages.forget_appenders();
            assert!(!pages.are_only_mapped_by_appenders());
            let later = pages.add_writer(true);
            drop(appender);
            assert!(pages.are_only_mapped_by_appenders());
            drop(later);
            assert!(!pages.may_be_dirty() && pages.may_exist() && !pages.may_be_longer());
        }
    }
}
