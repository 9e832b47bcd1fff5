//! Copying one regular file into the volume.

use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Context, Error, Result, ensure, refused};
use parext4::{AlignedBuf, DirectFile, NewInode, SetAttributes};
use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;

use super::Shared;
use super::attributes::Attributes;
use super::destination::{Destination, Slot};
use super::xattrs::Source;
use crate::report::Report;
use crate::transfer::Copy;

/// Bytes of a block as stat(2) counts them.
const BLOCK: u64 = 512;
/// Files up to this many bytes are small.
pub const SMALL: usize = 128 << 10;

/// A file to copy.
pub struct FileJob<'a> {
    pub source: PathBuf,
    pub place: Destination,
    /// Takes the copy, when it is complete, if the file has several names.
    pub slot: Option<Slot>,
    pub shared: &'a Shared<'a>,
}

impl<'a> FileJob<'a> {
    /// Opens the source, and makes the copy without data.
    pub fn open(self) -> Result<FileCopy<'a>> {
        // It was a regular file when the walk read its directory. If it is a FIFO now, opening must
        // not block.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let source =
            OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(&self.source);
        let source = source.with_context(|| self.source.display().to_string())?;
        let metadata = source.metadata()?;
        ensure!(metadata.is_file(), "{}: changed its type while it was copied", self.source.display());
        let attributes = self.shared.rules.of_file(&metadata);
        let created = self.create(&attributes.new_inode(), metadata.len())?;
        Ok(FileCopy { created, source, metadata, attributes })
    }

    /// Makes the copy without data. It will have `size` bytes.
    pub fn create(self, new: &NewInode, size: u64) -> Result<CreatedFile<'a>> {
        let made = self.place.replace(|dir, name| dir.create(name, new));
        let node = made.with_context(|| self.shared.name.of(&self.place.path))?.node;
        let settled = AtomicBool::new(false);
        Ok(CreatedFile { job: self, file: DirectFile::new(node)?, size, settled })
    }
}

/// A file in the volume that is not complete.
pub struct CreatedFile<'a> {
    job: FileJob<'a>,
    pub file: DirectFile,
    /// The size of the source when it was opened. Data that is appended to the source later is not
    /// copied.
    pub size: u64,
    /// It is complete, or an error says what was wrong with it.
    settled: AtomicBool,
}

impl<'a> CreatedFile<'a> {
    /// Returns `result`, with the name of the copy if it is an error. The copy is not finished
    /// then.
    pub fn settle<R, E: Into<Error>>(&self, result: Result<R, E>) -> Result<R> {
        self.note_failure(&result);
        result.with_context(|| self.job.shared.name.of(&self.job.place.path))
    }

    fn note_failure<R, E>(&self, result: &Result<R, E>) {
        if result.is_err() {
            self.settled.store(true, Ordering::Relaxed);
        }
    }

    pub fn report(&self) -> &'a Report<'a> {
        &self.job.shared.report
    }

    /// Counts `len` bytes that were written; fails with the error of the write, if there is one.
    pub fn written(&self, result: parext4::Result<u64>, len: usize) -> Result<()> {
        self.settle(result)?;
        self.job.shared.report.moved(len as u64);
        Ok(())
    }

    /// Writes what `read` returns from the given offset, until it returns no more bytes, and makes
    /// that the size. `buffer` holds whole grains.
    pub fn write_all(
        &mut self,
        mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
        buffer: &mut [u8],
    ) -> Result<()> {
        self.size = 0;
        loop {
            let mut len = 0;
            while len < buffer.len() {
                self.report().check()?;
                match read(&mut buffer[len..], self.size + len as u64) {
                    Ok(0) => break,
                    Ok(count) => len += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        // The error of a cancelled copy does not name the file.
                        self.settled.store(self.report().check().is_ok(), Ordering::Relaxed);
                        return Err(error).with_context(|| self.job.source.display().to_string());
                    }
                }
            }
            if len > 0 {
                let write = self.file.write_all_at(&buffer[..len], self.size);
                self.written(write.map(|()| len as u64), len)?;
                self.size += len as u64;
            }
            if len < buffer.len() {
                return Ok(());
            }
        }
    }

    /// Sets the attributes of the file, after all its data was written.
    pub fn finish(&self, attributes: &SetAttributes) -> Result<()> {
        let complete = || {
            // The file may end in a hole. A large one may have preallocated blocks past its end,
            // and setting the size frees them: another thread may report it as durable while it is
            // still open, and a crash would leave them.
            if self.file.size() != self.size || self.size > SMALL as u64 {
                self.file.set_len(self.size)?;
            }
            self.file.inode_ref().set_attributes(attributes)
        };
        self.settle(complete())?;
        self.settled.store(true, Ordering::Relaxed);
        if let Some(slot) = &self.job.slot {
            let _ = slot.set(self.file.inode_ref().id());
        }
        self.job.shared.report.file_done();
        self.job.shared.durable.complete(self.job.place.path.clone())
    }
}

