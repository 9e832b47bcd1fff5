//! Buffers whose contents no device stores as zeros.

use anyhow::Result;
use parext4::device::AlignedBuf;
use parext4_cli::interrupt;

/// Bytes of one write when a file is filled.
const CHUNK: u64 = 1 << 20;

/// Returns a buffer of at least `len` bytes with contents other than zeros.
pub fn buffer(len: u64) -> Result<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed(usize::try_from(len.next_multiple_of(512))?);
    for (nth, byte) in buf.iter_mut().enumerate() {
        *byte = (nth as u8).wrapping_mul(31) | 1;
    }
    Ok(buf)
}

/// Calls `write` for consecutive pieces of `[0, len)`.
///
/// # Errors
/// The first error of `write`, or a signal to end.
pub fn fill(len: u64, mut write: impl FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
    let chunk = buffer(CHUNK)?;
    for offset in (0..len).step_by(chunk.len()) {
        interrupt::check()?;
        // The length is at most that of a chunk.
        write(&chunk[..(len - offset).min(CHUNK) as usize], offset)?;
    }
    Ok(())
}
