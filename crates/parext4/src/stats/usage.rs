//! The counters and explanations of volumes and files.

// once_cell's memory orders are visible to ThreadSanitizer, unlike those inside
// `std::sync::OnceLock`.
use once_cell::sync::OnceCell;

use super::active::ActiveOperations;
use super::counters::{FileCounters, Record, VolumeCounters};
use super::waits::Waits;
use super::{Explanation, Stats};
use crate::policy::Policy;

/// The counters and explanations of a volume.
#[derive(Debug)]
pub(crate) struct VolumeUsage {
    counters: VolumeCounters,
    /// Explained waits; `None` if waits are not to be explained.
    waits: Option<Waits>,
}

/// The counters and explanations of a file. They are allocated when the file is first read or
/// written.
#[derive(Debug, Default)]
pub(crate) struct FileUsage(OnceCell<Box<FileRecords>>);

#[derive(Debug)]
struct FileRecords {
    counters: FileCounters,
    /// Active operations; `None` if waits are not to be explained.
    active: Option<ActiveOperations>,
}

impl VolumeUsage {
    pub(crate) fn new(explain: bool) -> Self {
        Self { counters: VolumeCounters::default(), waits: explain.then(Waits::new) }
    }

    /// Returns the counters for operations on `file`.
    pub(crate) fn record<'a>(&'a self, file: &'a FileUsage) -> Record<'a> {
        Record::new(&self.counters, &self.records(file).counters)
    }

    /// Returns true if waits are to be explained.
    pub(crate) fn explains(&self) -> bool {
        self.waits.is_some()
    }

    /// Returns the active operations of `file`, if waits are to be explained.
    pub(crate) fn active<'a>(&self, file: &'a FileUsage) -> Option<&'a ActiveOperations> {
        self.records(file).active.as_ref()
    }

    /// Records a wait for a range of `file`, to explain it.
    pub(crate) fn explain(&self, file: &FileUsage, wait: &Explanation) {
        let file = self.active(file).map(|active| &active.waits);
        self.waits.iter().chain(file).for_each(|waits| waits.add(wait));
    }

    /// Returns the sums over all files, under `policy`.
    pub(crate) fn stats(&self, policy: Policy) -> Stats {
        self.counters.sum_into(Stats::new(policy))
    }

    /// Returns the explanations of waits in all files.
    pub(crate) fn explanations(&self) -> Vec<Explanation> {
        self.waits.as_ref().map_or_else(Vec::new, Waits::explain)
    }

    fn records<'a>(&self, file: &'a FileUsage) -> &'a FileRecords {
        let explain = self.waits.is_some();
        file.0.get_or_init(|| {
            Box::new(FileRecords {
                counters: FileCounters::default(),
                active: explain.then(ActiveOperations::new),
            })
        })
    }
}

impl FileUsage {
    /// Returns the active operations of the file, if waits are to be explained and the file was
    /// read or written.
    pub(crate) fn active(&self) -> Option<&ActiveOperations> {
        self.0.get().and_then(|records| records.active.as_ref())
    }

    /// Returns the counters of the file, under `policy`.
    pub(crate) fn stats(&self, policy: Policy) -> Stats {
        let stats = Stats::new(policy);
        match self.0.get() {
            Some(records) => records.counters.sum_into(stats),
            None => stats,
        }
    }

    /// Returns the explanations of waits for the file.
    pub(crate) fn explanations(&self) -> Vec<Explanation> {
        self.active().map_or_else(Vec::new, |active| active.waits.explain())
    }
}
