//! The error type of the engine: one variant for each meaning, and its errno.
//!
//! Errors of the parsers (`FormatError`) become [`Error::Corrupt`]. Invariant: the text names what
//! was wrong and where, and is kept when an error becomes an [`io::Error`].

mod corruption;
mod message;

use std::fmt;
use std::io;
use std::sync::Arc;

use parext4_format::{FormatError, FsBlock, GroupNo, InodeNo};

pub use corruption::Corruption;

/// The result of an operation on a volume.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on a volume failed.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// use parext4::Error;
///
/// match volume.read("/missing") {
///     Err(error @ Error::NotFound(_)) => assert_eq!(error.to_errno(), 2),
///     other => panic!("{other:?}"),
/// }
/// let error: std::io::Error = volume.read("/missing").unwrap_err().into();
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The device failed a read, write, flush or discard. Its errno is `EIO`, and `cause` has the
    /// one of the device: a program would take the device's `ENODATA` for a missing attribute, or
    /// its `ENOSPC` for a full volume.
    Device {
        /// The operation that failed.
        what: String,
        /// The error that the device returned.
        cause: Arc<io::Error>,
    },
    /// A structure on the device fails a check. The operation has changed nothing because of it.
    /// Its errno is `EUCLEAN`.
    Corrupt(Box<Corruption>),
    /// The device ends before the volume does: a part of the volume is missing. Its errno is
    /// `EUCLEAN`.
    Truncated {
        /// The size of the volume in bytes, which is more than `size`.
        needed: u64,
        /// The size of the device in bytes.
        size: u64,
    },
    /// The volume or the file uses a feature that parext4 does not support. The text names it.
    /// Its errno is `EOPNOTSUPP`.
    Unsupported(String),
    /// The journal is on a device of its own, which
    /// [`VolumeOptions::journal_device`](crate::VolumeOptions::journal_device) does not name
    /// (`EINVAL`).
    NoJournalDevice {
        /// The UUID of the journal, as text.
        uuid: String,
    },
    /// The volume was opened read-only, or cannot be opened otherwise (`EROFS`).
    ReadOnly(String),
    /// An earlier failure has stopped the volume: it accepts no changes until it is opened again.
    /// The text describes that failure. Its errno is `EROFS`.
    Stopped(Arc<str>),
    /// The volume was shut down by [`Volume::abort`](crate::Volume::abort). Its errno is `EIO`.
    ShutDown,
    /// No such file or directory (`ENOENT`).
    NotFound(String),
    /// The name exists already (`EEXIST`).
    Exists(String),
    /// The operation needs a directory (`ENOTDIR`).
    NotDirectory(String),
    /// The operation needs something other than a directory (`EISDIR`).
    IsDirectory(String),
    /// The directory still has entries (`ENOTEMPTY`).
    NotEmpty(String),
    /// No free blocks are left (`ENOSPC`).
    NoSpace,
    /// The user, group or project has reached a limit of its quota (`EDQUOT`).
    QuotaExceeded(String),
    /// The directory accepts only names of inodes of its own project (`EXDEV`).
    OtherProject(String),
    /// No free inodes are left (`ENOSPC`).
    NoInodes,
    /// The inode has as many links as the format allows (`EMLINK`).
    TooManyLinks(String),
    /// A name is longer than 255 bytes, or a symlink's target longer than a block (`ENAMETOOLONG`).
    NameTooLong(String),
    /// The inode has no such extended attribute (`ENODATA`).
    NoAttribute(String),
    /// A value is longer than the limit of the system call (`E2BIG`).
    TooBig(String),
    /// A length is out of range (`ERANGE`).
    OutOfRange(String),
    /// An argument is not valid; the text says which and why. Its errno is `EINVAL`.
    Invalid(String),
    /// The file would exceed the largest size that the format can map (`EFBIG`).
    FileTooLarge,
    /// The file has no data, or no hole, at or after this byte offset (`ENXIO`).
    NothingAfter(u64),
    /// The object is in use (`EBUSY`).
    Busy(String),
    /// The operation would block, and the caller has asked for an error in that case (`EAGAIN`).
    WouldBlock(&'static str),
    /// The operation was cancelled before it began (`ECANCELED`).
    Cancelled,
    /// More symbolic links than allowed were met while resolving a path (`ELOOP`).
    Loop(String),
    /// Contents of a file, or of its Merkle tree, do not match the hashes of fs-verity. Its errno
    /// is `EIO`.
    Unverified(String),
    /// The file was not opened for reading, or for writing (`EBADF`).
    NotOpenFor(&'static str),
    /// The file ends before the requested range does. Its errno is `EIO`.
    UnexpectedEof,
    /// The inode is encrypted, and parext4 has no keys (`ENOKEY`).
    NoKey(String),
    /// The operation is not permitted on this inode (`EPERM`).
    NotPermitted(String),
}

impl std::error::Error for Error {}

impl Error {
    /// Returns a device error. `what` names the operation that failed.
    pub(crate) fn device(what: impl fmt::Display, cause: io::Error) -> Self {
        Self::Device { what: what.to_string(), cause: Arc::new(cause) }
    }

    /// Returns a corruption error of no field in particular. `what` names the structure and its
    /// fault.
    pub(crate) fn corrupt(what: impl fmt::Display) -> Self {
        Corruption::new(what).into()
    }

    /// Returns a corruption error of a field. `problem` gives the value found, and why it is wrong.
    pub(crate) fn corrupt_field(
        structure: &'static str,
        field: &'static str,
        problem: impl fmt::Display,
    ) -> Self {
        Corruption::of_field(structure, field, problem).into()
    }

    /// Sets the inode of a corruption error that has none.
    pub(crate) fn of_inode(self, ino: InodeNo) -> Self {
        self.locate(|corruption| corruption.ino = corruption.ino.or(Some(ino)))
    }

    /// Sets the block of a corruption error that has none.
    pub(crate) fn in_block(self, block: FsBlock) -> Self {
        self.locate(|corruption| corruption.block = corruption.block.or(Some(block)))
    }

    /// Sets the block group of a corruption error that has none.
    pub(crate) fn in_group(self, group: GroupNo) -> Self {
        self.locate(|corruption| corruption.group = corruption.group.or(Some(group)))
    }

    fn locate(mut self, set: impl FnOnce(&mut Corruption)) -> Self {
        if let Self::Corrupt(corruption) = &mut self {
            set(corruption);
        }
        self
    }

    /// Returns an error for an argument that is not valid. `what` names the argument and the
    /// reason.
    pub(crate) fn invalid(what: impl fmt::Display) -> Self {
        Self::Invalid(what.to_string())
    }

    /// Returns the errno that a system call would report for this error.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// assert_eq!(volume.create_dir("/lost+found", 0o755).unwrap_err().to_errno(), 17, "EEXIST");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn to_errno(&self) -> i32 {
        match self {
            Self::Corrupt(_) | Self::Truncated { .. } => libc::EUCLEAN,
            Self::Unsupported(_) => libc::EOPNOTSUPP,
            // The kernel's ext4 refuses changes with the same errno after an error has stopped it
            // (`EXT4_FLAGS_EMERGENCY_RO`).
            Self::ReadOnly(_) | Self::Stopped(_) => libc::EROFS,
            Self::NotFound(_) => libc::ENOENT,
            Self::Exists(_) => libc::EEXIST,
            Self::NotDirectory(_) => libc::ENOTDIR,
            Self::IsDirectory(_) => libc::EISDIR,
            Self::NotEmpty(_) => libc::ENOTEMPTY,
            Self::NoSpace | Self::NoInodes => libc::ENOSPC,
            Self::QuotaExceeded(_) => libc::EDQUOT,
            Self::OtherProject(_) => libc::EXDEV,
            Self::TooManyLinks(_) => libc::EMLINK,
            Self::NameTooLong(_) => libc::ENAMETOOLONG,
            Self::NoAttribute(_) => libc::ENODATA,
            Self::TooBig(_) => libc::E2BIG,
            Self::OutOfRange(_) => libc::ERANGE,
            Self::Invalid(_) | Self::NoJournalDevice { .. } => libc::EINVAL,
            Self::FileTooLarge => libc::EFBIG,
            Self::NothingAfter(_) => libc::ENXIO,
            Self::Busy(_) => libc::EBUSY,
            Self::WouldBlock(_) => libc::EAGAIN,
            Self::Cancelled => libc::ECANCELED,
            Self::NotOpenFor(_) => libc::EBADF,
            // The kernel's ext4 answers so after `EXT4_IOC_SHUTDOWN`.
            Self::ShutDown => libc::EIO,
            Self::Device { .. } | Self::UnexpectedEof | Self::Unverified(_) => libc::EIO,
            Self::Loop(_) => libc::ELOOP,
            Self::NoKey(_) => libc::ENOKEY,
            Self::NotPermitted(_) => libc::EPERM,
        }
    }
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Self::Corrupt(Box::new(corruption))
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        Corruption::from(error).into()
    }
}

impl From<Error> for io::Error {
    /// Keeps the error as the source, with the text and the kind. [`Error::to_errno`] has the
    /// errno.
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Device { cause, .. } => cause.kind(),
            Error::Corrupt(_) | Error::Truncated { .. } | Error::Unverified(_) => io::ErrorKind::InvalidData,
            Error::UnexpectedEof => io::ErrorKind::UnexpectedEof,
            Error::NoAttribute(_) => io::ErrorKind::NotFound,
            // `io::Error::from_raw_os_error` would discard the text.
            other => io::Error::from_raw_os_error(other.to_errno()).kind(),
        };
        io::Error::new(kind, error)
    }
}
