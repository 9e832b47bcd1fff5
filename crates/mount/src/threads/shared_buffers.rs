//! Buffers of reads and writes that are passed to another thread.
//!
//! One thread allocates such a buffer and another one frees it. An allocator with an arena for each
//! thread keeps freed memory in the arena that it came from, so threads that take turns would make
//! it hold several times the [budget](super::MemoryBudget). Only small buffers come from the
//! allocator; the others are mapped, and either kept by this module or returned to the system.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parext4::device::AlignedBuf;
use parext4_sync::Mutex;

use super::memory_budget::Reservation;

/// Largest buffer that is allocated and freed each time, in bytes, because that costs less than a
/// lock.
const SMALL: usize = 32 << 10;
/// Sizes of larger buffers, in bytes. The last one is one segment of a device request, and a huge
/// page where the system provides them: direct reads of 256 KiB into smaller pages were a third
/// slower. No request is larger.
const SIZES: [usize; 4] = [64 << 10, 128 << 10, 192 << 10, 2 << 20];
/// Limit of the unused buffers of each size, in bytes.
const MAX_UNUSED_BYTES: usize = 32 << 20;
/// Limit of the number of unused buffers of each size.
const MAX_UNUSED: usize = 64;

/// Keeps buffers for reuse: a new buffer from the system takes as long as the read into it. Unlike
/// a [`BufferPool`](parext4::device::BufferPool), it lets one thread reuse the buffers of another.
#[derive(Debug, Default)]
pub(crate) struct SharedBuffers([Mutex<Vec<AlignedBuf>>; SIZES.len()]);

/// A buffer of a request that a worker executes. Dropping it releases the buffer, and the memory
/// that is reserved for it.
pub(crate) struct SharedBuf {
    buf: AlignedBuf,
    len: usize,
    buffers: Arc<SharedBuffers>,
    _reserved: Option<Reservation>,
}

impl SharedBuffers {
    /// Returns a buffer of at least `len` bytes, with any contents.
    pub fn acquire(&self, len: usize) -> AlignedBuf {
        if len <= SMALL {
            return AlignedBuf::zeroed(len.next_multiple_of(512));
        }
        match SIZES.iter().position(|&size| len <= size) {
            Some(nth) => self.0[nth].lock().pop().unwrap_or_else(|| AlignedBuf::mapped(SIZES[nth])),
            None => AlignedBuf::mapped(len.next_multiple_of(512)),
        }
    }

    /// Keeps a buffer for reuse, or frees it if it is small or enough buffers are kept.
    pub fn release(&self, buf: AlignedBuf) {
        let Some(nth) = SIZES.iter().position(|&size| buf.len() == size) else { return };
        let mut unused = self.0[nth].lock();
        if unused.len() < MAX_UNUSED.min(MAX_UNUSED_BYTES / SIZES[nth]) {
            unused.push(buf);
        }
    }
}

impl SharedBuf {
    /// Returns a buffer of `len` bytes with any contents. `reserve` reserves the memory of the
    /// buffer.
    pub fn new(
        buffers: &Arc<SharedBuffers>,
        len: usize,
        reserve: impl FnOnce(&AlignedBuf) -> Option<Reservation>,
    ) -> Self {
        let buf = buffers.acquire(len);
        let _reserved = reserve(&buf);
        Self { buf, len, buffers: Arc::clone(buffers), _reserved }
    }
}

impl Deref for SharedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf[..self.len]
    }
}

impl DerefMut for SharedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buf[..self.len]
    }
}

impl Drop for SharedBuf {
    fn drop(&mut self) {
        // An empty buffer owns no memory.
        self.buffers.release(mem::replace(&mut self.buf, AlignedBuf::zeroed(0)));
    }
}

impl fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::threads::MemoryBudget;

    fn unused(buffers: &SharedBuffers) -> [usize; SIZES.len()] {
        buffers.0.each_ref().map(|unused| unused.lock().len())
    }

    #[test]
    fn large_buffers_are_reused_up_to_the_limit() {
        let buffers = SharedBuffers::default();
        let mut large = buffers.acquire(1 << 20);
        assert_eq!(large.len(), 2 << 20);
        large[(2 << 20) - 1] = 1;
        buffers.release(large);
        assert_eq!(buffers.acquire(4096).len(), 4096);
        assert_eq!(buffers.acquire(256 << 10)[(2 << 20) - 1], 1);
        assert_eq!(buffers.acquire((2 << 20) + 1).len(), (2 << 20) + 512);
        for (size, limit) in SIZES.into_iter().zip([64, 64, 64, 16]) {
            let acquired: Vec<_> = (0..=limit).map(|_| buffers.acquire(size)).collect();
            acquired.into_iter().for_each(|buf| buffers.release(buf));
        }
        buffers.release(buffers.acquire(100));
        assert_eq!(unused(&buffers), [64, 64, 64, 16]);
    }

    #[test]
    fn a_dropped_buffer_is_reused_and_its_memory_is_free() {
        let (buffers, budget) = (Arc::new(SharedBuffers::default()), Arc::new(MemoryBudget::with_limit(1)));
        for _ in 0..2 {
            // A second reservation would wait for ever if the first were kept.
            let buf = SharedBuf::new(&buffers, 40_000, |buf| Some(budget.reserve(buf.len())));
            assert_eq!((buf.len(), unused(&buffers)), (40_000, [0; 4]));
            drop(buf);
            assert_eq!(unused(&buffers), [1, 0, 0, 0]);
        }
    }
}
