//! Open files, by the number that the kernel has for each.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::FileHandle;
use parext4::{BufferedFile, BufferedOptions, File, InodeFlags, Node};
use parking_lot::RwLock;
use slab::Slab;

use crate::failure::{Failure, Outcome};
use crate::options::Cache;

/// One open file. Its file also stands for all others of its inode.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub file: File,
    /// Opened with `O_DIRECT`.
    pub direct: bool,
    /// The kernel keeps the contents.
    pub in_kernel: bool,
    /// Writes by `file` do not date it: the kernel does, for what it writes back, and that may come after the date.
    pub keeps_times: bool,
    pub writable: bool,
    /// Opened by somebody who may use reserved blocks. What is written back later has no other sender.
    pub may_use_reserved: bool,
    /// The inode can only be appended to.
    pub append_only: bool,
    /// Goes through the volume's page cache, from its first such use on.
    buffered: OnceLock<BufferedFile>,
    /// Whether `security.capability` is known to be gone.
    unprivileged: AtomicBool,
}

impl OpenFile {
    pub fn new(file: File, flags: i32, cache: Cache, may_use_reserved: bool) -> Self {
        let append_only = file.node().flags().contains(InodeFlags::APPEND);
        let direct = flags & libc::O_DIRECT != 0;
        // The kernel would write whole pages back, and so what an append-only file has already.
        let in_kernel = cache == Cache::Kernel && !direct && !append_only;
        // It writes back by any handle, also one that is direct.
        let keeps_times = cache == Cache::Kernel && !append_only;
        Self {
            file: if keeps_times { file.keeping_times() } else { file },
            direct,
            in_kernel,
            keeps_times,
            writable: flags & libc::O_ACCMODE != libc::O_RDONLY,
            may_use_reserved,
            append_only,
            buffered: OnceLock::new(),
            unprivileged: AtomicBool::new(false),
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

    /// Whether file capabilities may still be there.
    pub fn may_be_privileged(&self) -> bool {
        // Relaxed: to look once more does no harm.
        !self.unprivileged.load(Ordering::Relaxed)
    }

    /// Notes that file capabilities are gone; later ones count from the next opening on.
    pub fn set_unprivileged(&self) {
        self.unprivileged.store(true, Ordering::Relaxed);
    }
}

/// All open files.
#[derive(Debug, Default)]
pub(crate) struct Handles(RwLock<Slab<Arc<OpenFile>>>);

impl Handles {
    pub fn add(&self, file: OpenFile) -> FileHandle {
        FileHandle(self.0.write().insert(Arc::new(file)) as u64)
    }

    pub fn get(&self, handle: FileHandle) -> Outcome<Arc<OpenFile>> {
        let key = usize::try_from(handle.0).unwrap_or(usize::MAX);
        self.0.read().get(key).cloned().ok_or(Failure::STALE)
    }

    /// Forgets a handle; the file is closed after the lock.
    pub fn remove(&self, handle: FileHandle) {
        let key = usize::try_from(handle.0).unwrap_or(usize::MAX);
        let removed = self.0.write().try_remove(key);
        drop(removed);
    }

    /// Whether a file is open for writing, so that the kernel may have what we do not.
    pub fn has_writer(&self, node: &Node) -> bool {
        self.0.read().iter().any(|(_, open)| open.writable && open.file.node().ino() == node.ino())
    }

    pub fn clear(&self) {
        drop(std::mem::take(&mut *self.0.write()));
    }
}