/// The copy ended before the file was complete.
impl Drop for CreatedFile<'_> {
    fn drop(&mut self) {
        if !*self.settled.get_mut() {
            self.job.shared.incomplete(&self.job.place.path);
        }
    }
}

/// A file that is being copied.
pub struct FileCopy<'a> {
    pub created: CreatedFile<'a>,
    source: fs::File,
    metadata: fs::Metadata,
    attributes: Attributes,
}

impl FileCopy<'_> {
    /// Returns true if the file is small and has no holes, because it occupies no fewer blocks than
    /// its size. Such files are written together.
    pub fn is_small(&self) -> bool {
        let size = self.created.size;
        size > 0 && size <= SMALL as u64 && self.metadata.blocks() >= size.div_ceil(BLOCK)
    }

    /// Returns true if the source may have other bytes than its size says: it has no blocks, and is
    /// neither empty nor a hole. The kernel makes up such files when they are read, in /proc and
    /// /sys.
    pub fn may_be_made_up(&self) -> bool {
        let has_bytes = || match self.created.size {
            0 => !matches!(self.source.read_at(&mut [0], 0), Ok(0)),
            _ => seek(&self.source, SeekFrom::Data(0)) != Err(Errno::NXIO),
        };
        self.metadata.blocks() == 0 && self.created.size <= SMALL as u64 && has_bytes()
    }

    /// Copies all that reads of the source return.
    pub fn copy_to_end(mut self) -> Result<()> {
        let Self { created, source, .. } = &mut self;
        created.write_all(|bytes, offset| source.read_at(bytes, offset), &mut AlignedBuf::zeroed(SMALL))?;
        Copy::finish(&self)
    }

    /// Reads `bytes` of the source at `offset`.
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.of_source(self.source.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => refused!("was cut while it was copied"),
            _ => error.into(),
        }))
    }

    /// Returns `result`, with the name of the source if it is an error.
    fn of_source<R, E: Into<Error>>(&self, result: Result<R, E>) -> Result<R> {
        self.created.note_failure(&result);
        result.with_context(|| self.created.job.source.display().to_string())
    }

    /// Copies the extended attributes. Returns the attributes to set afterwards.
    pub fn copy_xattrs(&self) -> Result<SetAttributes> {
        let job = &self.created.job;
        let node = self.created.file.inode_ref();
        let copy = || -> Result<Attributes> {
            let source = Source::File(&self.source, &job.source);
            let attributes = self.attributes.copy_xattrs(&source, node, &job.shared.report)?;
            job.shared.rules.set_xattrs(node)?;
            Ok(attributes)
        };
        Ok(self.created.settle(copy())?.all())
    }
}

impl Copy for FileCopy<'_> {
    fn size(&self) -> u64 {
        self.created.size
    }

    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        let data = (|| {
            // lseek(2): both fail with ENXIO past the last data, and with EINVAL where holes are
            // unknown.
            let start = seek(&self.source, SeekFrom::Data(from))?;
            let end = seek(&self.source, SeekFrom::Hole(start))?;
            Ok(start..end)
        })();
        match data {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL) => Ok(Some(from..self.created.size)),
            Err(error) => self.of_source(Err(error)),
        }
    }

    fn copy(&self, offset: u64, len: usize, buffer: &mut [u8]) -> Result<()> {
        self.created.report().check()?;
        let bytes = &mut buffer[..len];
        self.read(bytes, offset)?;
        self.created.written(self.created.file.write_all_at(bytes, offset).map(|()| len as u64), len)
    }

    fn finish(&self) -> Result<()> {
        self.created.finish(&self.copy_xattrs()?)
    }
}
