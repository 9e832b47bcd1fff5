//! Error numbers of failed operations.

use fuser::Errno;
use parext4::Error;

/// The result of an operation of the mount.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// The errno of an operation that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: Errno,
    /// The corruption that the operation found in the volume, if any.
    corruption: Option<Box<Error>>,
}

impl Failure {
    /// The error of a request that names an inode or a handle which the server does not know.
    pub const STALE: Self = Self::new(Errno::ESTALE);
    /// The error of a new inode whose owner has no number in the server's user namespace.
    pub const NO_ID: Self = Self::new(Errno::EOVERFLOW);
    pub const NOT_PERMITTED: Self = Self::new(Errno::EPERM);
    pub const IO: Self = Self::new(Errno::EIO);
    pub const INVALID: Self = Self::new(Errno::EINVAL);
    pub const NO_ATTRIBUTE: Self = Self::new(Errno::NO_XATTR);
    pub const NO_DEVICE: Self = Self::new(Errno::ENODEV);
    pub const NO_IOCTL: Self = Self::new(Errno::ENOTTY);
    pub const NOT_SUPPORTED: Self = Self::new(Errno::EOPNOTSUPP);
    pub const OVERFLOW: Self = Self::new(Errno::EOVERFLOW);
    pub const RANGE: Self = Self::new(Errno::ERANGE);
    pub const READ_ONLY: Self = Self::new(Errno::EROFS);

    pub const fn new(errno: Errno) -> Self {
        Self { errno, corruption: None }
    }

    /// Converts an error of a look-up by number: a missing inode becomes a stale one.
    pub fn of_number(error: Error) -> Self {
        match error {
            Error::NotFound(_) => Self::STALE,
            error => error.into(),
        }
    }

    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// Returns true if the volume is full or a limit of a quota is reached.
    pub fn lacks_space(&self) -> bool {
        matches!(self.errno, Errno::ENOSPC | Errno::EDQUOT)
    }

    /// Returns the corruption that the operation found, if any.
    pub fn corruption(&self) -> Option<&Error> {
        self.corruption.as_deref()
    }
}

impl From<Error> for Failure {
    /// Converts an error by [`Error::to_errno`]. Logs errors of the device; the volume itself logs
    /// corruption.
    fn from(error: Error) -> Self {
        if matches!(error, Error::Device { .. }) {
            log::error!("{error}");
        }
        let errno = Errno::from_i32(error.to_errno());
        let corruption = matches!(error, Error::Corrupt(_)).then(|| Box::new(error));
        Self { errno, corruption }
    }
}
