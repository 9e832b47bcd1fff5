//! Makes copied files durable, and reports the durable ones.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use parext4::Volume;

use crate::observer::Observer;

/// Syncs the volume after every `every` files, and reports them.
pub struct Durable<'a> {
    volume: &'a Volume,
    observer: &'a dyn Observer,
    every: Option<NonZero<usize>>,
    report: bool,
    /// Complete, but perhaps not durable yet.
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    files: usize,
    /// The paths of these files; empty unless they are to be reported.
    paths: Vec<PathBuf>,
}

impl<'a> Durable<'a> {
    pub fn new(
        volume: &'a Volume,
        observer: &'a dyn Observer,
        every: Option<NonZero<usize>>,
        report: bool,
    ) -> Self {
        Self { volume, observer, every, report, waiting: Mutex::default() }
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

    /// Syncs the volume, then reports `files`. A report may only follow a sync that began after its
    /// file was complete, because observers rely on that.
    fn sync(&self, files: &Waiting) -> Result<()> {
        self.volume.sync()?;
        if files.paths.is_empty() { Ok(()) } else { self.observer.durable(&files.paths) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
