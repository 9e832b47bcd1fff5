//! Copying one regular file into the volume.

use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use parext4::{File, SetAttributes};
use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;

use super::walk::{Place, Slot};
use super::{Shared, attributes, xattrs};
use crate::transfer::{Copy, Job};

/// A file to copy.
pub struct FileJob {
    pub source: PathBuf,
    pub place: Place,
    /// Takes the copy if the file has several names.
    pub slot: Option<Slot>,
    pub shared: Arc<Shared>,
}

impl FileJob {
    fn open(&self) -> Result<(fs::File, File, fs::Metadata)> {
        // It was a regular file when the walk came by; if it is a FIFO now, opening must not wait.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let source =
            OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(&self.source);
        let source = source.with_context(|| self.source.display().to_string())?;
        let metadata = source.metadata()?;
        ensure!(metadata.is_file(), "{}: changed its type while it was copied", self.source.display());
        let new = attributes::new_inode(&metadata);
        let node = self
            .place
            .replace(|dir, name| dir.create(name, &new))
            .with_context(|| self.place.path.display().to_string())?;
        if let Some(slot) = &self.slot {
            let _ = slot.set(node.clone());
        }
        Ok((source, File::new(node)?, metadata))
    }
}

impl Job for FileJob {
    type Copy = FileCopy;

    fn start(self) -> Result<FileCopy> {
        let (source, file, metadata) = self.open()?;
        let (size, attributes) = (metadata.len(), attributes::all(&metadata));
        Ok(FileCopy { job: self, source, file, size, attributes })
    }
}

/// A file on its way.
pub struct FileCopy {
    job: FileJob,
    source: fs::File,
    file: File,
    /// As it was when it was opened; what is appended later stays behind.
    size: u64,
    attributes: SetAttributes,
}

impl Copy for FileCopy {
    fn size(&self) -> u64 {
        self.size
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
            Err(Errno::INVAL) => Ok(Some(from..self.size)),
            Err(error) => Err(error).with_context(|| self.job.source.display().to_string()),
        }
    }

    fn copy(&self, offset: u64, len: usize, buffer: &mut [u8]) -> Result<()> {
        let bytes = &mut buffer[..len];
        self.source.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                anyhow::anyhow!("{}: was cut while it was copied", self.job.source.display())
            }
            _ => anyhow::Error::new(error).context(self.job.source.display().to_string()),
        })?;
        self.file.write_at(bytes, offset).with_context(|| self.job.place.path.display().to_string())?;
        self.job.shared.progress.moved(len as u64);
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        let path = &self.job.place.path;
        let complete = || {
            // Behind the last data may be a hole.
            if self.file.size() != self.size {
                self.file.set_len(self.size)?;
            }
            xattrs::copy(&self.job.source, self.file.node(), &self.job.shared.progress)?;
            anyhow::Ok(self.file.node().set_attributes(&self.attributes)?)
        };
        complete().with_context(|| path.display().to_string())?;
        self.job.shared.progress.file_done();
        self.job.shared.durable.complete(path.clone())
    }
}
