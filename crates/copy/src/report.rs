//! What a copy does after an error. It is decided here and nowhere else.
//!
//! 1. The error of one file goes to the observer, which has the copy go on with the next file, or
//!    end.
//! 2. An error that the next files would meet, too, ends the copy: the destination is full, over a
//!    quota or read-only, the volume has stopped, an archive cannot be read on, or the caller has
//!    cancelled the copy.

use std::io::ErrorKind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::observer::{Observer, Summary};
use crate::options::CopyOptions;

/// Counts what a copy does, tells the observer of it, and ends the copy after an error of which the
/// observer, or [`ends_copy`], says so.
pub struct Report<'a> {
    observer: &'a dyn Observer,
    cancel: Option<&'a AtomicBool>,
    files: AtomicU64,
    bytes: AtomicU64,
    warnings: AtomicU64,
    errors: AtomicU64,
    /// The first error with which the observer ended the copy.
    refused: OnceLock<Error>,
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

    /// Passes the error of one file on, or of an attribute of it. If the observer ends the copy,
    /// [`check`](Self::check) fails from now on.
    pub fn error(&self, error: Error) {
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
                if self.refused.get().is_some() { Err(Error::Stopped) } else { Ok(None) }
            }
        }
    }

    /// Fails if the caller or the observer has ended the copy.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::Cancelled { durable_files: None });
        }
        if self.refused.get().is_some() { Err(Error::Stopped) } else { Ok(()) }
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
fn ends_copy(error: &Error) -> bool {
    match error.root() {
        Error::Volume(error) => matches!(
            error,
            parext4::Error::Stopped(_)
                | parext4::Error::NoSpace
                | parext4::Error::NoInodes
                | parext4::Error::QuotaExceeded(_)
                | parext4::Error::ReadOnly(_)
        ),
        Error::Io(error) => matches!(
            error.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem
        ),
        error => error.is_last(),
    }
}

#[cfg(test)]
mod tests {
    use crate::error::{Context, refused};

    use std::io;

    use rustix::io::Errno;

    use super::*;

    struct GoesOn;

    impl Observer for GoesOn {
        fn failed(&self, _: Error) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_errors_that_further_files_would_meet_end_a_copy() {
        let report = Report::new(&CopyOptions::new().observer(&GoesOn));
        let denied = || Error::from(io::Error::from(ErrorKind::PermissionDenied)).context("a");
        assert!(report.skip(Err::<(), _>(denied())).unwrap().is_none());
        assert!(report.skip(Err::<(), _>(refused!("changed its type"))).unwrap().is_none());
        assert!(report.skip(Ok(7)).unwrap() == Some(7));
        let last: [Error; 6] = [
            parext4::Error::NoSpace.into(),
            parext4::Error::Stopped("a reason".into()).into(),
            io::Error::from(ErrorKind::StorageFull).into(),
            Errno::ROFS.into(),
            Error::Cancelled { durable_files: None },
            Error::Source("the archive ends within a file".to_owned()),
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
        assert!(report.skip(Err::<(), _>(refused!("first"))).unwrap_err().is_last());
        report.error(refused!("second"));
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
        assert!(report.check().unwrap_err().is_last());
    }
}
