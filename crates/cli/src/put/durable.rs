//! Makes copied files durable, and reports the durable ones.

use std::io::Write;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use parext4::Volume;

use crate::output;

/// Syncs the volume after every `every` files, and reports them.
pub struct Durable {
    volume: Volume,
    every: Option<NonZero<usize>>,
    report: bool,
    /// Complete, but perhaps not durable yet.
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    files: usize,
    /// Their paths, if they will be reported.
    paths: Vec<PathBuf>,
}

impl Durable {
    pub fn new(volume: Volume, every: Option<NonZero<usize>>, report: bool) -> Self {
        Self { volume, every, report, waiting: Mutex::default() }
    }

    /// Records that the file at `path` has all its data and attributes.
    pub fn complete(&self, path: PathBuf) -> Result<()> {
        let full = {
            let mut waiting = self.lock();
            waiting.files += 1;
            if self.report {
                waiting.paths.push(path);
            }
            let full = self.every.is_some_and(|every| waiting.files >= every.get());
            full.then(|| std::mem::take(&mut *waiting))
        };
        full.map_or(Ok(()), |files| self.sync(&files))
    }

    /// Makes everything durable.
    pub fn finish(&self) -> Result<()> {
        let rest = std::mem::take(&mut *self.lock());
        self.sync(&rest)
    }

    /// Syncs the volume, then reports `files`. A line may only follow a sync that began after its file was complete, because
    /// readers of the lines rely on that. The copy goes on if the reader has ended.
    fn sync(&self, files: &Waiting) -> Result<()> {
        self.volume.sync()?;
        match report(&files.paths) {
            Err(error) if output::has_no_reader(&error) => Ok(()),
            reported => reported,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prints a line for each file.
fn report(paths: &[PathBuf]) -> Result<()> {
    output::print(|out| {
        for path in paths {
            out.write_all(b"synced ")?;
            out.write_all(path.as_os_str().as_bytes())?;
            out.write_all(b"\n")?;
        }
        Ok(())
    })
}
