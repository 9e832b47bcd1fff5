//! Copying one regular file out of the volume.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Context, Result, ensure, refused};
use parext4::{DirectFile, Metadata};
use rustix::fs::{Mode, OFlags, openat};

use super::confined_path::{Dir, Identity, replace};
use super::created_entry::CreatedEntry;
use super::{Shared, attributes};
use crate::transfer::{Copy, GRAIN, Job};

/// A file to copy.
pub struct FileJob<'a> {
    pub file: DirectFile,
    /// The directory outside, and the name of the copy in it.
    pub dir: Dir,
    pub name: OsString,
    /// The path of the copy, for messages.
    pub path: PathBuf,
    /// Gets the identity of the copy, if the file has further names.
    pub identity: Option<Arc<OnceLock<Identity>>>,
    pub metadata: Metadata,
    pub shared: &'a Shared<'a>,
}

impl<'a> Job for FileJob<'a> {
    type Copy = FileCopy<'a>;
    type State = ();

    fn start(self, (): &mut ()) -> Result<Option<FileCopy<'a>>> {
        let open = || -> Result<fs::File> {
            // O_EXCL: never through a symbolic link. Only this user can read the file until it has
            // its own permissions.
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mode = Mode::RUSR | Mode::WUSR;
            let open = || openat(&*self.dir, &self.name, flags, mode);
            Ok(fs::File::from(replace(&self.shared.volume_files, &self.dir, &self.name, open)?))
        };
        let dest = open().with_context(|| self.path.display().to_string())?;
        Ok(Some(FileCopy { job: self, dest, is_settled: AtomicBool::new(false) }))
    }
}

/// A file that is being copied.
pub struct FileCopy<'a> {
    job: FileJob<'a>,
    dest: fs::File,
    /// It is complete, or an error says what was wrong with it.
    is_settled: AtomicBool,
}

/// The copy ended before the file was complete.
impl Drop for FileCopy<'_> {
    fn drop(&mut self) {
        if !*self.is_settled.get_mut() {
            let error = refused!("{}: incomplete, because the copy ended", self.dest());
            self.job.shared.report.error(error);
        }
    }
}

impl FileCopy<'_> {
    /// The name of the file in the volume.
    fn source(&self) -> String {
        self.job.shared.source_of(&self.job.path)
    }

    /// The name of its copy.
    fn dest(&self) -> String {
        self.job.path.display().to_string()
    }
}

impl Copy for FileCopy<'_> {
    fn size(&self) -> u64 {
        self.job.metadata.size
    }

    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        self.settle_failure(self.find_data(from))
    }

    fn copy(&self, offset: u64, len: usize, buffer: &mut [u8]) -> Result<()> {
        self.settle_failure(self.copy_chunk(offset, len, buffer))
    }

    fn finish(&self) -> Result<()> {
        let FileJob { file, path, metadata, shared, identity, .. } = &self.job;
        let entry = CreatedEntry::Open(&self.dest);
        let set = || -> Result<()> {
            // A copy has its full length only when it has all its data, however the command ends.
            // Ranges that are not written are holes.
            self.dest.set_len(metadata.size)?;
            attributes::set(&entry, path, file.inode_ref(), metadata, shared)?;
            // With its final owner, and before the inode can be freed.
            if let Some(identity) = identity {
                let _ = identity.set(entry.identity()?);
            }
            Ok(())
        };
        self.is_settled.store(true, Ordering::Relaxed);
        set().with_context(|| self.dest())?;
        self.job.shared.report.file_done();
        Ok(())
    }
}

impl FileCopy<'_> {
    fn settle_failure<R>(&self, result: Result<R>) -> Result<R> {
        if result.is_err() {
            self.is_settled.store(true, Ordering::Relaxed);
        }
        result
    }

    fn find_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        let data = self.job.file.data_range(from).with_context(|| self.source())?;
        let Some(Range { start, end }) = data else { return Ok(None) };
        let bytes = end.min(self.size()).saturating_sub(start);
        self.job.shared.data_limit.count(&self.job.metadata, bytes).with_context(|| self.source())?;
        Ok(Some(start..end))
    }

    fn copy_chunk(&self, offset: u64, len: usize, buffer: &mut [u8]) -> Result<()> {
        self.job.shared.report.check()?;
        // Reads whole sectors; the file may end within the last.
        let whole = len.next_multiple_of(usize::try_from(GRAIN)?).min(buffer.len());
        let count = self.job.file.read_at(&mut buffer[..whole], offset).with_context(|| self.source())?;
        ensure!(count >= len, "{}: the file ended at {} bytes", self.source(), offset + count as u64);
        self.dest.write_all_at(&buffer[..len], offset).with_context(|| self.dest())?;
        self.job.shared.report.moved(len as u64);
        Ok(())
    }
}
