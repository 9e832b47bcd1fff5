//! The errors of transfers that cannot be completed: the file has no more bytes, or accepts none.

use std::io;

/// Returns the error of a read that got no bytes at `offset` of its file.
pub(crate) fn end_of_file(offset: u64) -> io::Error {
    let message = format!("the file ends at or soon after offset {offset}");
    io::Error::new(io::ErrorKind::UnexpectedEof, message)
}

/// Returns the error of a write that wrote no bytes at `offset` of its file.
pub(crate) fn nothing_written(offset: u64) -> io::Error {
    io::Error::new(io::ErrorKind::WriteZero, format!("the file accepts no bytes at offset {offset}"))
}
