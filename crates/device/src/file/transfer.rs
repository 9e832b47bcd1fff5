//! Repeats preadv(2) and pwritev(2) until a request is complete.
//!
//! One call transfers at most 1024 buffers (`IOV_MAX`, limited by rustix) and 2 GiB (limited by the
//! kernel). The rest is a short transfer like any other.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};

use rustix::io::{preadv, pwritev, retry_on_intr};

use crate::short_transfer::{end_of_file, nothing_written};

/// Fills all of `bufs` from a file offset.
///
/// # Errors
/// `UnexpectedEof` if the file ends before all buffers are full.
pub(super) fn read_all(file: &File, mut offset: u64, mut bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
    // Skips empty buffers, because a call for zero bytes would look like the end of the file.
    IoSliceMut::advance_slices(&mut bufs, 0);
    while !bufs.is_empty() {
        let n = retry_on_intr(|| preadv(file, bufs, offset))?;
        if n == 0 {
            return Err(end_of_file(offset));
        }
        offset += n as u64;
        IoSliceMut::advance_slices(&mut bufs, n);
    }
    Ok(())
}

/// Writes all of `bufs` at a file offset.
///
/// # Errors
/// `WriteZero` if the file accepts no more bytes.
pub(super) fn write_all(file: &File, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
    let n = write_some(file, offset, bufs)?;
    if n == bufs.iter().map(|buf| buf.len()).sum() {
        return Ok(());
    }
    // A short write is rare, so the list of buffers is copied only now.
    let mut offset = offset + n as u64;
    let mut rest = bufs.to_vec();
    let mut rest = rest.as_mut_slice();
    IoSlice::advance_slices(&mut rest, n);
    while !rest.is_empty() {
        let n = write_some(file, offset, rest)?;
        if n == 0 {
            return Err(nothing_written(offset));
        }
        offset += n as u64;
        IoSlice::advance_slices(&mut rest, n);
    }
    Ok(())
}

/// Writes a first part of `bufs`, and returns the number of bytes written.
fn write_some(file: &File, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(retry_on_intr(|| pwritev(file, bufs, offset))?)
}
