//! Copying one regular file out of the volume.

use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use parext4::{DirectFile, Metadata};

use super::replace::replace;
use super::{Shared, attributes};
use crate::transfer::{Copy, GRAIN, Job};

/// A file to copy.
pub struct FileJob {
    pub file: DirectFile,
    pub path: PathBuf,
    pub metadata: Metadata,
    pub shared: Arc<Shared>,
}

impl Job for FileJob {
    type Copy = FileCopy;
    type State = ();

    fn start(self, (): &mut ()) -> Result<Option<FileCopy>> {
        let open = || {
            let mut options = OpenOptions::new();
            // O_EXCL: never through a symbolic link. Only this user can read the file until it has its own permissions.
            options.write(true).create_new(true).mode(0o600);
            let dest = replace(&self.path, |path| options.open(path))?;
            // Ranges that are not written stay holes.
            dest.set_len(self.metadata.size)?;
            anyhow::Ok(dest)
        };
        let dest = open().with_context(|| self.path.display().to_string())?;
        Ok(Some(FileCopy { job: self, dest }))
    }
}

/// A file that is being copied.
pub struct FileCopy {
    job: FileJob,
    dest: fs::File,
}

impl FileCopy {
    /// The name of the file in the volume.
    fn source(&self) -> String {
        self.job.shared.source_of(&self.job.path)
    }

    /// The name of its copy.
    fn dest(&self) -> String {
        self.job.path.display().to_string()
    }
}

impl Copy for FileCopy {
    fn size(&self) -> u64 {
        self.job.metadata.size
    }

    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        let data = self.job.file.data_range(from).with_context(|| self.source())?;
        Ok(data.map(|(start, end)| start..end))
    }

    fn copy(&self, offset: u64, len: usize, buffer: &mut [u8]) -> Result<()> {
        // Reads whole sectors; the file may end within the last.
        let whole = len.next_multiple_of(usize::try_from(GRAIN)?).min(buffer.len());
        let count = self.job.file.read_at(&mut buffer[..whole], offset).with_context(|| self.source())?;
        ensure!(count >= len, "{}: the file ended at {} bytes", self.source(), offset + count as u64);
        self.dest.write_all_at(&buffer[..len], offset).with_context(|| self.dest())?;
        self.job.shared.progress.moved(len as u64);
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        attributes::set(&self.job.path, self.job.file.node(), &self.job.metadata, &self.job.shared)
            .with_context(|| self.dest())?;
        self.job.shared.progress.file_done();
        Ok(())
    }
}
