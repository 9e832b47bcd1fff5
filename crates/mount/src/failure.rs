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
    /// A new inode has an owner that has no number.
    pub const NO_ID: Self = Self::new(Errno::EOVERFLOW);
    pub const NOT_PERMITTED: Self = Self::new(Errno::EPERM);
    pub const INVALID: Self = Self::new(Errno::EINVAL);
    pub const NO_ATTRIBUTE: Self = Self::new(Errno::NO_XATTR);
    pub const NO_DEVICE: Self = Self::new(Errno::ENODEV);
    pub const NO_IOCTL: Self = Self::new(Errno::ENOTTY);
    pub const NOT_SUPPORTED: Self = Self::new(Errno::EOPNOTSUPP);
    pub const RANGE: Self = Self::new(Errno::ERANGE);
    pub const READ_ONLY: Self = Self::new(Errno::EROFS);

    const fn new(errno: Errno) -> Self {
        Self { errno, corruption: None }
    }

    /// Why an inode cannot be had by number.
    pub fn by_number(error: Error) -> Self {
        match error {
            Error::NotFound(_) => Self::STALE,
            error => error.into(),
        }
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
    /// [`Error::to_errno`] is the table. Failures of the device are also logged; the volume logs its corruption itself.
    fn from(error: Error) -> Self {
        if matches!(error, Error::Device { .. }) {
            tracing::error!("{error}");
        }
        let errno = Errno::from_i32(error.to_errno());
        let corruption = matches!(error, Error::Corrupt(_)).then(|| Box::new(error));
        Self { errno, corruption }
    }
}
