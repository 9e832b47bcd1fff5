//! What `put` and `get` do after an error. Both decide it here and nowhere else.
//!
//! 1. An error of one file is printed, and the copy goes on with the next file, as with cp and tar. The command then ends with exit
//!    status 1 ([`end`]).
//! 2. An error that the next files would meet, too, ends the copy: the destination is full, over a quota or read-only, the volume has stopped, an archive
//!    cannot be read on, or the user has interrupted the command.

use std::fmt;
use std::io::{self, ErrorKind};

use anyhow::Result;
use parext4::Error;
use rustix::io::Errno;

use crate::error::Reported;
use crate::interrupt;
use crate::progress::{Progress, Summary};

/// An error after which nothing more can be copied.
#[derive(Debug)]
pub enum Last {
    /// A signal asked the command to end.
    Interrupted,
    /// Another thread has met such an error, which is the one that is reported.
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

/// Prints the error of one file, and returns `None` if the copy goes on without that file.
///
/// # Errors
/// An error that ends the copy.
pub fn skip<T>(progress: &Progress, result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if ends_copy(&error) => Err(error),
        Err(error) => {
            progress.error(&error);
            Ok(None)
        }
    }
}

/// Fails with [`Reported`] if errors were printed.
pub fn end(summary: &Summary) -> Result<()> {
    if summary.errors > 0 { Err(Reported.into()) } else { Ok(()) }
}

/// Fails if a signal has asked the command to end.
pub fn check_interrupt() -> Result<()> {
    if interrupt::requested() { Err(Last::Interrupted.into()) } else { Ok(()) }
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

    #[test]
    fn only_errors_that_further_files_would_meet_end_a_copy() {
        let progress = Progress::new(true);
        let denied = || anyhow::Error::from(io::Error::from(ErrorKind::PermissionDenied)).context("a");
        assert!(skip(&progress, Err::<(), _>(denied())).unwrap().is_none());
        assert!(skip(&progress, Err::<(), _>(anyhow!("changed its type"))).unwrap().is_none());
        assert!(skip(&progress, Ok(7)).unwrap() == Some(7));
        let last: [anyhow::Error; 6] = [
            Error::NoSpace.into(),
            Error::Stopped("a reason".into()).into(),
            io::Error::from(ErrorKind::StorageFull).into(),
            Errno::ROFS.into(),
            Last::Interrupted.into(),
            Last::Source("the archive ends within a file".to_owned()).into(),
        ];
        for error in last {
            assert!(skip(&progress, Err::<(), _>(error).context("a").context("b")).is_err());
        }
        let summary = progress.summary();
        assert_eq!(summary.errors, 2);
        assert!(end(&summary).unwrap_err().is::<Reported>());
        assert!(end(&Progress::new(true).summary()).is_ok());
    }
}
