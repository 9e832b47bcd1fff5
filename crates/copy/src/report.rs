//! What a copy does after an error. It is decided here and nowhere else.
//!
//! 1. The error of one file goes to the observer, which has the copy go on with the next file, or end.
//! 2. An error that the next files would meet, too, ends the copy: the destination is full, over a quota or read-only, the volume has stopped, an archive
//!    cannot be read on, or the caller has cancelled the copy.

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Result;
use parext4::Error;
use rustix::io::Errno;

use crate::observer::{Observer, Summary};
use crate::options::CopyOptions;

/// An error after which nothing more can be copied.
#[derive(Debug)]
pub enum Last {
    /// The caller has cancelled the copy.
    Interrupted,
    /// Another thread has met such an error, which is the one that is returned.
    Stopped,
    /// The source of all further files cannot be read; says why.
    Source(String),
}

impl fmt::Display for Last {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupted => "interrupted",
            Self::Stopped => "stopped",
            Self::Source(why) => why,
        })
    }
}

impl std::error::Error for Last {}

/// Counts what a copy does, tells the observer of it, and ends the copy after an error of which the observer, or
/// [`ends_copy`], says so.
pub struct Report<'a> {
    observer: &'a dyn Observer,
    cancel: Option<&'a AtomicBool>,
    files: AtomicU64,
    bytes: AtomicU64,
    warnings: AtomicU64,
    errors: AtomicU64,
    /// The first error with which the observer ended the copy.
    refused: OnceLock<anyhow::Error>,
}

impl<'a> Report<'a> {
    pub fn new(options: &CopyOptions<'a>) -> Self {
        let CopyOptions { observer, cancel, .. } = *options;
        let (files, bytes, warnings, errors) = Default::default();
        Self { observer, cancel, files, bytes, warnings, errors, refused: OnceLock::new() }
    }

    /// Announces a file of `bytes` bytes.
    pub fn expect(&self, bytes: u64) {
        self.observer.expect(bytes);
    }

    /// Counts `bytes` of data that have been copied.
    pub fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.observer.copied(bytes);
    }

    /// Counts a file that is complete.
    pub fn file_done(&self) {
        let files = self.files.fetch_add(1, Ordering::Relaxed) + 1;
        self.observer.file_done(files);
    }

    /// Passes a warning on.
    pub fn warn(&self, text: &str) {
        self.warnings.fetch_add(1, Ordering::Relaxed);
        self.observer.warn(text);
    }

    /// Passes the error of one file on, or of an attribute of it. If the observer ends the copy, [`check`](Self::check) fails from now
    /// on.
    pub fn error(&self, error: anyhow::Error) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.observer.failed(error) {
            let _ = self.refused.set(error);
        }
    }

    /// Passes the error of one file on, and returns `None` if the copy goes on without that file.
    ///
    /// # Errors
    /// An error that ends the copy.
    pub fn skip<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if ends_copy(&error) => Err(error),
            Err(error) => {
                self.error(error);
                if self.refused.get().is_some() { Err(Last::Stopped.into()) } else { Ok(None) }
            }
        }
    }

    /// Fails if the caller or the observer has ended the copy.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Last::Interrupted.into());
        }
        if self.refused.get().is_some() { Err(Last::Stopped.into()) } else { Ok(()) }
    }

    /// Returns true if the caller has cancelled the copy.
    pub fn is_cancelled(&self) -> bool {
        // Relaxed: the flag publishes no other data.
        self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
    }

    /// Returns the flag with which the caller cancels the copy.
    pub fn cancel(&self) -> Option<&'a AtomicBool> {
        self.cancel
    }

    /// Returns the counters.
    pub fn summary(&self) -> Summary {
        let [files, bytes, warnings, errors] = [&self.files, &self.bytes, &self.warnings, &self.errors]
            .map(|counter| counter.load(Ordering::Relaxed));
        Summary { files, bytes, warnings, errors }
    }

    /// Returns the outcome of a copy whose parts ended with `result`.
    ///
    /// # Errors
    /// The error with which the observer ended the copy, or the one of `result`.
    pub fn end(self, result: Result<()>) -> Result<Summary> {
        let summary = self.summary();
        match self.refused.into_inner() {
            Some(error) => Err(error),
            None => result.map(|()| summary),
        }
    }
}

/// Returns true if the next files would meet the error, too.
fn ends_copy(error: &anyhow::Error) -> bool {
    error.is::<Last>() || error.chain().any(is_of_destination)
}

fn is_of_destination(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<Error>() {
        return matches!(
            error,
            Error::Stopped(_)
                | Error::NoSpace
                | Error::NoInodes
                | Error::QuotaExceeded(_)
                | Error::ReadOnly(_)
        );
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return matches!(
            error.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem
        );
    }
    matches!(error.downcast_ref(), Some(&(Errno::NOSPC | Errno::DQUOT | Errno::ROFS)))
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    struct GoesOn;

    impl Observer for GoesOn {
        fn failed(&self, _: anyhow::Error) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_errors_that_further_files_would_meet_end_a_copy() {
        let report = Report::new(&CopyOptions::new().observer(&GoesOn));
        let denied = || anyhow::Error::from(io::Error::from(ErrorKind::PermissionDenied)).context("a");
        assert!(report.skip(Err::<(), _>(denied())).unwrap().is_none());
        assert!(report.skip(Err::<(), _>(anyhow!("changed its type"))).unwrap().is_none());
        assert!(report.skip(Ok(7)).unwrap() == Some(7));
        let last: [anyhow::Error; 6] = [
            Error::NoSpace.into(),
            Error::Stopped("a reason".into()).into(),
            io::Error::from(ErrorKind::StorageFull).into(),
            Errno::ROFS.into(),
            Last::Interrupted.into(),
            Last::Source("the archive ends within a file".to_owned()).into(),
        ];
        for error in last {
            assert!(report.skip(Err::<(), _>(error).context("a").context("b")).is_err());
        }
        assert_eq!(report.end(Ok(())).unwrap().errors, 2);
    }

    #[test]
    fn an_observer_that_refuses_an_error_ends_the_copy_with_it() {
        let report = Report::new(&CopyOptions::new());
        assert!(report.check().is_ok());
        assert!(report.skip(Err::<(), _>(anyhow!("first"))).unwrap_err().is::<Last>());
        report.error(anyhow!("second"));
        let stopped = report.check();
        assert!(stopped.is_err());
        assert_eq!(report.end(stopped).unwrap_err().to_string(), "first");
    }

    #[test]
    fn a_flag_cancels_the_copy() {
        let flag = AtomicBool::new(false);
        let report = Report::new(&CopyOptions::new().cancel(&flag));
        assert!(report.check().is_ok());
        flag.store(true, Ordering::Relaxed);
        assert!(report.check().unwrap_err().is::<Last>());
    }
}
