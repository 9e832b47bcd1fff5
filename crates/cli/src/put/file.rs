//! Copying one regular file into the volume.

use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use parext4::{DirectFile, SetAttributes};
use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;

use super::Shared;
use super::attributes::Attributes;
use super::place::{Place, Slot};
use super::xattrs::{self, Source};
use crate::transfer::Copy;

/// Bytes of a block as stat(2) counts them.
const BLOCK: u64 = 512;
/// Files up to this many bytes are small.
pub const SMALL: usize = 128 << 10;

/// A file to copy.
pub struct FileJob {
    pub source: PathBuf,
    pub place: Place,
    /// Takes the copy if the file has several names.
    pub slot: Option<Slot>,
    pub shared: Arc<Shared>,
}

impl FileJob {
    /// Opens the source, and makes the copy without data.
    pub fn open(self) -> Result<FileCopy> {
        // It was a regular file when the walk read its directory. If it is a FIFO now, opening must not block.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let source =
            OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(&self.source);
        let source = source.with_context(|| self.source.display().to_string())?;
        let metadata = source.metadata()?;
        ensure!(metadata.is_file(), "{}: changed its type while it was copied", self.source.display());
        let attributes = self.shared.rules.of_file(&metadata);
        let new = attributes.new_inode();
        let node = self
            .place
            .replace(|dir, name| dir.create(name, &new))
            .with_context(|| self.shared.name(&self.place.path))?;
        if let Some(slot) = &self.slot {
            let _ = slot.set(node.id());
        }
        let created = CreatedFile { job: self, file: DirectFile::new(node)?, size: metadata.len() };
        Ok(FileCopy { created, source, metadata, attributes })
    }
}

/// A file in the volume that is not complete.
pub struct CreatedFile {
    job: FileJob,
    pub file: DirectFile,
    /// The size of the source when it was opened. Data that is appended to the source later is not copied.
    pub size: u64,
}

impl CreatedFile {
    /// Counts `len` bytes that were written; fails with the error of the write, if there is one.
    pub fn written(&self, result: parext4::Result<u64>, len: usize) -> Result<()> {
        result.with_context(|| self.job.shared.name(&self.job.place.path))?;
        self.job.shared.progress.moved(len as u64);
        Ok(())
    }

    /// Sets the attributes of the file, after all its data was written.
    pub fn finish(&self, attributes: &SetAttributes) -> Result<()> {
        let path = &self.job.place.path;
        let complete = || {
            // The file may end in a hole. A large one may have preallocated blocks past its end, and setting the size frees them:
            // another thread may report it as durable while it is still open, and a crash would leave them.
            if self.file.size() != self.size || self.size > SMALL as u64 {
                self.file.set_len(self.size)?;
            }
            self.file.node().set_attributes(attributes)
        };
        complete().with_context(|| self.job.shared.name(path))?;
        self.job.shared.progress.file_done();
        self.job.shared.durable.complete(path.clone())
    }
}

/// A file that is being copied.
pub struct FileCopy {
    pub created: CreatedFile,
    source: fs::File,
    metadata: fs::Metadata,
    pub attributes: Attributes,
}

impl FileCopy {
    /// Returns true if the file is small and has no holes, because it occupies no fewer blocks than its size. Such files are
    /// written together.
    pub fn is_small(&self) -> bool {
        let size = self.created.size;
        size > 0 && size <= SMALL as u64 && self.metadata.blocks() >= size.div_ceil(BLOCK)
    }

    /// Reads `bytes` of the source at `offset`.
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        let source = &self.created.job.source;
        self.source.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                anyhow::anyhow!("{}: was cut while it was copied", source.display())
            }
            _ => anyhow::Error::new(error).context(source.display().to_string()),
        })
    }

    pub fn copy_xattrs(&self) -> Result<()> {
        let job = &self.created.job;
        let node = self.created.file.node();
        let copy = || {
            xattrs::copy(&Source::File(&self.source, &job.source), node, &job.shared.progress)?;
            job.shared.rules.set_xattrs(node)
        };
        copy().with_context(|| job.shared.name(&job.place.path))
    }
}

impl Copy for FileCopy {
    fn size(&self) -> u64 {
        self.created.size
    }

    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        let data = (|| {
            // lseek(2): both fail with ENXIO past the last data, and with EINVAL where holes are unknown.
            let start = seek(&self.source, SeekFrom::Data(from))?;
            let end = seek(&self.source, SeekFrom::Hole(start))?;
            Ok(start..end)
        })();
        match data {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL) => Ok(Some(from..self.created.size)),
            Err(error) => Err(error).with_context(|| self.created.job.source.display().to_string()),
        }
    }

    fn copy(&self, offset: u64, len: usize, buffer: &mut [u8]) -> Result<()> {
        let bytes = &mut buffer[..len];
        self.read(bytes, offset)?;
        self.created.written(self.created.file.write_at(bytes, offset).map(|()| len as u64), len)
    }

    fn finish(&self) -> Result<()> {
        self.copy_xattrs()?;
        self.created.finish(&self.attributes.all())
    }
}
