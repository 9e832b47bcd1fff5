//! Buffers of reads and writes that are handed to another thread.

use parext4::device::AlignedBuf;

use crate::sync::Mutex;

/// Buffers of at least this many bytes are kept for reuse. Smaller ones are cheap to allocate.
const LARGE: usize = 256 << 10;
/// Size of a large buffer, in bytes: one segment of a device request, and a huge page where the system provides them.
/// No request is larger.
const BYTES: usize = 2 << 20;
/// Number of unused buffers that are kept.
const MAX_UNUSED: usize = 16;

/// Keeps large buffers for reuse: a zeroed buffer from the system takes as long as the read into it. Unlike a
/// [`BufferPool`](parext4::device::BufferPool), it lets one thread reuse the buffers of another.
#[derive(Debug, Default)]
pub(crate) struct SharedBuffers(Mutex<Vec<AlignedBuf>>);

impl SharedBuffers {
    /// Returns a buffer of at least `len` bytes, with any contents.
    pub fn acquire(&self, len: usize) -> AlignedBuf {
        if len < LARGE {
            return AlignedBuf::zeroed(len.next_multiple_of(512));
        }
        let unused = self.0.lock().pop();
        unused
            .filter(|buf| buf.len() >= len)
            .unwrap_or_else(|| AlignedBuf::zeroed(BYTES.max(len.next_multiple_of(512))))
    }

    /// Keeps a buffer for reuse, or frees it if it is small or enough are kept.
    pub fn release(&self, buf: AlignedBuf) {
        let mut unused = self.0.lock();
        if buf.len() == BYTES && unused.len() < MAX_UNUSED {
            unused.push(buf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_are_reused_up_to_the_limit() {
        let buffers = SharedBuffers::default();
        let mut large = buffers.acquire(1 << 20);
        (large[0], large[BYTES - 1]) = (1, 1);
        buffers.release(large);
        assert_eq!(buffers.acquire(4096).len(), 4096);
        assert_eq!(buffers.acquire(LARGE)[BYTES - 1], 1);
        assert_eq!(buffers.acquire(BYTES + 1).len(), BYTES + 512);
        let acquired: Vec<_> = (0..2 * MAX_UNUSED).map(|_| buffers.acquire(LARGE)).collect();
        acquired.into_iter().for_each(|buf| buffers.release(buf));
        buffers.release(buffers.acquire(100));
        assert_eq!(buffers.0.lock().len(), MAX_UNUSED);
    }
}
