//! An operation on a volume, and the calls that make it durable.

#![allow(missing_docs, reason = "the variants explain themselves")]

use std::ops::Range;

use parext4::{EmptiedLog, XattrMode};

use super::file_op::{FileOp, Way};

/// Bytes that [`Op::RemoveOpen`] writes.
pub const LAST_WRITE: u64 = 4096;

/// Bytes at the start of a file that a sync of a range is for, after an operation without a range.
const START: u64 = 4096;

/// One operation. Paths are absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Create(&'static str),
    MakeDir(&'static str),
    Link(&'static str, &'static str),
    /// A name, and the target of the symbolic link.
    Symlink(&'static str, &'static str),
    Rename(&'static str, &'static str),
    /// A rename that fails if the new name exists.
    RenameNew(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    Unlink(&'static str),
    /// Removes the name of a file that stays open until the volume closes.
    UnlinkOpen(&'static str),
    /// Removes the name of a file that is open, writes [`LAST_WRITE`] bytes to it, syncs the volume
    /// and closes the file.
    RemoveOpen(&'static str),
    RemoveDir(&'static str),
    /// Sets an extended attribute of a file to a value of `len` bytes.
    SetXattr {
        path: &'static str,
        name: &'static str,
        len: usize,
        mode: XattrMode,
    },
    RemoveXattr {
        path: &'static str,
        name: &'static str,
    },
    Chmod(&'static str),
    Chown(&'static str),
    /// Opens the file, runs the operation and closes the file.
    File(&'static str, FileOp),
    SyncVolume,
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

/// An operation and what follows it.
pub type Step = (Op, Persist);

/// Returns the path of the directory of a path; the empty path is the root.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Op {
    /// Returns the path of what a sync after the operation is for. The empty path is the root.
    pub fn target(&self) -> &'static str {
        match *self {
            Self::Link(_, path)
            | Self::Rename(_, path)
            | Self::RenameNew(_, path)
            | Self::Exchange(_, path) => path,
            Self::Symlink(path, _)
            | Self::Unlink(path)
            | Self::UnlinkOpen(path)
            | Self::RemoveOpen(path)
            | Self::RemoveDir(path) => parent(path),
            Self::Create(path)
            | Self::MakeDir(path)
            | Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::Chmod(path)
            | Self::Chown(path)
            | Self::File(path, _) => path,
            Self::SyncVolume => "",
        }
    }

    /// Returns the path of the directory of the target.
    pub fn parent(&self) -> &'static str {
        parent(self.target())
    }

    /// Returns the operation on the target, if it is a file that the operation changes or syncs.
    pub fn on_file(&self) -> Option<FileOp> {
        if let Self::File(_, op) = self { Some(*op) } else { None }
    }

    /// Returns what the operation makes durable itself, before it returns.
    pub fn persists(&self) -> Persist {
        match *self {
            Self::SyncVolume | Self::RemoveOpen(_) => Persist::Volume,
            Self::File(_, FileOp::SyncAll { .. }) => Persist::All,
            Self::File(_, FileOp::SyncData { .. }) => Persist::Data,
            Self::File(
                _,
                FileOp::SyncRange { .. }
                | FileOp::Write { way: Way::Synced, .. }
                | FileOp::Append { way: Way::Synced, .. },
            ) => Persist::Range,
            _ => Persist::None,
        }
    }

    /// Returns the range of the file, which has `size` bytes after the operation, that a sync of
    /// the range is for.
    pub fn range(&self, size: u64) -> Range<u64> {
        match self.on_file() {
            Some(
                FileOp::Write { offset, len, .. }
                | FileOp::ZeroRange { offset, len, .. }
                | FileOp::PunchHole { offset, len }
                | FileOp::SyncRange { offset, len },
            ) => offset..offset + len,
            Some(FileOp::Append { len, .. }) => size - len..size,
            _ => 0..START,
        }
    }

    /// Returns true if the operation moves the data after its range.
    pub fn shifts(&self) -> bool {
        self.on_file().is_some_and(FileOp::shifts)
    }

    /// Returns true if only files with extents support the operation.
    pub fn needs_extents(&self) -> bool {
        self.on_file().is_some_and(FileOp::needs_extents)
    }
}
