//! Where the counters and explanations of volumes and files are kept.

use std::sync::OnceLock;

use super::counters::{FileCounters, Record, VolumeCounters};
use super::present::Present;
use super::waits::Waits;
use super::{Explanation, Stats};
use crate::policy::Policy;

/// Of a volume.
#[derive(Debug)]
pub(crate) struct VolumeUsage {
    counters: VolumeCounters,
    /// If waits are to be explained.
    waits: Option<Waits>,
}

/// Of a file. Takes memory once the file is read or written.
#[derive(Debug, Default)]
pub(crate) struct FileUsage(OnceLock<Box<Used>>);

#[derive(Debug)]
struct Used {
    counters: FileCounters,
    /// If waits are to be explained.
    present: Option<Present>,
}

impl VolumeUsage {
    pub(crate) fn new(explain: bool) -> Self {
        Self { counters: VolumeCounters::default(), waits: explain.then(Waits::new) }
    }

    /// Where what happens to `file` is counted.
    pub(crate) fn record<'a>(&'a self, file: &'a FileUsage) -> Record<'a> {
        Record::new(&self.counters, &self.used(file).counters)
    }

    /// Whether waits are to be explained.
    pub(crate) fn explains(&self) -> bool {
        self.waits.is_some()
    }

    /// Who is at work in `file`, if waits are to be explained.
    pub(crate) fn present<'a>(&self, file: &'a FileUsage) -> Option<&'a Present> {
        self.used(file).present.as_ref()
    }

    /// Notes a wait in `file`.
    pub(crate) fn explain(&self, file: &FileUsage, wait: &Explanation) {
        let file = self.present(file).map(|present| &present.waits);
        self.waits.iter().chain(file).for_each(|waits| waits.add(wait));
    }

    /// Returns the sums over all files, under `policy`.
    pub(crate) fn stats(&self, policy: Policy) -> Stats {
        self.counters.sum_into(Stats::new(policy))
    }

    /// Returns why operations waited, in all files.
    pub(crate) fn explanations(&self) -> Vec<Explanation> {
        self.waits.as_ref().map_or_else(Vec::new, Waits::explain)
    }

    fn used<'a>(&self, file: &'a FileUsage) -> &'a Used {
        let explain = self.waits.is_some();
        file.0.get_or_init(|| {
            Box::new(Used { counters: FileCounters::default(), present: explain.then(Present::new) })
        })
    }
}

impl FileUsage {
    /// Who is at work in the file, if that was ever asked and waits are to be explained.
    pub(crate) fn entered(&self) -> Option<&Present> {
        self.0.get().and_then(|used| used.present.as_ref())
    }

    /// What happened to the file under `policy`.
    pub(crate) fn stats(&self, policy: Policy) -> Stats {
        let stats = Stats::new(policy);
        match self.0.get() {
            Some(used) => used.counters.sum_into(stats),
            None => stats,
        }
    }

    /// Why operations on the file waited.
    pub(crate) fn explanations(&self) -> Vec<Explanation> {
        self.entered().map_or_else(Vec::new, |present| present.waits.explain())
    }
}
