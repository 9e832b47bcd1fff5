//! A bounded pool of aligned buffers.

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::aligned::{AlignedBuf, HUGE};

const MIN_CLASS: usize = 4 << 10;
/// Buffers up to here are of the next power of two; larger ones are a huge page.
const MAX_SMALL: usize = 256 << 10;
const MAX_CLASS: usize = HUGE;
/// Powers of two from `MIN_CLASS` to `MAX_SMALL`, and `MAX_CLASS`.
const CLASSES: usize = (MAX_SMALL / MIN_CLASS).ilog2() as usize + 2;
/// A thread always uses one shard, so its lock is rarely contended.
const SHARDS: usize = 32;
const GLOBAL_BYTES: usize = 128 << 20;

/// Keeps up to a fixed number of bytes in idle buffers, in size classes of powers of two from 4 to 256 KiB, and of 2 MiB.
///
/// A pool lives as long as the program (`static POOL: BufferPool = BufferPool::new(...)`), so that a buffer
/// holds no counted reference.
pub struct BufferPool {
    shards: [Shard; SHARDS],
    shard_bytes: usize,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Shard(Mutex<Idle>);

struct Idle {
    classes: [Vec<AlignedBuf>; CLASSES],
    bytes: usize,
}

impl BufferPool {
    /// A pool that keeps at most about `max_bytes` idle.
    pub const fn new(max_bytes: usize) -> Self {
        let shards = [const { Shard(Mutex::new(Idle { classes: [const { Vec::new() }; CLASSES], bytes: 0 })) };
            SHARDS];
        Self { shards, shard_bytes: max_bytes / SHARDS }
    }

    /// The pool that this process shares.
    pub fn global() -> &'static Self {
        static GLOBAL: BufferPool = BufferPool::new(GLOBAL_BYTES);
        &GLOBAL
    }

    /// A buffer of `len` bytes with *unspecified contents*: bytes of its last use may be in it, so write all
    /// of it before any of it goes to a device. Over 2 MiB it is an allocation of its own.
    pub fn take(&'static self, len: usize) -> PooledBuf {
        PooledBuf { buf: self.take_aligned(len), len, pool: self }
    }

    /// Like [`take`](Self::take), for a caller that shares the buffer and [gives it back](Self::give_back) afterwards. It
    /// may be longer than `len`.
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

    /// Like [`take`](Self::take), filled with zeros.
    pub fn take_zeroed(&'static self, len: usize) -> PooledBuf {
        let mut buf = self.take(len);
        buf.fill(0);
        buf
    }

    /// Bytes held in idle buffers.
    pub fn idle_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().bytes).sum()
    }

    /// Keeps a buffer of [`take_aligned`](Self::take_aligned) for the next use, if the pool has room for it.
    pub fn give_back(&self, buf: AlignedBuf) {
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
            // Relaxed: only spreads threads over the shards.
            static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        // A buffer may be dropped while its thread's locals are being destroyed.
        &self.shards[MINE.try_with(Cell::get).unwrap_or(0)].0
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool").field("shard_bytes", &self.shard_bytes).finish_non_exhaustive()
    }
}

/// The class of buffers for `len` bytes, and their size; none for longer ones.
fn class_of(len: usize) -> Option<(usize, usize)> {
    if len <= MAX_SMALL {
        let size = len.max(MIN_CLASS).next_power_of_two();
        return Some(((size / MIN_CLASS).ilog2() as usize, size));
    }
    (len <= MAX_CLASS).then_some((CLASSES - 1, MAX_CLASS))
}

/// A buffer on loan from a [`BufferPool`], 4096-byte aligned; goes back when dropped.
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
        self.pool.give_back(std::mem::replace(&mut self.buf, AlignedBuf::zeroed(0)));
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
    fn a_buffer_comes_back_to_its_thread() {
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
    fn an_aligned_buffer_can_be_given_back() {
        static POOL: BufferPool = BufferPool::new(64 << 20);
        let buf = POOL.take_aligned(5000);
        assert_eq!(buf.len(), 8192);
        let address = buf.as_ptr();
        POOL.give_back(buf);
        assert_eq!(POOL.take(6000).as_ptr(), address);
    }

    #[test]
    fn what_the_pool_keeps_is_bounded() {
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
