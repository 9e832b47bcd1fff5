//! Open files, by the number that the kernel has for each.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::FileHandle;
use parext4::{BufferedFile, BufferedOptions, File, InodeFlags};
use parking_lot::RwLock;
use slab::Slab;

use crate::failure::{Failure, Outcome};
use crate::kernel_pages::{KernelPages, PageWriter};
use crate::options::Cache;

/// One open file. Its file also stands for all others of its inode.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub file: File,
    /// Opened with `O_DIRECT`.
    pub direct: bool,
    /// Reads and writes go through the kernel's page cache.
    pub in_kernel: bool,
    /// What the kernel may have of the inode.
    pub pages: Arc<KernelPages>,
    /// A program can dirty the kernel's pages through this file.
    _page_writer: Option<PageWriter>,
    /// Writes by `file` do not date it: the kernel does, for what it writes back, and that may come after the date.
    pub keeps_times: bool,
    /// Opened by somebody who may use reserved blocks. What is written back later has no other sender.
    pub may_use_reserved: bool,
    /// The inode can only be appended to.
    pub append_only: bool,
    /// Goes through the volume's page cache, from its first such use on.
    buffered: OnceLock<BufferedFile>,
    /// The value of [`Handles::capabilities`] when the inode was last seen to have no file capabilities.
    without_capabilities: AtomicU64,
}

impl OpenFile {
    pub fn new(
        file: File,
        pages: Arc<KernelPages>,
        flags: i32,
        cache: Cache,
        may_use_reserved: bool,
    ) -> Self {
        let append_only = file.node().flags().contains(InodeFlags::APPEND);
        let direct = flags & libc::O_DIRECT != 0;
        let access = flags & libc::O_ACCMODE;
        let caches = match cache {
            // Without pages to fill, the kernel passes a write on with one copy less.
            Cache::Kernel => access != libc::O_WRONLY,
            Cache::Writeback => true,
            Cache::Direct => false,
        };
        // The kernel would write whole pages back, and so what an append-only file has already.
        let in_kernel = caches && !direct && !append_only;
        // It writes back by any handle, also one that is direct.
        let keeps_times = cache == Cache::Writeback && !append_only;
        // A shared mapping that can be written needs a file that is open for both.
        let dirties_pages = access == libc::O_RDWR || cache == Cache::Writeback && access != libc::O_RDONLY;
        // Handles and mappings that are older than the append-only flag stay writable.
        let file = file.checked_when_opened();
        Self {
            _page_writer: dirties_pages.then(|| pages.add_writer(append_only)),
            pages,
            file: if keeps_times { file.keeping_times() } else { file },
            direct,
            in_kernel,
            keeps_times,
            may_use_reserved,
            append_only,
            buffered: OnceLock::new(),
            without_capabilities: AtomicU64::new(NEVER),
        }
    }

    /// The file through the volume's page cache.
    pub fn buffered(&self) -> Outcome<&BufferedFile> {
        if let Some(buffered) = self.buffered.get() {
            return Ok(buffered);
        }
        let buffered = self.file.buffered(BufferedOptions::default())?;
        Ok(self.buffered.get_or_init(|| buffered))
    }

    /// Makes the data durable, and all attributes if asked.
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

/// No value of [`Handles::capabilities`].
const NEVER: u64 = u64::MAX;

/// All open files.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    files: RwLock<Slab<Arc<OpenFile>>>,
    /// How often file capabilities were set, of any file.
    capabilities: AtomicU64,
}

impl Handles {
    pub fn add(&self, file: OpenFile) -> FileHandle {
        FileHandle(self.files.write().insert(Arc::new(file)) as u64)
    }

    pub fn get(&self, handle: FileHandle) -> Outcome<Arc<OpenFile>> {
        let key = usize::try_from(handle.0).unwrap_or(usize::MAX);
        self.files.read().get(key).cloned().ok_or(Failure::STALE)
    }

    /// Forgets a handle; the file is closed after the lock.
    pub fn remove(&self, handle: FileHandle) {
        let key = usize::try_from(handle.0).unwrap_or(usize::MAX);
        let removed = self.files.write().try_remove(key);
        drop(removed);
    }

    /// Whether an open file may have file capabilities, so that a write has to remove them.
    pub fn may_have_capabilities(&self, open: &OpenFile) -> bool {
        open.without_capabilities.load(Ordering::Acquire) != self.capabilities.load(Ordering::Acquire)
    }

    /// Removes the file capabilities of an open file, and remembers that there are none.
    pub fn remove_capabilities(&self, open: &OpenFile) -> Outcome<()> {
        // Read before the attribute is: if it is set after that, the file counts as one that may have some.
        let seen = self.capabilities.load(Ordering::Acquire);
        if open.without_capabilities.load(Ordering::Acquire) != seen {
            open.file.node().remove_capabilities()?;
            open.without_capabilities.store(seen, Ordering::Release);
        }
        Ok(())
    }

    /// Notes that a file has got file capabilities.
    pub fn note_capabilities(&self) {
        self.capabilities.fetch_add(1, Ordering::AcqRel);
    }

    pub fn clear(&self) {
        drop(std::mem::take(&mut *self.files.write()));
    }
}
