//! Findings: what is wrong, where, and as which problem e2fsck reports it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use parext4_format::FormatError;

use crate::problem::Problem;

/// A structure of the volume that is wrong, or disagrees with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The structure, the field, the problem, and the place.
    pub error: FormatError,
    /// The problem as which e2fsck reports it; `None` if e2fsck has no such problem or ignores it.
    pub problem: Option<Problem>,
}

/// Prints `structure: field: problem (place) [number name]`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        self.problem.map_or(Ok(()), |problem| write!(f, " [{problem}]"))
    }
}

/// The findings of all threads, up to a limit. Further findings are only counted.
pub(crate) struct Findings {
    list: Mutex<Vec<Finding>>,
    limit: usize,
    count: AtomicU64,
    notes: Mutex<Vec<String>>,
}

impl Findings {
    pub(crate) fn new(limit: usize) -> Self {
        Self { list: Mutex::default(), limit, count: AtomicU64::new(0), notes: Mutex::default() }
    }

    pub(crate) fn add(&self, error: FormatError, problem: impl Into<Option<Problem>>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < self.limit {
            list.push(Finding { error, problem: problem.into() });
        }
    }

    /// Returns true if further findings are only counted.
    pub(crate) fn is_full(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= self.limit as u64
    }

    /// Records what was not checked, or need not be repaired.
    pub(crate) fn note(&self, note: impl Into<String>) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note.into());
    }

    /// Returns the findings in the order of e2fsck's passes, the number of all findings, and the
    /// notes.
    pub(crate) fn finish(self) -> (Vec<Finding>, u64, Vec<String>) {
        let mut list = self.list.into_inner().unwrap_or_else(PoisonError::into_inner);
        list.sort_by_key(|finding| {
            let pass = finding.problem.map_or(0, |problem| problem.code >> 12);
            let error = &finding.error;
            (pass, error.group.map(|group| group.get()), error.ino, error.block)
        });
        let notes = self.notes.into_inner().unwrap_or_else(PoisonError::into_inner);
        (list, self.count.into_inner(), notes)
    }
}
