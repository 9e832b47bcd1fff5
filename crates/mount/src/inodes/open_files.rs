//! Open files by their handles.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::OnceLock;

use fuser::FileHandle;
use parext4::server::{ServerDirectFile, ServerInode};
use parext4::{Credentials, DirectFile, File, InodeFlags, InodeId};
use parext4_sync::RwLock;
use parext4_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use slab::Slab;

use crate::kernel_cache::{KernelPages, PageWriter, WriteAccess};
use crate::options::Cache;
use crate::protocol::{Failure, Outcome};

/// The part of a file that a change makes durable before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    None,
    Data,
    DataAndAttributes,
}

impl Durability {
    /// Decodes the flags of an open file.
    pub fn of_flags(flags: i32) -> Self {
        match flags & libc::O_SYNC {
            libc::O_SYNC => Self::DataAndAttributes,
            libc::O_DSYNC => Self::Data,
            _ => Self::None,
        }
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The file. It acts on behalf of the process that opened it, because data that the kernel
    /// writes back has no other sender.
    pub file: DirectFile,
    /// The flags of open(2).
    flags: i32,
    /// True if the file was opened with `O_DIRECT`.
    pub direct: bool,
    /// True if the kernel passes on every read and write, without its page cache.
    pub bypasses_kernel: bool,
    /// The kernel's pages of the inode.
    pub pages: Arc<KernelPages>,
    /// `Some` if a program can dirty the kernel's pages through this file.
    _page_writer: Option<PageWriter>,
    /// `Some` if a program may write to this file.
    _write_access: Option<Arc<WriteAccess>>,
    /// True if writes through `file` do not set its times. The kernel sets the times for data that
    /// it writes back, and may send the times before the data.
    pub keeps_times: bool,
    /// True if the inode was append-only when the file was opened.
    pub append_only: bool,
    /// The part of the file that an allocation or a copy makes durable. A write request has its own
    /// flags.
    pub durability: Durability,
    /// The file through the volume's page cache, created at the first such use.
    buffered: OnceLock<File>,
    /// The value of [`OpenFiles::capabilities_set`] when the inode was last seen without file
    /// capabilities.
    without_capabilities: AtomicU64,
}

impl OpenFile {
    /// Creates an open file. `receives_times` is true if the server gets the kernel's times of data
    /// that the kernel writes back. `direct_is_coherent` is true if the kernel writes back and
    /// drops its pages of a range before it passes on a request that bypasses them.
    pub fn new(
        file: DirectFile,
        pages: Arc<KernelPages>,
        flags: i32,
        cache: Cache,
        receives_times: bool,
        direct_is_coherent: bool,
    ) -> Self {
        let append_only = file.inode_ref().flags().contains(InodeFlags::APPEND);
        let direct = flags & libc::O_DIRECT != 0;
        let access = flags & libc::O_ACCMODE;
        let needs_no_pages = match cache {
            // A file that is only written needs no pages, and without them the kernel copies the
            // data once less.
            Cache::Kernel => direct || access == libc::O_WRONLY,
            Cache::Writeback => direct,
            Cache::Direct => true,
        };
        // With `cache=direct` no page is ever dirty if direct requests are not coherent: such files
        // cannot be mapped then.
        let is_coherent = direct_is_coherent || cache == Cache::Direct;
        // The kernel writes back whole pages, so it would also overwrite the old data of an
        // append-only file.
        let bypasses_kernel = append_only || needs_no_pages && is_coherent;
        // The kernel may write back through any handle, even a direct one.
        let keeps_times = cache == Cache::Writeback && receives_times && !append_only;
        // A shared writable mapping needs a file that is open for reading and writing.
        let dirties_pages = access == libc::O_RDWR || cache == Cache::Writeback && access != libc::O_RDONLY;
        // Handles and mappings from before the append-only flag was set stay writable.
        let file = file.checked_when_opened();
        let page_writer = dirties_pages.then(|| pages.add_writer(append_only));
        if append_only && !file.inode_ref().flags().contains(InodeFlags::APPEND) {
            // Another thread may have cleared the flag before the writer was counted.
            pages.forget_appenders();
        }
        let write_access = (access != libc::O_RDONLY).then(|| pages.open_for_writing());
        Self {
            _page_writer: page_writer,
            _write_access: write_access,
            pages,
            file: if keeps_times { file.keeping_times() } else { file },
            flags,
            direct,
            bypasses_kernel,
            keeps_times,
            append_only,
            durability: Durability::of_flags(flags),
            buffered: OnceLock::new(),
            without_capabilities: AtomicU64::new(NEVER),
        }
    }

    /// Returns true if a request of a handle that has `flags` now bypasses the volume's page cache:
    /// the handle was opened with `O_DIRECT`, and still has the flag.
    pub fn is_direct(&self, flags: i32) -> bool {
        self.direct && flags & libc::O_DIRECT != 0
    }

    /// Returns the file through the volume's page cache.
    pub fn buffered(&self) -> Outcome<&File> {
        if let Some(buffered) = self.buffered.get() {
            return Ok(buffered);
        }
        let buffered = self.file.buffered()?;
        Ok(self.buffered.get_or_init(|| buffered))
    }

    /// Like [`buffered`](Self::buffered), to act on behalf of a caller with `credentials`. Returns
    /// a new handle only if they differ from the credentials of the process that opened the file,
    /// because dropping a handle may start write-back.
    pub fn buffered_for(&self, credentials: Credentials) -> Outcome<Cow<'_, File>> {
        let buffered = self.buffered()?;
        Ok(match self.file.credentials() == credentials {
            true => Cow::Borrowed(buffered),
            false => Cow::Owned(buffered.clone().with_credentials(credentials)),
        })
    }

