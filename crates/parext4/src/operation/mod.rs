//! Operations on one file: what each does and where, and why it needs the range that it holds. Admission plans them, and
//! the statistics count them.

mod reason;

pub use reason::Reason;

/// What an operation wants to do, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read `offset..end`.
    Read {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Write `offset..end`, wherever that lies; appends too.
    Write {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Write `offset..end`, part of it zeros that nobody asked for: nobody else may write there, not even where
    /// overwrites share the file.
    Widen {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Read `offset..end` through the page cache.
    BufferedRead {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Write `offset..end` to the page cache; appends too.
    BufferedWrite {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Take what is dirty in the pages of `offset..end` out of the page cache, to write it to the device.
    WriteBack {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Set the size.
    SetLen {
        /// The new size.
        size: u64,
    },
    /// Allocate the blocks of `offset..end`.
    Allocate {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
        /// Whether the size stays as it is.
        keep_size: bool,
    },
    /// Free the whole blocks of `offset..end`, and zero what is left of it.
    PunchHole {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Have the blocks of `offset..end` allocated, and read as zeros.
    ZeroRange {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
        /// Whether the size stays as it is.
        keep_size: bool,
    },
    /// Take the blocks of `offset..end` out of the file.
    CollapseRange {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
    /// Put a hole in at `offset`, whose end will be `end`.
    InsertRange {
        /// The first byte.
        offset: u64,
        /// The byte after the last.
        end: u64,
    },
}

impl Operation {
    /// The first byte that it writes, and the one behind the last, if it writes data.
    pub(crate) fn written(self) -> Option<(u64, u64)> {
        match self {
            Self::Write { offset, end } | Self::Widen { offset, end } => Some((offset, end)),
            _ => None,
        }
    }

    /// Whether it goes to the device past the page cache, so that no page in its way may come into being meanwhile.
    /// Allocating changes nothing that a page shows.
    pub(crate) fn bypasses_cache(self) -> bool {
        !matches!(
            self,
            Self::BufferedRead { .. }
                | Self::BufferedWrite { .. }
                | Self::WriteBack { .. }
                | Self::Allocate { .. }
        )
    }

    /// Whether it grows a file of `size` bytes.
    pub(crate) fn grows(self, size: u64) -> bool {
        match self {
            Self::Read { .. }
            | Self::BufferedRead { .. }
            | Self::WriteBack { .. }
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
