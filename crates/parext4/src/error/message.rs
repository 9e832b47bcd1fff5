//! The texts of errors.

use std::fmt;

use super::Error;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { what, cause } => write!(f, "{what}: {cause}"),
            Self::Corrupt(corruption) => write!(f, "corrupt volume: {corruption}"),
            Self::Truncated { needed, size } => {
                let missing = needed - size;
                write!(
                    f,
                    "the volume is {needed} bytes long, but its device only {size}: the last {missing} bytes are missing"
                )
            }
            Self::Unsupported(what) => write!(f, "not supported: {what}"),
            Self::ReadOnly(what) => write!(f, "the volume is read-only: {what}"),
            Self::Stopped(what) => write!(f, "the volume was stopped by an earlier error: {what}"),
            Self::ShutDown => f.write_str("the volume was shut down"),
            Self::NotFound(what) => write!(f, "no such file or directory: {what}"),
            Self::Exists(what) => write!(f, "file exists: {what}"),
            Self::NotDirectory(what) => write!(f, "not a directory: {what}"),
            Self::IsDirectory(what) => write!(f, "is a directory: {what}"),
            Self::NotEmpty(what) => write!(f, "directory not empty: {what}"),
            Self::NoSpace => f.write_str("no space left on the volume"),
            Self::QuotaExceeded(what) => write!(f, "quota exceeded: {what}"),
            Self::OtherProject(what) => write!(f, "another project: {what}"),
            Self::NoInodes => f.write_str("no inodes left on the volume"),
            Self::TooManyLinks(what) => write!(f, "too many links: {what}"),
            Self::NameTooLong(what) => write!(f, "name too long: {what}"),
            Self::NoAttribute(what) => write!(f, "no such attribute: {what}"),
            Self::TooBig(what) => write!(f, "too big: {what}"),
            Self::OutOfRange(what) => write!(f, "out of range: {what}"),
            Self::Invalid(what) => write!(f, "invalid argument: {what}"),
            Self::FileTooLarge => f.write_str("file too large"),
            Self::NothingAfter(offset) => write!(f, "no data or hole at or after byte {offset}"),
            Self::NoJournalDevice { uuid } => {
                write!(f, "the journal is on a device of its own, with UUID {uuid}, which was not given")
            }
            Self::Busy(what) => write!(f, "in use: {what}"),
            Self::WouldBlock(what) => write!(f, "would block: {what}"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Loop(what) => write!(f, "too many levels of symbolic links: {what}"),
            Self::Unverified(what) => write!(f, "fs-verity: the hash does not match: {what}"),
            Self::NotOpenFor(what) => write!(f, "the file is not open for {what}"),
            Self::UnexpectedEof => f.write_str("the file ends before the requested range"),
            Self::NoKey(what) => write!(f, "the key is not available: {what} is encrypted"),
            Self::NotPermitted(what) => write!(f, "operation not permitted: {what}"),
        }
    }
}
