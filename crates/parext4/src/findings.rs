//! The errors found in an open volume, for the log and for the record in the superblock.
//!
//! Responsible for logging each error once, and for the count, the first and the last error. When
//! they are recorded is decided by `health` and the commit. Invariant: memory is bounded, whatever
//! a hostile volume contains (I9).

use std::collections::HashSet;
use std::panic::Location;

use parext4_format::superblock::{ERROR_CORRUPTED, ERROR_IO, ErrorRecord, Superblock};
use parext4_format::{FsBlock, InodeNo};

use crate::clock::Clock;
use crate::error::{Corruption, Error};

/// Limit of distinct errors that are logged. Further errors are only counted.
const MAX_LOGGED: usize = 1024;

/// The inode and block that an error concerns; 0 for none in particular.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ErrorPlace {
    ino: u32,
    block: u64,
}

impl From<InodeNo> for ErrorPlace {
    fn from(ino: InodeNo) -> Self {
        Self { ino: ino.get(), block: 0 }
    }
}

impl From<(InodeNo, FsBlock)> for ErrorPlace {
    fn from((ino, block): (InodeNo, FsBlock)) -> Self {
        Self { ino: ino.get(), block: block.get() }
    }
}

impl ErrorPlace {
    /// Takes the inode and the block that are not set from the error.
    fn or_that_of(self, error: &Corruption) -> Self {
        let (ino, block) = (error.ino.map_or(0, InodeNo::get), error.block.map_or(0, FsBlock::get));
        Self {
            ino: if self.ino == 0 { ino } else { self.ino },
            block: if self.block == 0 { block } else { self.block },
        }
    }
}

/// One error: time, check, inode and block, and code of the superblock's record.
#[derive(Clone, Copy, Debug)]
struct Finding {
    seconds: i64,
    check: &'static Location<'static>,
    place: ErrorPlace,
    code: u8,
}

/// The errors found since the volume was opened.
#[derive(Debug)]
pub(crate) struct Findings {
    /// Number of errors on record when the volume was opened.
    before: u32,
    found: Option<ErrorSummary>,
    /// Number of errors on record in the superblock in memory.
    recorded: u32,
    logged: HashSet<String>,
    clock: Clock,
}

/// The number of errors, with the first and the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorSummary {
    /// Includes the errors that were on record when the volume was opened.
    count: u32,
    first: Finding,
    last: Finding,
}

impl Findings {
    /// Returns no findings, for a volume that has `before` errors on record. `clock` dates further
    /// errors.
    pub(crate) fn new(before: u32, clock: Clock) -> Self {
        Self { before, found: None, recorded: before, logged: HashSet::new(), clock }
    }

    /// Adds an error that `check` found, and logs it. Errors with the same text count once. Returns
    /// true if the error was new and was logged, so that the commit thread should record it soon.
    pub(crate) fn add(
        &mut self,
        check: &'static Location<'static>,
        place: ErrorPlace,
        error: &Error,
    ) -> bool {
        let (code, place) = match error {
            Error::Corrupt(corruption) => (ERROR_CORRUPTED, place.or_that_of(corruption)),
            Error::Device { .. } => (ERROR_IO, place),
            // An error of the caller, not of the volume.
            _ => return false,
        };
        let is_logged = self.logged.len() < MAX_LOGGED;
        if is_logged {
            let text = error.to_string();
            if self.logged.contains(&text) {
                return false;
            }
            let (file, line) = (file_of(check), check.line());
            log::error!("{text} (found by {file}:{line}, inode {}, block {})", place.ino, place.block);
            self.logged.insert(text);
        }
        let last = Finding { seconds: self.clock.now().seconds, check, place, code };
        let (count, first) = self.found.map_or((self.before, last), |found| (found.count, found.first));
        self.found = Some(ErrorSummary { count: count.saturating_add(1), first, last });
        is_logged
    }

    /// Logs an error that the superblock does not record, unless it was logged before.
    pub(crate) fn log_once(&mut self, text: &str) {
        if self.logged.len() < MAX_LOGGED && self.logged.insert(text.to_owned()) {
            log::error!("{text}");
        }
    }

    /// Returns the errors found, or `None`.
    pub(crate) fn all(&self) -> Option<ErrorSummary> {
        self.found
    }

    /// Returns the errors found, or `None` if the superblock in memory has all of them. The caller
    /// records them there.
    pub(crate) fn take_unrecorded(&mut self) -> Option<ErrorSummary> {
        let found = self.found.filter(|found| found.count > self.recorded)?;
        self.recorded = found.count;
        Some(found)
    }
}

impl ErrorSummary {
    /// Records the errors in the superblock. Idempotent.
    pub(crate) fn record_in(&self, superblock: &mut Superblock) {
        superblock.record_errors(self.count, &self.first.record(), &self.last.record());
    }
}

impl Finding {
    fn record(&self) -> ErrorRecord<'static> {
        ErrorRecord {
            seconds: self.seconds,
            function: file_of(self.check),
            line: self.check.line(),
            inode: self.place.ino,
            block: self.place.block,
            code: self.code,
        }
    }
}

/// Returns the file of a check, relative to the engine's sources.
fn file_of(check: &Location<'static>) -> &'static str {
    let file = check.file();
    file.rsplit_once("src/").map_or(file, |(_, file)| file)
}
