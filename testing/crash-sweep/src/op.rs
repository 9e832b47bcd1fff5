//! The sizes of the operations of a sequence, and the kinds of persistence that are tried.

use testkit::ops::{FileOp, Op, Persist, Way};

/// Bytes of a block of the volumes.
const BLOCK: u64 = 1024;
/// Bytes of one write, and of a range that is punched, zeroed or moved.
pub const PIECE: u64 = 2 * BLOCK;
/// Bytes of two of the files that exist before a sequence.
pub const FILE_BYTES: u64 = 4 * PIECE;
/// Bytes of the third file, and of a short write. They fit into an inode.
pub const SHORT: u64 = 100;

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

/// Returns a write of [`PIECE`] bytes.
pub const fn write(path: &'static str, offset: u64, way: Way) -> Op {
    Op::File(path, FileOp::Write { way, offset, len: PIECE })
}

/// Returns a write of [`SHORT`] bytes to the start of a file, buffered.
pub const fn write_short(path: &'static str) -> Op {
    Op::File(path, FileOp::Write { way: Way::Buffered, offset: 0, len: SHORT })
}

/// Returns an append of [`PIECE`] bytes.
pub const fn append(path: &'static str, way: Way) -> Op {
    Op::File(path, FileOp::Append { way, len: PIECE })
}

/// Returns a truncation or an extension.
pub const fn set_len(path: &'static str, size: u64) -> Op {
    Op::File(path, FileOp::SetLen { size })
}

/// Returns zeros in [`PIECE`] bytes.
pub const fn zero(path: &'static str, offset: u64, keep_size: bool) -> Op {
    Op::File(path, FileOp::ZeroRange { offset, len: PIECE, keep_size })
}

/// Returns a collapse of the second piece of a file.
pub const fn collapse(path: &'static str) -> Op {
    Op::File(path, FileOp::CollapseRange { offset: PIECE, len: PIECE })
}

/// Returns an insertion before the second piece of a file.
pub const fn insert(path: &'static str) -> Op {
    Op::File(path, FileOp::InsertRange { offset: PIECE, len: PIECE })
}
