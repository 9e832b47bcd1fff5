//! Buffers that direct I/O uses without a copy: their addresses are multiples of 4096 bytes.
//!
//! This module allocates memory and keeps none; [`BufferPool`](crate::BufferPool) keeps idle
//! buffers.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Alignment of addresses in bytes, which satisfies direct I/O of all Linux file systems and block
/// devices.
const PAGE: usize = 4096;
/// Smallest sector in bytes. Lengths of buffers are multiples of it.
const SECTOR: usize = 512;
/// Length in bytes from which buffers are mapped with huge pages, if the system provides them. A
/// device transfers contiguous memory as one segment, which was measured to be twice as fast as
/// page by page.
pub(crate) const HUGE: usize = 2 << 20;

#[derive(Clone, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// A buffer whose address is a multiple of 4096 and whose length is a multiple of 512 bytes.
pub struct AlignedBuf {
    memory: Memory,
    len: usize,
}

enum Memory {
    Heap(Vec<Page>),
    Mapped(MmapMut),
}

impl AlignedBuf {
    /// Allocates a buffer of `len` zero bytes.
    ///
    /// # Panics
    /// If `len` is not a multiple of 512.
    pub fn zeroed(len: usize) -> Self {
        assert!(len.is_multiple_of(SECTOR), "AlignedBuf: length {len} is not a multiple of {SECTOR}");
        Self { memory: Memory::zeroed(len), len }
    }

    /// Maps a buffer of `len` zero bytes, whatever the length. The system gets the memory back as
    /// soon as the buffer is dropped.
    ///
    /// # Panics
    /// If `len` is not a multiple of 512.
    pub fn mapped(len: usize) -> Self {
        assert!(len.is_multiple_of(SECTOR), "AlignedBuf: length {len} is not a multiple of {SECTOR}");
        Self { memory: Memory::mapped(len), len }
    }

    /// Allocates a copy of `bytes`.
    ///
    /// # Panics
    /// If the length is not a multiple of 512.
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

impl Memory {
    /// Allocates at least `len` zero bytes. Pages of a mapping take memory when they are first
    /// used.
    fn zeroed(len: usize) -> Self {
        if len < HUGE {
            let pages = Page::new_vec_zeroed(len.div_ceil(PAGE));
            return Self::Heap(pages.unwrap_or_else(|_| handle_alloc_error(Layout::new::<Page>())));
        }
        Self::mapped(len)
    }

    /// Maps `len` zero bytes.
    fn mapped(len: usize) -> Self {
        let map = MmapMut::map_anon(len).unwrap_or_else(|_| handle_alloc_error(Layout::new::<Page>()));
        if len >= HUGE {
            // Huge pages only save time, so a refusal does not matter.
            let _ = map.advise(Advice::HugePage);
        }
        Self::Mapped(map)
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Heap(pages) => &pages.as_slice().as_bytes()[..self.len],
            Memory::Mapped(map) => &map[..self.len],
        }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Heap(pages) => &mut pages.as_mut_slice().as_mut_bytes()[..self.len],
            Memory::Mapped(map) => &mut map[..self.len],
        }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

const ZERO_PAGES: usize = 16;
static ZEROS: [Page; ZERO_PAGES] = [const { Page([0; PAGE]) }; ZERO_PAGES];

/// Returns 64 KiB of aligned zero bytes, for padding writes without an allocation.
pub fn zeros() -> &'static [u8] {
    ZEROS.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_of_the_length_asked() {
        for len in [0, 512, 1024, 4096, 4608, 1 << 20, 2 << 20, (2 << 20) + 512] {
            for buf in [AlignedBuf::zeroed(len), AlignedBuf::mapped(len)] {
                assert_eq!(buf.len(), len);
                assert_eq!(buf.as_ptr().addr() % PAGE, 0);
                assert!(buf.iter().all(|&byte| byte == 0));
            }
        }
        assert_eq!(zeros().len(), 64 << 10);
        assert_eq!(zeros().as_ptr().addr() % PAGE, 0);
    }

    #[test]
    fn a_clone_is_its_own_memory() {
        let first = AlignedBuf::from_slice(&[3; 1536]);
        let mut second = first.clone();
        second[1535] = 4;
        assert_eq!((first[1535], second[1535], second[0]), (3, 4, 3));
    }

    #[test]
    #[should_panic(expected = "not a multiple of 512")]
    fn an_odd_length_is_refused() {
        AlignedBuf::zeroed(1000);
    }
}
