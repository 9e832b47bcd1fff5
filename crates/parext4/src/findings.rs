//! Errors found in an open volume: each is logged once, and all are counted for the record in the superblock.

use std::collections::HashSet;
use std::panic::Location;

use parext4_format::superblock::{ERROR_CORRUPTED, ERROR_IO, ErrorRecord, Superblock};
use parext4_format::{FsBlock, InodeNo};

use crate::clock::now;
use crate::error::Error;

/// Limit of distinct errors that are logged. Further ones are only counted, because a hostile volume may have any
/// number.
const MAX_LOGGED: usize = 1024;

/// What an error concerns; 0 for no inode or no block in particular.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    ino: u32,
    block: u64,
}

impl From<InodeNo> for Place {
    fn from(ino: InodeNo) -> Self {
        Self { ino: ino.get(), block: 0 }
    }
}

impl From<(InodeNo, FsBlock)> for Place {
    fn from((ino, block): (InodeNo, FsBlock)) -> Self {
        Self { ino: ino.get(), block: block.get() }
    }
}

/// One error: when it was found, by which check, and what it concerns.
#[derive(Clone, Copy, Debug)]
struct Finding {
    seconds: i64,
    check: &'static Location<'static>,
    place: Place,
    code: u8,
}

/// The errors found since the volume was opened.
#[derive(Debug)]
pub(crate) struct Findings {
    /// Errors on record when the volume was opened.
    before: u32,
    found: Option<Found>,
    /// Errors on record in the superblock in memory.
    recorded: u32,
    logged: HashSet<String>,
}

/// The number of errors, with the first and the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Includes those that were on record before.
    count: u32,
    first: Finding,
    last: Finding,
}

impl Findings {
    /// None yet, of a volume that has `before` on record.
    pub(crate) fn new(before: u32) -> Self {
        Self { before, found: None, recorded: before, logged: HashSet::new() }
    }

    /// Adds an error that `check` found, and logs it. Errors with the same text count once. Returns true if the record
    /// changes.
    pub(crate) fn add(&mut self, check: &'static Location<'static>, place: Place, error: &Error) -> bool {
        let code = match error {
            Error::Corrupt(_) => ERROR_CORRUPTED,
            Error::Device { .. } => ERROR_IO,
            // Nothing is wrong with the volume.
            _ => return false,
        };
        let is_logged = self.logged.len() < MAX_LOGGED;
        if is_logged {
            let text = error.to_string();
            if self.logged.contains(&text) {
                return false;
            }
            let (file, line) = (file_of(check), check.line());
            tracing::error!("{text} (found by {file}:{line}, inode {}, block {})", place.ino, place.block);
            self.logged.insert(text);
        }
        let last = Finding { seconds: now().seconds, check, place, code };
        let (count, first) = self.found.map_or((self.before, last), |found| (found.count, found.first));
        self.found = Some(Found { count: count.saturating_add(1), first, last });
        is_logged
    }

    /// Returns the errors found, if any.
    pub(crate) fn all(&self) -> Option<Found> {
        self.found
    }

    /// Returns the errors found, if the superblock in memory lacks some. The caller records them there.
    pub(crate) fn take_unrecorded(&mut self) -> Option<Found> {
        let found = self.found.filter(|found| found.count > self.recorded)?;
        self.recorded = found.count;
        Some(found)
    }
}

impl Found {
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

/// The file of a check in the engine's sources.
fn file_of(check: &Location<'static>) -> &'static str {
    let file = check.file();
    file.rsplit_once("src/").map_or(file, |(_, file)| file)
}
