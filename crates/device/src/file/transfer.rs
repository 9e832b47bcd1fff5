//! preadv and pwritev until all is done.
//!
//! One call moves at most `IOV_MAX` (1024) buffers, which rustix sees to, and 2 GiB, which the kernel does; what
//! is left then is a short count like any other.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};

use rustix::io::{preadv, pwritev, retry_on_intr};

use crate::short_transfer::{end_of_file, nothing_written};

pub(super) fn read_all(file: &File, mut offset: u64, mut bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
    // Drops empty buffers at the front, so that no call is asked for zero bytes.
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

pub(super) fn write_all(file: &File, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
    let n = write_some(file, offset, bufs)?;
    if n == bufs.iter().map(|buf| buf.len()).sum() {
        return Ok(());
    }
    // Rare, so only now a copy of the buffer list.
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

fn write_some(file: &File, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(retry_on_intr(|| pwritev(file, bufs, offset))?)
}
