//! Direct I/O: finds out which alignment a file demands, and copies the buffers of requests that
//! lack it.
//!
//! [`set_up`] switches a file to direct I/O only if it reaches all of the volume.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;

use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, ioctl_blksszget, statx};
use rustix::io::Errno;

use super::open::{Opened, refuse};
use super::transfer;
use crate::aligned::AlignedBuf;
use crate::alignment::Alignment;
use crate::iovec::{Gather, Scatter};
use crate::options::Direct;
use crate::pool::BufferPool;

/// Largest aligned buffer through which unaligned requests are copied, bytes.
const BOUNCE: usize = 1 << 20;

/// Switches the file to direct I/O if `mode` allows it and the file supports it. Returns the
/// alignment that it demands, or `None` without direct I/O.
///
/// # Errors
/// `Unsupported` if `mode` demands direct I/O and the file has none.
pub(super) fn set_up(opened: &Opened, path: &Path, mode: Direct) -> io::Result<Option<Alignment>> {
    if mode == Direct::Never {
        return Ok(None);
    }
    let alignment = switch_on(opened)?;
    if alignment.is_none() && mode == Direct::Always {
        let why = "direct I/O is not possible here (file system, or volume not aligned to its sectors)";
        return Err(refuse(path, io::ErrorKind::Unsupported, why));
    }
    Ok(alignment)
}

/// Switches the file to direct I/O, and returns the alignment. Returns `None`, with direct I/O off,
/// if no alignment reaches every byte of the volume.
fn switch_on(opened: &Opened) -> io::Result<Option<Alignment>> {
    let flags = fcntl_getfl(&opened.file)?;
    match fcntl_setfl(&opened.file, flags | OFlags::DIRECT) {
        Ok(()) => {}
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    for alignment in candidates(opened) {
        // All of the volume must be accessible, not only its whole sectors of this size.
        let reachable = (opened.size / 512 * 512).is_multiple_of(alignment.offset.into());
        let aligned = opened.base.is_multiple_of(alignment.offset.into());
        if aligned && reachable && probe(&opened.file, opened.base, alignment)? {
            return Ok(Some(alignment));
        }
    }
    fcntl_setfl(&opened.file, flags)?;
    Ok(None)
}

/// Returns the alignment that the kernel reports, or else guesses that must be probed.
fn candidates(opened: &Opened) -> Vec<Alignment> {
    // statx(2): STATX_DIOALIGN since Linux 6.1. It is zero if the file has no direct I/O.
    if let Ok(stat) = statx(&opened.file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        return Alignment::new(stat.stx_dio_mem_align, stat.stx_dio_offset_align).into_iter().collect();
    }
    if opened.is_block_device
        && let Ok(sector) = ioctl_blksszget(&opened.file)
    {
        return Alignment::new(sector, sector).into_iter().collect();
    }
    [512, 4096].into_iter().filter_map(|sector| Alignment::new(sector, sector)).collect()
}

/// Returns whether a direct read works. Some file systems accept the flag and refuse the I/O.
fn probe(file: &File, offset: u64, alignment: Alignment) -> io::Result<bool> {
    let mut buf = AlignedBuf::zeroed(alignment.offset as usize);
    match rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut buf[..], offset)) {
        Ok(_) => Ok(true),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads `len` bytes at a file offset through an aligned buffer.
pub(super) fn bounced_read(
    file: &File,
    mut offset: u64,
    mut len: u64,
    bufs: &mut [IoSliceMut<'_>],
) -> io::Result<()> {
    let mut bounce = BufferPool::global().take(piece_len(len));
    let mut out = Scatter::new(bufs);
    while len > 0 {
        let piece = &mut bounce[..piece_len(len)];
        transfer::read_all(file, offset, &mut [IoSliceMut::new(piece)])?;
        out.copy_from(piece);
        offset += piece.len() as u64;
        len -= piece.len() as u64;
    }
    Ok(())
}

/// Writes `len` bytes at a file offset through an aligned buffer.
pub(super) fn bounced_write(
    file: &File,
    mut offset: u64,
    mut len: u64,
    bufs: &[IoSlice<'_>],
) -> io::Result<()> {
    let mut bounce = BufferPool::global().take(piece_len(len));
    let mut source = Gather::new(bufs);
    while len > 0 {
        let piece = &mut bounce[..piece_len(len)];
        source.copy_to(piece);
        transfer::write_all(file, offset, &[IoSlice::new(piece)])?;
        offset += piece.len() as u64;
        len -= piece.len() as u64;
    }
    Ok(())
}

/// Returns the length of the next copy, in bytes.
fn piece_len(left: u64) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(BOUNCE)
}
