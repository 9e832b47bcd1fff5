//! Operations on one file: what each does and where, and the reason for which it needs the range
//! that it holds.
//!
//! Only data. Admission plans operations, and the statistics count and explain them.

mod reason;

pub use reason::Reason;

/// An operation on a file, with its range in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Reads `offset..end`.
    Read {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Writes `offset..end`, before or after the end of the file.
    Write {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Writes `offset..end`, and zeros around the data in part of it. Excludes all other writers,
    /// also where overwrites share the file.
    Widen {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Reads `offset..end` through the page cache.
    BufferedRead {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Writes `offset..end` to the page cache, before or after the end of the file.
    BufferedWrite {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Copies the dirty pages of `offset..end` out of the page cache, to write them to the device.
    WriteBack {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Changes a file whose contents lie in its inode, or moves them to blocks.
    ChangeInline,
    /// Sets the size.
    SetLen {
        /// The new size.
        size: u64,
    },
    /// Allocates the blocks of `offset..end`.
    Allocate {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
        /// The size does not change.
        keep_size: bool,
    },
    /// Frees the whole blocks of `offset..end`, and zeroes the rest of the range.
    PunchHole {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Allocates the blocks of `offset..end`, and makes them read as zeros.
    ZeroRange {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
        /// The size does not change.
        keep_size: bool,
    },
    /// Removes `offset..end` from the file, and moves all later data down.
    CollapseRange {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Inserts the hole `offset..end`, and moves all later data up.
    InsertRange {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
}

impl Operation {
    /// Returns the first byte that it writes and the byte after the last one, if it writes data.
    pub(crate) fn written(self) -> Option<(u64, u64)> {
        match self {
            Self::Write { offset, end } | Self::Widen { offset, end } => Some((offset, end)),
            _ => None,
        }
    }

    /// Returns the range of bytes that it affects, as first byte and end.
    #[inline]
    pub(crate) fn bytes(self) -> (u64, u64) {
        match self {
            Self::Read { offset, end }
            | Self::Write { offset, end }
            | Self::Widen { offset, end }
            | Self::BufferedRead { offset, end }
            | Self::BufferedWrite { offset, end }
            | Self::WriteBack { offset, end }
            | Self::Allocate { offset, end, .. }
            | Self::PunchHole { offset, end }
            | Self::ZeroRange { offset, end, .. } => (offset, end),
            Self::ChangeInline => (0, u64::MAX),
            Self::SetLen { size: start }
            | Self::CollapseRange { offset: start, .. }
            | Self::InsertRange { offset: start, .. } => (start, u64::MAX),
        }
    }

    /// Returns the same operation on other bytes, if it reads or writes data of a program. Other
    /// operations stay where they are.
    #[inline]
    pub(crate) fn at(self, offset: u64, end: u64) -> Self {
        match self {
            Self::Read { .. } => Self::Read { offset, end },
            Self::Write { .. } => Self::Write { offset, end },
            Self::BufferedRead { .. } => Self::BufferedRead { offset, end },
            Self::BufferedWrite { .. } => Self::BufferedWrite { offset, end },
            other => other,
        }
    }

    /// Returns true if it bypasses the page cache, so that no page of its range may be filled
    /// meanwhile. An allocation does not change what pages contain, and contents in the inode have
    /// no pages.
    pub(crate) fn bypasses_cache(self) -> bool {
        !matches!(
            self,
            Self::BufferedRead { .. }
                | Self::BufferedWrite { .. }
                | Self::WriteBack { .. }
                | Self::ChangeInline
                | Self::Allocate { .. }
        )
    }

    /// Returns true if it extends a file of `size` bytes.
    pub(crate) fn grows(self, size: u64) -> bool {
        match self {
            Self::Read { .. }
            | Self::BufferedRead { .. }
            | Self::WriteBack { .. }
            | Self::ChangeInline
            | Self::Allocate { keep_size: true, .. }
            | Self::ZeroRange { keep_size: true, .. }
            | Self::PunchHole { .. }
            | Self::CollapseRange { .. } => false,
            Self::Write { end, .. }
            | Self::Widen { end, .. }
            | Self::BufferedWrite { end, .. }
            | Self::Allocate { end, .. }
            | Self::ZeroRange { end, .. } => end > size,
            Self::SetLen { size: new } => new > size,
            Self::InsertRange { .. } => true,
        }
    }
}
