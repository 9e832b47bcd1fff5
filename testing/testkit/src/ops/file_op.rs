//! An operation on one file.

#![allow(missing_docs, reason = "the fields and variants explain themselves")]

use std::ops::Range;

const SECTOR: u64 = 512;

/// How an operation reaches the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Buffered,
    /// Buffered, through a handle that syncs each write.
    Synced,
    Direct,
    /// Direct, through a queue.
    Queued,
}

impl Way {
    /// Returns true if data does not pass through the page cache.
    pub fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::Queued)
    }
}

/// One operation; offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOp {
    Read { way: Way, offset: u64, len: u64 },
    Write { way: Way, offset: u64, len: u64 },
    Append { way: Way, len: u64 },
    SetLen { size: u64 },
    Allocate { offset: u64, len: u64, keep_size: bool },
    PunchHole { offset: u64, len: u64 },
    ZeroRange { offset: u64, len: u64, keep_size: bool },
    CollapseRange { offset: u64, len: u64 },
    InsertRange { offset: u64, len: u64 },
    SyncRange { offset: u64, len: u64 },
    SyncData { way: Way },
    SyncAll { way: Way },
    Seek { offset: u64 },
}

/// What a successful operation has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The bytes that were read.
    Read(Vec<u8>),
    /// The offset of the data that was appended.
    Appended(u64),
    /// The first data, and the first hole after it; `None` if there is no data.
    Found(Option<(u64, u64)>),
}

impl FileOp {
    /// Returns true if the operation fails on a file without extents.
    pub fn needs_extents(self) -> bool {
        self.shifts() || matches!(self, Self::Allocate { .. } | Self::ZeroRange { .. })
    }

    /// Returns true if the operation moves the data after its range.
    pub fn shifts(self) -> bool {
        matches!(self, Self::CollapseRange { .. } | Self::InsertRange { .. })
    }

    /// Returns true if the operation may change the file.
    pub fn changes(self) -> bool {
        !matches!(
            self,
            Self::Read { .. }
                | Self::SyncRange { .. }
                | Self::SyncData { .. }
                | Self::SyncAll { .. }
                | Self::Seek { .. }
        )
    }

    /// Returns the range of bytes that the operation writes into a file of `size` bytes.
    pub fn written(self, size: u64) -> Option<Range<u64>> {
        match self {
            Self::Write { offset, len, .. } => Some(offset..offset + len),
            Self::Append { len, .. } => Some(size..size + len),
            _ => None,
        }
    }

    /// Returns a direct read, write or append of the whole sectors that this one touches, and any
    /// other operation as it is.
    #[must_use]
    pub fn in_whole_sectors(self) -> Self {
        let rounded = |offset: u64, len: u64| {
            let start = offset - offset % SECTOR;
            (start, (offset + len).next_multiple_of(SECTOR) - start)
        };
        match self {
            Self::Read { way, offset, len } if way.is_direct() => {
                let (offset, len) = rounded(offset, len);
                Self::Read { way, offset, len }
            }
            Self::Write { way, offset, len } if way.is_direct() => {
                let (offset, len) = rounded(offset, len);
                Self::Write { way, offset, len }
            }
            Self::Append { way, len } if way.is_direct() => Self::Append { way, len: rounded(0, len).1 },
            other => other,
        }
    }
}
