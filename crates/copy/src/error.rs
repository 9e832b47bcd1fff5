//! The errors of copies.
//!
//! Responsible for the type, its names of files, and the shorthands with which this crate makes
//! errors. What a copy does after an error is decided by `report`.

use std::error::Error as StdError;
use std::ffi::FromBytesWithNulError;
use std::fmt;
use std::io;
use std::num::{ParseIntError, TryFromIntError};
use std::str::Utf8Error;
use std::string::FromUtf8Error;

use rustix::io::Errno;

/// The result of a copy, or of a part of it.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a copy, or the copy of one file, failed.
///
/// The text of [`In`](Self::In) is the name alone, and its source is the error. `{:#}` writes the
/// names and the error on one line:
///
/// ```
/// use parext4_copy::Error;
///
/// let error = Error::In { name: "disk.img:/f".into(), error: Box::new(parext4::Error::NoSpace.into()) };
/// assert_eq!(format!("{error}"), "disk.img:/f");
/// assert_eq!(format!("{error:#}"), format!("disk.img:/f: {}", parext4::Error::NoSpace));
/// assert!(matches!(error.root(), Error::Volume(parext4::Error::NoSpace)));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An operation on the volume failed.
    Volume(parext4::Error),
    /// An operation on a file outside of the volume failed, or on an [`Input`](crate::Input) or
    /// [`Output`](crate::Output).
    Io(io::Error),
    /// The file cannot be copied for a reason that the text says: the volume is corrupt, an archive
    /// or a manifest is malformed, a limit is exceeded, or a directory has the name of a copy.
    Refused(String),
    /// The source of all further files, an archive, cannot be read on; the text says why.
    Source(String),
    /// The caller has cancelled the copy.
    Cancelled {
        /// The number of files that are complete and durable; `None` if the copy was one out of a
        /// volume, or could not be made durable.
        durable_files: Option<u64>,
    },
    /// Another part of the copy has ended it, with an error of its own.
    Stopped,
    /// An error of a file.
    In {
        /// The name of the file, or of what it was that failed.
        name: String,
        /// The error, which may be one with a further name.
        error: Box<Self>,
    },
}

impl Error {
    /// Returns the error without the names of files.
    #[must_use]
    pub fn root(&self) -> &Self {
        match self {
            Self::In { error, .. } => error.root(),
            error => error,
        }
    }

    /// Returns true if the error ends every copy that meets it, whatever the destination.
    pub(crate) fn is_last(&self) -> bool {
        matches!(self.root(), Self::Cancelled { .. } | Self::Stopped | Self::Source(_))
    }

    /// Returns the error with a name before it.
    pub(crate) fn context(self, name: impl Into<String>) -> Self {
        Self::In { name: name.into(), error: Box::new(self) }
    }

    /// Returns the error of the volume or of the system, which callers know, in place of the
    /// variant that holds it.
    fn inner(&self) -> &(dyn StdError + 'static) {
        match self {
            Self::Volume(error) => error,
            Self::Io(error) => error,
            error => error,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Refused(why) | Self::Source(why) => f.write_str(why),
            Self::Cancelled { durable_files: None } => f.write_str("interrupted"),
            Self::Cancelled { durable_files: Some(files) } => {
                write!(f, "interrupted; {files} files are complete and durable")
            }
            Self::Stopped => f.write_str("stopped"),
            Self::In { name, error } if f.alternate() => write!(f, "{name}: {error:#}"),
            Self::In { name, .. } => f.write_str(name),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Volume(error) => error.source(),
            Self::Io(error) => error.source(),
            Self::In { error, .. } => Some(error.inner()),
            _ => None,
        }
    }
}

impl From<parext4::Error> for Error {
    fn from(error: parext4::Error) -> Self {
        Self::Volume(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for Error {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// Converts errors whose text alone matters.
macro_rules! from_text {
    ($($error:ty),*) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Refused(error.to_string())
            }
        })*
    };
}

from_text!(
    FromBytesWithNulError,
    FromUtf8Error,
    ParseIntError,
    TryFromIntError,
    Utf8Error,
    nix::errno::Errno
);

/// Adds a name to an error.
pub trait Context<T> {
    /// Adds `name` to the error, or makes it the error if there is no value.
    fn context(self, name: impl Into<String>) -> Result<T>;

    /// Like [`context`](Self::context), with a name that is made only for an error.
    fn with_context<S: Into<String>>(self, name: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for Result<T, E> {
    fn context(self, name: impl Into<String>) -> Result<T> {
        self.map_err(|error| error.into().context(name))
    }

    fn with_context<S: Into<String>>(self, name: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| error.into().context(name()))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, name: impl Into<String>) -> Result<T> {
        self.ok_or_else(|| Error::Refused(name.into()))
    }

    fn with_context<S: Into<String>>(self, name: impl FnOnce() -> S) -> Result<T> {
        self.ok_or_else(|| Error::Refused(name().into()))
    }
}

/// Makes an [`Error::Refused`] of a text, as `format!` does.
macro_rules! refused {
    ($($text:tt)*) => {
        $crate::error::Error::Refused(format!($($text)*))
    };
}

/// Returns an [`Error::Refused`] from the function.
macro_rules! bail {
    ($($text:tt)*) => {
        return Err($crate::error::refused!($($text)*))
    };
}

/// Returns an [`Error::Refused`] from the function unless a condition is true.
macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            $crate::error::bail!($($text)*);
        }
    };
}

pub(crate) use {bail, ensure, refused};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_a_name_is_the_error_itself() {
        let error = Err::<(), _>(Errno::NOSPC).context("a").context("b").unwrap_err();
        let chain: Vec<_> =
            std::iter::successors(Some(&error as &(dyn StdError + 'static)), |&error| error.source())
                .collect();
        assert_eq!(chain.len(), 3);
        assert_eq!((chain[0].to_string(), chain[1].to_string()), ("b".into(), "a".into()));
        let system = chain[2].downcast_ref::<io::Error>().unwrap();
        assert_eq!(system.kind(), io::ErrorKind::StorageFull);
        assert_eq!(format!("{error:#}"), format!("b: a: {system}"));
        let none = None::<()>.context("no value").unwrap_err();
        assert!(matches!(none, Error::Refused(why) if why == "no value"));
    }
}
