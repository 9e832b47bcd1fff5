//! One error by meaning, and its errno.

use std::fmt;
use std::io;
use std::sync::Arc;

use parext4_format::FormatError;

/// The result of an operation on a volume.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on a volume failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The device failed a read, write, flush or discard.
    #[error("{what}: {cause}")]
    Device {
        /// What was being done.
        what: String,
        /// The device's own error.
        cause: Arc<io::Error>,
    },
    /// A structure on the device fails a check; nothing was changed on its account.
    #[error("corrupt volume: {0}")]
    Corrupt(String),
    /// The volume or file uses a feature that parext4 does not support; the text names it.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The volume was opened read-only, or cannot be opened otherwise.
    #[error("the volume is read-only: {0}")]
    ReadOnly(String),
    /// An earlier error latched the volume read-only (I8); the text is that error.
    #[error("the volume was stopped by an earlier error: {0}")]
    Stopped(Arc<str>),
    /// No such file or directory.
    #[error("no such file or directory: {0}")]
    NotFound(String),
    /// The name exists already.
    #[error("file exists: {0}")]
    Exists(String),
    /// A directory was needed.
    #[error("not a directory: {0}")]
    NotDirectory(String),
    /// Something other than a directory was needed.
    #[error("is a directory: {0}")]
    IsDirectory(String),
    /// The directory still has entries.
    #[error("directory not empty: {0}")]
    NotEmpty(String),
    /// No free blocks are left.
    #[error("no space left on the volume")]
    NoSpace,
    /// No free inodes are left.
    #[error("no inodes left on the volume")]
    NoInodes,
    /// The inode has as many links as the format allows.
    #[error("too many links: {0}")]
    TooManyLinks(String),
    /// A name is longer than 255 bytes, or a symlink's target longer than a block.
    #[error("name too long: {0}")]
    NameTooLong(String),
    /// The inode has no such extended attribute.
    #[error("no such attribute: {0}")]
    NoAttribute(String),
    /// A value is longer than any that can be passed.
    #[error("too big: {0}")]
    TooBig(String),
    /// A length is out of range.
    #[error("out of range: {0}")]
    OutOfRange(String),
    /// An argument is not valid; the text says which and why.
    #[error("invalid argument: {0}")]
    Invalid(String),
    /// The file would exceed the largest size that the format can map.
    #[error("file too large")]
    FileTooLarge,
    /// Nothing of what was asked for is at or behind this byte of the file.
    #[error("nothing there at or behind byte {0}")]
    NothingBehind(u64),
    /// The object is in use.
    #[error("in use: {0}")]
    Busy(String),
    /// The operation would have to wait, which it was told not to.
    #[error("would wait: {0}")]
    WouldWait(&'static str),
    /// The operation was cancelled before it began.
    #[error("cancelled")]
    Cancelled,
    /// More symbolic links than allowed were met while resolving a path.
    #[error("too many levels of symbolic links: {0}")]
    Loop(String),
    /// The operation is not permitted on this inode.
    #[error("operation not permitted: {0}")]
    NotPermitted(String),
}

impl Error {
    /// A device error while doing `what`.
    pub(crate) fn device(what: impl fmt::Display, cause: io::Error) -> Self {
        Self::Device { what: what.to_string(), cause: Arc::new(cause) }
    }

    /// A corruption found in `what`.
    pub(crate) fn corrupt(what: impl fmt::Display) -> Self {
        Self::Corrupt(what.to_string())
    }

    /// An argument that is not valid.
    pub(crate) fn invalid(what: impl fmt::Display) -> Self {
        Self::Invalid(what.to_string())
    }

    /// The errno that a system call would report for this error.
    #[must_use]
    pub fn to_errno(&self) -> i32 {
        match self {
            Self::Device { cause, .. } => cause.raw_os_error().unwrap_or(libc::EIO),
            Self::Corrupt(_) => libc::EUCLEAN,
            Self::Unsupported(_) => libc::EOPNOTSUPP,
            // The kernel's ext4 refuses changes with the same error after an error has stopped it
            // (`EXT4_FLAGS_EMERGENCY_RO`).
            Self::ReadOnly(_) | Self::Stopped(_) => libc::EROFS,
            Self::NotFound(_) => libc::ENOENT,
            Self::Exists(_) => libc::EEXIST,
            Self::NotDirectory(_) => libc::ENOTDIR,
            Self::IsDirectory(_) => libc::EISDIR,
            Self::NotEmpty(_) => libc::ENOTEMPTY,
            Self::NoSpace | Self::NoInodes => libc::ENOSPC,
            Self::TooManyLinks(_) => libc::EMLINK,
            Self::NameTooLong(_) => libc::ENAMETOOLONG,
            Self::NoAttribute(_) => libc::ENODATA,
            Self::TooBig(_) => libc::E2BIG,
            Self::OutOfRange(_) => libc::ERANGE,
            Self::Invalid(_) => libc::EINVAL,
            Self::FileTooLarge => libc::EFBIG,
            Self::NothingBehind(_) => libc::ENXIO,
            Self::Busy(_) => libc::EBUSY,
            Self::WouldWait(_) => libc::EAGAIN,
            Self::Cancelled => libc::ECANCELED,
            Self::Loop(_) => libc::ELOOP,
            Self::NotPermitted(_) => libc::EPERM,
        }
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        Self::Corrupt(error.to_string())
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        // Keep the text: `from_raw_os_error` would lose what is wrong and where.
        let kind = io::Error::from_raw_os_error(error.to_errno()).kind();
        io::Error::new(kind, error)
    }
}