    /// Makes the data durable, and all attributes unless `data_only`.
    pub fn sync(&self, data_only: bool) -> Outcome<()> {
        match (self.buffered.get(), data_only) {
            (Some(buffered), true) => buffered.sync_data()?,
            (Some(buffered), false) => buffered.sync_all()?,
            (None, true) => self.file.sync_data()?,
            (None, false) => self.file.sync_all()?,
        }
        Ok(())
    }
}

/// An open file without its volume.
#[derive(Debug)]
pub(crate) struct ReleasedFile {
    pub id: InodeId,
    pub credentials: Credentials,
    pub flags: i32,
    pub pages: Arc<KernelPages>,
}

/// All handles, with their files.
type ReleasedFiles = Vec<(usize, Option<ReleasedFile>)>;

/// A value that [`OpenFiles::capabilities_set`] never has.
const NEVER: u64 = u64::MAX;

/// All open files.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    /// The open files by handle. `None` is a handle whose file could not be opened again: no other
    /// file gets the handle until the kernel closes it.
    files: RwLock<Slab<Option<Arc<OpenFile>>>>,
    /// Number of requests that have set file capabilities, of any file.
    capabilities_set: AtomicU64,
    /// Whether files that bypass the kernel's page cache are coherent with mappings.
    direct_is_coherent: AtomicBool,
}

impl OpenFiles {
    pub fn add(&self, file: OpenFile) -> FileHandle {
        FileHandle(self.files.write().insert(Some(Arc::new(file))) as u64)
    }

    pub fn get(&self, handle: FileHandle) -> Outcome<Arc<OpenFile>> {
        let key = usize::try_from(handle.0).unwrap_or(usize::MAX);
        self.files.read().get(key).cloned().flatten().ok_or(Failure::STALE)
    }

    /// Returns the kernel's pages of all open files.
    pub fn pages(&self) -> Vec<Arc<KernelPages>> {
        self.pages_if(|_| true)
    }

    /// Returns the kernel's pages of all open files of which a program may have dirtied some.
    pub fn dirty_pages(&self) -> Vec<Arc<KernelPages>> {
        self.pages_if(KernelPages::may_be_dirty)
    }

    /// Returns the pages that meet a condition, once for each inode.
    fn pages_if(&self, condition: impl Fn(&KernelPages) -> bool) -> Vec<Arc<KernelPages>> {
        let files = self.files.read();
        let pages = files.iter().filter_map(|(_, open)| open.as_ref()).map(|open| &open.pages);
        let mut pages: Vec<_> = pages.filter(|pages| condition(pages)).map(Arc::clone).collect();
        drop(files);
        pages.sort_unstable_by_key(|pages| pages.ino.0);
        pages.dedup_by(|one, other| Arc::ptr_eq(one, other));
        pages
    }

    /// Closes a handle. Dropping the returned file may block on the volume.
    pub fn remove(&self, handle: FileHandle) -> Option<Arc<OpenFile>> {
        let key = usize::try_from(handle.0).unwrap_or(usize::MAX);
        self.files.write().try_remove(key).flatten()
    }

    /// Sets whether files that bypass the kernel's page cache are coherent with mappings. The
    /// caller calls this before the first request.
    pub fn set_direct_is_coherent(&self, is_coherent: bool) {
        self.direct_is_coherent.store(is_coherent, Ordering::Relaxed);
    }

    /// Returns true if files that bypass the kernel's page cache are coherent with mappings.
    pub fn direct_is_coherent(&self) -> bool {
        self.direct_is_coherent.load(Ordering::Relaxed)
    }

    /// Returns true if an open file may have file capabilities, which a write has to remove.
    pub fn may_have_capabilities(&self, open: &OpenFile) -> bool {
        open.without_capabilities.load(Ordering::Acquire) != self.capabilities_set.load(Ordering::Acquire)
    }

    /// Removes the file capabilities of an open file, and records that it has none.
    pub fn remove_capabilities(&self, open: &OpenFile) -> Outcome<()> {
        // The count is loaded before the attribute is read, so that a file whose capabilities are
        // set meanwhile counts as one that may have them.
        let seen = self.capabilities_set.load(Ordering::Acquire);
        if open.without_capabilities.load(Ordering::Acquire) != seen {
            open.file.inode_ref().remove_capabilities()?;
            open.without_capabilities.store(seen, Ordering::Release);
        }
        Ok(())
    }

    /// Notes that a request has set file capabilities.
    pub fn note_capabilities_set(&self) {
        self.capabilities_set.fetch_add(1, Ordering::AcqRel);
    }

    /// Drops all open files, and with them their references to the volume. The handles stay open
    /// until [`restore`](Self::restore).
    pub fn release_volume(&self) -> ReleasedFiles {
        let files = std::mem::take(&mut *self.files.write());
        let release = |open: Arc<OpenFile>| ReleasedFile {
            id: open.file.inode_ref().id(),
            credentials: open.file.credentials(),
            flags: open.flags,
            pages: Arc::clone(&open.pages),
        };
        files.into_iter().map(|(handle, open)| (handle, open.map(release))).collect()
    }

    /// Opens files again with their handles. A handle whose file fails to open is stale.
    pub fn restore(&self, files: &ReleasedFiles, open: impl Fn(&ReleasedFile) -> Outcome<OpenFile>) {
        let open = |file: &ReleasedFile| open(file).ok().map(Arc::new);
        let restored = files.iter().map(|(handle, file)| (*handle, file.as_ref().and_then(open)));
        *self.files.write() = restored.collect();
    }

    /// Closes all handles.
    pub fn clear(&self) {
        drop(std::mem::take(&mut *self.files.write()));
    }
}
