//! Memory that several threads read and write at the same time, and copies out of it and into it.
//!
//! A copy reads or writes each byte once, in no order that a caller may rely on: its words behave
//! like relaxed atomics. Callers that need a consistent copy exclude writers themselves. On x86-64
//! copies of 256 bytes or more use the processor's string instruction, which is faster (0.54
//! instead of 0.77 us for a page, as measured). That is sound because assembly counts as anything
//! that relaxed atomics could do.

#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use memmap2::{Advice, MmapMut, MmapRaw, UncheckedAdvice};

const WORD: usize = size_of::<u64>();
/// Length in bytes from which the string instruction is faster, despite its start-up time.
#[cfg(target_arch = "x86_64")]
const LONG: usize = 256;
/// Number of cache lines that [`prefetch`] requests. The processor's own prefetcher requests the
/// following lines.
#[cfg(target_arch = "x86_64")]
const LINES: usize = 8;

/// Zeroed words, which take memory when they are first used.
///
/// They are mapped with huge pages if the system provides them, because with small pages scattered
/// accesses wait as long for the translation of addresses as for the data.
#[derive(Debug)]
pub struct SharedMemory(MmapRaw);

impl SharedMemory {
    /// Maps a number of zero words.
    ///
    /// # Errors
    /// The system has no address space for them.
    pub fn zeroed(words: usize) -> io::Result<Self> {
        let bytes = words.checked_mul(WORD).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapMut::map_anon(bytes)?;
        // Huge pages only save time, so a refusal does not matter.
        let _ = map.advise(Advice::HugePage);
        Ok(Self(map.into()))
    }

    /// Returns the words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has that length, begins at a page, was zeroed, lives as long as
        // `self`, and is accessed only through these words.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() / WORD) }
    }

    /// Releases the whole pages among these words to the system. Their words are zero afterwards,
    /// or unchanged if the system refuses. Words in pages that are covered in part keep their
    /// values.
    ///
    /// # Panics
    /// If `words` goes past the end.
    pub fn release(&self, words: Range<usize>) {
        let (start, end) = (words.start * WORD, words.end * WORD);
        assert!(start <= end && end <= self.0.len(), "words {words:?} of {}", self.0.len() / WORD);
        let page = rustix::param::page_size();
        let (start, end) = (start.next_multiple_of(page), end / page * page);
        if start < end {
            // SAFETY: the pages are private and anonymous, so the system sets their words to zero,
            // which another thread could also do through `words`.
            let _ = unsafe { self.0.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
        }
    }
}

/// Copies the bytes of `words`, which other threads may change at the same time, to `out`.
///
/// # Panics
/// If the lengths in bytes differ.
pub fn load_words(words: &[AtomicU64], out: &mut [u8]) {
    assert_eq!(words.len() * WORD, out.len());
    #[cfg(target_arch = "x86_64")]
    if out.len() >= LONG {
        // SAFETY: both have `out.len()` bytes; no other thread accesses `out`, and `words` may be
        // read at any time.
        return unsafe { move_bytes(words.as_ptr().cast(), out.as_mut_ptr(), out.len()) };
    }
    for (word, out) in words.iter().zip(out.as_chunks_mut::<WORD>().0) {
        *out = word.load(Relaxed).to_ne_bytes();
    }
}

/// Copies `data` to the bytes of `words`, which other threads may access at the same time.
///
/// # Panics
/// If the lengths in bytes differ.
pub fn store_words(words: &[AtomicU64], data: &[u8]) {
    assert_eq!(words.len() * WORD, data.len());
    #[cfg(target_arch = "x86_64")]
    if data.len() >= LONG {
        let to = words.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: both have `data.len()` bytes; `words` are atomics, which may be changed through
        // shared references.
        return unsafe { move_bytes(data.as_ptr(), to, data.len()) };
    }
    for (word, bytes) in words.iter().zip(data.as_chunks::<WORD>().0) {
        word.store(u64::from_ne_bytes(*bytes), Relaxed);
    }
}

/// Prefetches the first cache lines of `words`, for a copy that follows soon. It changes no values.
pub fn prefetch(words: &[AtomicU64]) {
    #[cfg(target_arch = "x86_64")]
    for line in words.chunks(64 / WORD).take(LINES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses no memory that the program can observe, whatever its address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = words;
}

/// Copies `len` bytes from `from` to `to`.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes, and they do not overlap. Other
/// threads may access bytes of atomics at the same time.
#[cfg(target_arch = "x86_64")]
unsafe fn move_bytes(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees the pointers. The direction flag is clear at the start of an
    // assembly block.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_in_and_out_of_any_length_keep_all_bytes() {
        for len in (0..40).chain([255, 256, 257, 512]) {
            let data: Vec<u8> = (0..len * WORD).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let words: Vec<AtomicU64> = (0..len).map(|_| AtomicU64::new(0)).collect();
            store_words(&words, &data);
            let mut out = vec![0xff; len * WORD];
            load_words(&words, &mut out);
            assert_eq!(out, data, "{len} words");
        }
    }
}
