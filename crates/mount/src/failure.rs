//! Why an operation failed, as the kernel is told.

use fuser::Errno;
use parext4::Error;

/// What an operation of the mount comes to.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// The errno of an operation that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure(Errno);

impl Failure {
    /// The kernel names an inode or a handle that we do not know.
    pub const STALE: Self = Self(Errno::ESTALE);
    pub const NOT_PERMITTED: Self = Self(Errno::EPERM);
    pub const INVALID: Self = Self(Errno::EINVAL);
    pub const NO_ATTRIBUTE: Self = Self(Errno::NO_XATTR);
    pub const NO_IOCTL: Self = Self(Errno::ENOTTY);
    pub const NOT_SUPPORTED: Self = Self(Errno::EOPNOTSUPP);
    pub const RANGE: Self = Self(Errno::ERANGE);

    pub fn errno(self) -> Errno {
        self.0
    }
}

impl From<Error> for Failure {
    /// [`Error::to_errno`] is the table. What a user cannot have caused is also logged, with its text.
    fn from(error: Error) -> Self {
        if matches!(error, Error::Device { .. } | Error::Corrupt(_)) {
            tracing::error!("{error}");
        }
        Self(Errno::from_i32(error.to_errno()))
    }
}
