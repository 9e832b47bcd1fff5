//! Why a volume cannot be created.

use std::sync::Arc;
use std::{fmt, io};

use parext4_format::FormatError;

pub(crate) type Result<T, E = MkfsError> = std::result::Result<T, E>;

/// Why [`mkfs`](crate::mkfs) failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum MkfsError {
    /// An option is not valid, or does not fit the device; the text says which and why.
    Invalid(String),
    /// A structure of the new volume cannot be encoded.
    Format(FormatError),
    /// The device failed a read, write, flush or discard.
    Device {
        /// The operation that failed.
        what: String,
        /// The error that the device returned.
        cause: Arc<io::Error>,
    },
}

impl MkfsError {
    /// Returns an error of an option. `what` names the option and the reason.
    pub(crate) fn invalid(what: impl fmt::Display) -> Self {
        Self::Invalid(what.to_string())
    }

    /// Returns a device error. `what` names the operation that failed.
    pub(crate) fn device(what: impl fmt::Display, cause: io::Error) -> Self {
        Self::Device { what: what.to_string(), cause: Arc::new(cause) }
    }
}

impl From<FormatError> for MkfsError {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

impl std::error::Error for MkfsError {}

impl fmt::Display for MkfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(what) => write!(f, "invalid argument: {what}"),
            Self::Format(error) => write!(f, "new volume: {error}"),
            Self::Device { what, cause } => write!(f, "{what}: {cause}"),
        }
    }
}
