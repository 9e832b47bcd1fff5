//! Why an operation failed, as the kernel is told.

use fuser::Errno;
use parext4::Error;

/// What an operation of the mount comes to.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// The errno of an operation that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: Errno,
    /// Where the volume turned out to be corrupt.
    corruption: Option<Box<Error>>,
}

impl Failure {
    /// The kernel names an inode or a handle that we do not know.
    pub const STALE: Self = Self::new(Errno::ESTALE);
    pub const NOT_PERMITTED: Self = Self::new(Errno::EPERM);
    pub const INVALID: Self = Self::new(Errno::EINVAL);
    pub const NO_ATTRIBUTE: Self = Self::new(Errno::NO_XATTR);
    pub const NO_IOCTL: Self = Self::new(Errno::ENOTTY);
    pub const NOT_SUPPORTED: Self = Self::new(Errno::EOPNOTSUPP);
    pub const RANGE: Self = Self::new(Errno::ERANGE);

    const fn new(errno: Errno) -> Self {
        Self { errno, corruption: None }
    }

    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// What is wrong with the volume, if that is why.
    pub fn corruption(&self) -> Option<&Error> {
        self.corruption.as_deref()
    }
}

impl From<Error> for Failure {
    /// [`Error::to_errno`] is the table. What a user cannot have caused is also logged, with its text.
    fn from(error: Error) -> Self {
        if matches!(error, Error::Device { .. } | Error::Corrupt(_)) {
            tracing::error!("{error}");
        }
        let errno = Errno::from_i32(error.to_errno());
        let corruption = matches!(error, Error::Corrupt(_)).then(|| Box::new(error));
        Self { errno, corruption }
    }
}
