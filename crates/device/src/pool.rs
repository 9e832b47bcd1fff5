//! A bounded pool of idle [`AlignedBuf`]s, so that requests do not allocate.
//!
//! The pool bounds only idle buffers. It does not limit the number of buffers in use.

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::aligned::{AlignedBuf, HUGE};

/// Smallest buffer, bytes.
const MIN_CLASS: usize = 4 << 10;
/// Length up to which buffers have a power of two of bytes. Longer buffers have [`MAX_CLASS`]
/// bytes.
const MAX_SMALL: usize = 256 << 10;
/// Largest buffer that the pool keeps: one huge page.
const MAX_CLASS: usize = HUGE;
/// Number of size classes: powers of two from `MIN_CLASS` to `MAX_SMALL`, and `MAX_CLASS`.
const CLASSES: usize = (MAX_SMALL / MIN_CLASS).ilog2() as usize + 2;
/// Number of shards. A thread always uses the same shard, so the lock of a shard is rarely
/// contended.
const SHARDS: usize = 32;
/// Limit of the process's pool, bytes.
const GLOBAL_BYTES: usize = 128 << 20;

/// A pool that keeps at most a fixed number of bytes in idle buffers, in size classes: powers of
/// two from 4 to 256 KiB, and 2 MiB.
///
/// A pool lives as long as the program (`static POOL: BufferPool = BufferPool::new(...)`), so a
/// buffer refers to it without a counted reference.
pub struct BufferPool {
    shards: [Shard; SHARDS],
    shard_bytes: usize,
}

/// Idle buffers of the threads that use this shard, on cache lines of their own.
#[repr(align(128))]
struct Shard(Mutex<Idle>);

struct Idle {
    classes: [Vec<AlignedBuf>; CLASSES],
    bytes: usize,
}

impl BufferPool {
    /// Makes a pool that keeps about `max_bytes` in idle buffers at most, spread evenly over its
    /// shards.
    pub const fn new(max_bytes: usize) -> Self {
        let shards = [const { Shard(Mutex::new(Idle { classes: [const { Vec::new() }; CLASSES], bytes: 0 })) };
            SHARDS];
        Self { shards, shard_bytes: max_bytes / SHARDS }
    }

    /// Returns the pool of this process, which keeps at most 128 MiB.
    pub fn global() -> &'static Self {
        static GLOBAL: BufferPool = BufferPool::new(GLOBAL_BYTES);
        &GLOBAL
    }

    /// Returns a buffer of `len` bytes with *unspecified contents*: it may hold bytes of its last
    /// use, so the caller fills all of it before it writes it to a device. The pool does not keep
    /// buffers over 2 MiB.
    pub fn take(&'static self, len: usize) -> PooledBuf {
        PooledBuf { buf: self.take_aligned(len), len, pool: self }
    }

    /// Like [`take`](Self::take), for a caller that shares the buffer and [recycles](Self::recycle)
    /// it afterwards. The buffer may be longer than `len`.
    pub fn take_aligned(&self, len: usize) -> AlignedBuf {
        let Some((class, size)) = class_of(len) else {
            return AlignedBuf::zeroed(len.next_multiple_of(512));
        };
        let idle = {
            let mut idle = self.shard().lock();
            let buf = idle.classes[class].pop();
            idle.bytes -= buf.as_deref().map_or(0, <[u8]>::len);
            buf
        };
        idle.unwrap_or_else(|| AlignedBuf::zeroed(size))
    }

    /// Returns a buffer of `len` zero bytes.
    pub fn take_zeroed(&'static self, len: usize) -> PooledBuf {
        let mut buf = self.take(len);
        buf.fill(0);
        buf
    }

    /// Returns the number of bytes in idle buffers.
    pub fn idle_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().bytes).sum()
    }

    /// Keeps a buffer of [`take_aligned`](Self::take_aligned) for the next use, or frees it if the
    /// pool is full.
    pub fn recycle(&self, buf: AlignedBuf) {
        let Some((class, size)) = class_of(buf.len()).filter(|&(_, size)| size == buf.len()) else { return };
        let mut idle = self.shard().lock();
        if idle.bytes + size <= self.shard_bytes {
            idle.bytes += size;
            idle.classes[class].push(buf);
        }
    }

    fn shard(&self) -> &Mutex<Idle> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            // Relaxed: the counter only spreads threads over the shards.
            static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        // A buffer may be dropped after its thread's locals are destroyed; the first shard serves
        // then.
        &self.shards[MINE.try_with(Cell::get).unwrap_or(0)].0
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool").field("shard_bytes", &self.shard_bytes).finish_non_exhaustive()
    }
}

/// Returns the class of buffers for `len` bytes, and their size in bytes. `None` if the pool has no
/// such class.
fn class_of(len: usize) -> Option<(usize, usize)> {
    if len <= MAX_SMALL {
        let size = len.max(MIN_CLASS).next_power_of_two();
        return Some(((size / MIN_CLASS).ilog2() as usize, size));
    }
    (len <= MAX_CLASS).then_some((CLASSES - 1, MAX_CLASS))
}

/// A buffer from a [`BufferPool`], aligned to 4096 bytes. Dropping it returns it to the pool.
pub struct PooledBuf {
    buf: AlignedBuf,
    len: usize,
    pool: &'static BufferPool,
}

impl Deref for PooledBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf[..self.len]
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buf[..self.len]
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        // An empty buffer owns no memory.
        self.pool.recycle(std::mem::replace(&mut self.buf, AlignedBuf::zeroed(0)));
    }
}

impl fmt::Debug for PooledBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_used_again_by_its_thread() {
        static POOL: BufferPool = BufferPool::new(64 << 20);
        let first = POOL.take(5000);
        assert_eq!(first.len(), 5000);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(POOL.idle_bytes(), 8192);
        let again = POOL.take_zeroed(8192);
        assert_eq!(again.as_ptr(), address);
        assert_eq!(POOL.idle_bytes(), 0);
        assert!(again.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn an_aligned_buffer_can_be_recycled() {
        static POOL: BufferPool = BufferPool::new(64 << 20);
        let buf = POOL.take_aligned(5000);
        assert_eq!(buf.len(), 8192);
        let address = buf.as_ptr();
        POOL.recycle(buf);
        assert_eq!(POOL.take(6000).as_ptr(), address);
    }

    #[test]
    fn idle_bytes_are_bounded() {
        static POOL: BufferPool = BufferPool::new(64 << 20);
        let buffers: Vec<_> = (0..4).map(|_| POOL.take(1 << 20)).collect();
        drop(buffers);
        assert_eq!(POOL.idle_bytes(), 2 << 20);
        let large = POOL.take((2 << 20) + 1);
        assert_eq!(large.len(), (2 << 20) + 1);
        drop(large);
        assert_eq!(POOL.idle_bytes(), 2 << 20);
    }

    #[test]
    fn every_length_has_a_class() {
        static POOL: BufferPool = BufferPool::new(0);
        for len in [0, 1, 4095, 4096, 4097, 12288, 65537, (256 << 10) + 1, 1 << 20, 2 << 20] {
            assert_eq!(POOL.take(len).len(), len);
        }
    }
}
