//! The slowest fsync and the slowest request of a step, and the slowest command line of `parext4`.
//!
//! Test programs append theirs to a file that `PAREXT4_SLOWEST` names, see `testkit::slowest`; the
//! servers of mounts tell theirs in `parext4 stat`.

use std::fmt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

/// The longest time of each kind of call in a step; `None` if there was no such call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slowest {
    fsync: Option<Duration>,
    request: Option<Duration>,
    command: Option<Duration>,
}

/// The times of the step that runs.
static STEP: Mutex<Slowest> = Mutex::new(Slowest { fsync: None, request: None, command: None });

/// Notes that a command of `parext4` took `time`.
pub fn note_command(time: Duration) {
    note(Slowest { command: Some(time), ..Slowest::default() });
}

/// Adds times that other processes measured to the step that runs.
pub fn note(other: Slowest) {
    let mut step = STEP.lock().expect("no thread panics with it");
    *step = step.with(other);
}

/// Returns the times of the step, and begins the next one.
pub fn take() -> Slowest {
    std::mem::take(&mut *STEP.lock().expect("no thread panics with it"))
}

impl Slowest {
    fn with(self, other: Self) -> Self {
        Self {
            fsync: self.fsync.max(other.fsync),
            request: self.request.max(other.request),
            command: self.command.max(other.command),
        }
    }

    /// Parses the lines that test programs append. A program that was killed may have left half a
    /// line.
    fn parse(text: &str) -> Self {
        let one = |line: &str| {
            let (kind, nanoseconds) = line.split_once(' ')?;
            let time = Some(Duration::from_nanos(nanoseconds.parse().ok()?));
            match kind {
                "fsync" => Some(Self { fsync: time, ..Self::default() }),
                "request" => Some(Self { request: time, ..Self::default() }),
                _ => None,
            }
        };
        text.lines().filter_map(one).fold(Self::default(), Self::with)
    }
}

/// `slowest fsync 12.3ms, request 45.6ms`; empty if nothing was measured.
impl fmt::Display for Slowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = [("fsync", self.fsync), ("request", self.request), ("command", self.command)];
        let known = times.into_iter().filter_map(|(kind, time)| Some((kind, time?)));
        for (nth, (kind, time)) in known.enumerate() {
            write!(f, "{} {kind} {time:.1?}", if nth == 0 { "slowest" } else { "," })?;
        }
        Ok(())
    }
}

/// The file to which the test programs of one command append.
pub struct Log(NamedTempFile);

impl Log {
    /// Makes the file.
    pub fn new() -> Result<Self> {
        Ok(Self(NamedTempFile::new().context("a file for the times of slow calls")?))
    }

    /// Its path, for `PAREXT4_SLOWEST`.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Adds what the programs appended to the step that runs.
    pub fn finish(self) -> Result<()> {
        note(Slowest::parse(&std::fs::read_to_string(self.path())?));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_each_kind_counts() {
        let slowest = Slowest::parse("fsync 2000000\nrequest 1500000\nrequest 2500000\nfsync 7\nfsyn");
        assert_eq!(slowest.to_string(), "slowest fsync 2.0ms, request 2.5ms");
        assert_eq!(Slowest::default().to_string(), "");
    }
}
