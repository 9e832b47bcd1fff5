//! Memory for the copies of writes.
//!
//! The client copies every write that the server may lose, and frees the copies at each flush. The
//! allocator would return that memory to the system and fault it in again, which costs more than
//! the copy. So this module keeps freed buffers for the next copies.

use std::collections::BTreeMap;
use std::ops::Deref;

use parking_lot::Mutex;

/// Bytes that the process keeps in idle buffers.
const IDLE: usize = 32 << 20;
/// Smallest buffer that is kept, bytes. The client copies no smaller writes, except on exports with
/// smaller sectors.
const SMALLEST: usize = 4 << 10;

static SPARE: Mutex<Spare> = Mutex::new(Spare { buffers: BTreeMap::new(), bytes: 0 });

/// Idle buffers.
struct Spare {
    /// Idle buffers by capacity in bytes.
    buffers: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Bytes of all idle buffers.
    bytes: usize,
}

/// A copy of bytes. Dropping it keeps its memory for another copy.
#[derive(Debug)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    /// Copies `len` bytes in parts.
    pub(crate) fn copy<'a>(len: usize, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut bytes = take(len).unwrap_or_else(|| Vec::with_capacity(len));
        parts.into_iter().for_each(|part| bytes.extend_from_slice(part));
        Self(bytes)
    }

    /// Returns the size of the copy's memory in bytes, at most twice the length of the copy.
    pub(crate) fn memory(&self) -> usize {
        self.0.capacity()
    }
}

/// Removes the smallest idle buffer that has room, unless it is more than twice too large.
fn take(len: usize) -> Option<Vec<u8>> {
    if len < SMALLEST {
        return None;
    }
    let mut spare = SPARE.lock();
    let (&capacity, buffers) =
        spare.buffers.range_mut(len..=len * 2).find(|(_, buffers)| !buffers.is_empty())?;
    let buffer = buffers.pop()?;
    if buffers.is_empty() {
        spare.buffers.remove(&capacity);
    }
    spare.bytes -= capacity;
    Some(buffer)
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0);
        let capacity = bytes.capacity();
        if capacity < SMALLEST {
            return;
        }
        let mut spare = SPARE.lock();
        if spare.bytes + capacity <= IDLE {
            bytes.clear();
            spare.bytes += capacity;
            spare.buffers.entry(capacity).or_default().push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        // No other test of this program copies 2 MiB.
        let len = 3 << 20;
        let copy = Buffer::copy(len, [&[1; 1 << 20][..], &[2; 2 << 20]]);
        assert_eq!((copy.len(), copy[0], copy[len - 1]), (len, 1, 2));
        let address = copy.as_ptr();
        drop(copy);
        let again = Buffer::copy(2 << 20, [&[3; 2 << 20][..]]);
        assert_eq!((again.as_ptr(), again.len(), again[0]), (address, 2 << 20, 3));
        assert!(Buffer::copy(1000, [&[4; 1000][..]]).iter().all(|&byte| byte == 4));
    }
}
