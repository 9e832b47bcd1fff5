//! The operations of a sequence, and the calls that make them durable.

#![allow(missing_docs, reason = "the variants explain themselves")]

use parext4::EmptiedLog;

/// Bytes of a block of the volumes.
const BLOCK: u64 = 1024;
/// Bytes of one write, and of a range that is punched, zeroed or moved.
pub const PIECE: u64 = 2 * BLOCK;
/// Bytes of two of the files that exist before a sequence.
pub const FILE_BYTES: u64 = 4 * PIECE;
/// Bytes of the third file, and of a short write. They fit into an inode.
pub const SHORT: u64 = 100;

/// How data reaches a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Buffered,
    Direct,
    Queued,
    /// Buffered, through a handle that syncs each write.
    Synced,
}

/// One operation. Paths are fixed names; offsets and sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Create(&'static str),
    MakeDir(&'static str),
    Link(&'static str, &'static str),
    Symlink(&'static str),
    Rename(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    Unlink(&'static str),
    /// Removes the name of a file that stays open until the volume closes.
    UnlinkOpen(&'static str),
    RemoveDir(&'static str),
    Write(&'static str, u64, Way),
    /// Writes [`SHORT`] bytes to the start of a file, buffered.
    WriteShort(&'static str),
    Append(&'static str, Way),
    SetLen(&'static str, u64),
    /// Allocates; the size stays if the last field is true.
    Allocate(&'static str, u64, bool),
    Punch(&'static str, u64),
    /// Zeroes; the size stays if the last field is true.
    Zero(&'static str, u64, bool),
    Collapse(&'static str),
    Insert(&'static str),
    SetXattr(&'static str),
    RemoveXattr(&'static str),
    Chmod(&'static str),
    Chown(&'static str),
}

/// What follows an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// Sync of the file or directory that the operation changed.
    All,
    /// Sync of the data of the file.
    Data,
    /// Sync of the range of the file that the operation wrote.
    Range,
    /// Sync of the volume.
    Volume,
    /// A commit without write-back, by a sync of another file.
    Commit,
    /// Nothing.
    None,
    /// Sync of the directory of the file or directory that the operation changed.
    Parent,
    /// A wait, without a sync, until a commit by the volume's timer has become durable that began
    /// after the operation.
    Timed,
    /// The journal is emptied; its blocks keep their contents, or are discarded or zeroed.
    Empty(EmptiedLog),
}

/// The kinds of persistence of the sequences of one step that are all tried. Random sequences also
/// sync the directory and empty the journal.
pub const PERSISTS: [Persist; 7] = [
    Persist::All,
    Persist::Data,
    Persist::Range,
    Persist::Volume,
    Persist::Commit,
    Persist::None,
    Persist::Timed,
];
/// Like [`PERSISTS`], on a volume without timed commits, and for longer sequences.
pub const UNTIMED: &[Persist] = PERSISTS.split_last().expect("not empty").1;

/// An operation and what follows it.
pub type Step = (Op, Persist);

impl Op {
    /// Returns the path of what a sync after the operation is for. The empty path is the root.
    pub fn target(&self) -> &'static str {
        match *self {
            Self::Link(_, path) | Self::Rename(_, path) | Self::Exchange(_, path) => path,
            Self::Symlink(path) | Self::Unlink(path) | Self::UnlinkOpen(path) | Self::RemoveDir(path) => {
                path.rsplit_once('/').map_or("", |(parent, _)| parent)
            }
            Self::Create(path)
            | Self::MakeDir(path)
            | Self::Write(path, ..)
            | Self::WriteShort(path)
            | Self::Append(path, _)
            | Self::SetLen(path, _)
            | Self::Allocate(path, ..)
            | Self::Punch(path, _)
            | Self::Zero(path, ..)
            | Self::Collapse(path)
            | Self::Insert(path)
            | Self::SetXattr(path)
            | Self::RemoveXattr(path)
            | Self::Chmod(path)
            | Self::Chown(path) => path,
        }
    }

    /// Returns the path of the directory of the target.
    pub fn parent(&self) -> &'static str {
        self.target().rsplit_once('/').map_or("", |(parent, _)| parent)
    }

    /// Returns true if what the operation writes is durable when it returns.
    pub fn is_synced(&self) -> bool {
        matches!(self, Self::Write(_, _, Way::Synced) | Self::Append(_, Way::Synced))
    }

    /// Returns offset and length of the range of the file, which has `size` bytes after the
    /// operation, that a sync of the range is for.
    pub fn range(&self, size: u64) -> (u64, u64) {
        match *self {
            Self::Write(_, offset, _) | Self::Zero(_, offset, _) | Self::Punch(_, offset) => (offset, PIECE),
            Self::Append(..) => (size - PIECE, PIECE),
            _ => (0, 2 * PIECE),
        }
    }

    /// Returns true if the operation moves the data after its range.
    pub fn shifts(&self) -> bool {
        matches!(self, Self::Collapse(_) | Self::Insert(_))
    }

    /// Returns true if only files with extents support the operation.
    pub fn needs_extents(&self) -> bool {
        self.shifts() || matches!(self, Self::Allocate(..) | Self::Zero(..))
    }
}
