//! Memory that several threads use at the same time, and copying out of it and into it.
//!
//! Of a copy each byte is read or written once, and nothing is promised of the order: as relaxed atomics do it, word by word.
//! For more than a few lines of a processor's cache its string instruction is faster (a page: 0.54 against 0.77 us where
//! that was measured), and it may be used so: to the compiler, assembly is what relaxed atomics could have done.

#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use memmap2::{Advice, MmapMut, MmapRaw, UncheckedAdvice};

const WORD: usize = size_of::<u64>();
/// Bytes from which the string instruction is worth its start.
#[cfg(target_arch = "x86_64")]
const LONG: usize = 256;
/// Lines of its cache after which it foresees the next ones by itself.
#[cfg(target_arch = "x86_64")]
const LINES: usize = 8;

/// Zeroed words, which take memory when they are first used. In huge pages, where the system gives some: who comes by here
/// and there otherwise waits as long for addresses to be translated as for the data.
#[derive(Debug)]
pub struct SharedMemory(MmapRaw);

impl SharedMemory {
    /// So many words.
    ///
    /// # Errors
    /// The system has no memory for them.
    pub fn zeroed(words: usize) -> io::Result<Self> {
        let bytes = words.checked_mul(WORD).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapMut::map_anon(bytes)?;
        // Without them, it works all the same.
        let _ = map.advise(Advice::HugePage);
        Ok(Self(map.into()))
    }

    /// The words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is of so many bytes, begins at a page, was zeroed, lasts as long as `self`, and is used in no
        // other way.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() / WORD) }
    }

    /// Gives the memory of these words back to the system, as far as they make whole pages of it. Those words are zero
    /// afterwards, or what they were if the system refuses.
    ///
    /// # Panics
    /// If `words` goes past the end.
    pub fn give_back(&self, words: Range<usize>) {
        let (start, end) = (words.start * WORD, words.end * WORD);
        assert!(start <= end && end <= self.0.len(), "words {words:?} of {}", self.0.len() / WORD);
        let page = rustix::param::page_size();
        let (start, end) = (start.next_multiple_of(page), end / page * page);
        if start < end {
            // SAFETY: the pages are private and without a file, so the system makes them zero at some moment, as another
            // thread could with `words`.
            let _ = unsafe { self.0.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
        }
    }
}

/// Copies the bytes of `words` to `out`, which other threads may be changing.
///
/// # Panics
/// If the two are not of one length.
pub fn load_words(words: &[AtomicU64], out: &mut [u8]) {
    assert_eq!(words.len() * WORD, out.len());
    #[cfg(target_arch = "x86_64")]
    if out.len() >= LONG {
        // SAFETY: both are of `out.len()` bytes; `out` is ours alone, and `words` may be read at any time.
        return unsafe { move_bytes(words.as_ptr().cast(), out.as_mut_ptr(), out.len()) };
    }
    for (word, out) in words.iter().zip(out.as_chunks_mut::<WORD>().0) {
        *out = word.load(Relaxed).to_ne_bytes();
    }
}

/// Copies `data` to the bytes of `words`, which other threads may be using.
///
/// # Panics
/// If the two are not of one length.
pub fn store_words(words: &[AtomicU64], data: &[u8]) {
    assert_eq!(words.len() * WORD, data.len());
    #[cfg(target_arch = "x86_64")]
    if data.len() >= LONG {
        let to = words.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: both are of `data.len()` bytes; `words` are atomics, which may be changed through shared references.
        return unsafe { move_bytes(data.as_ptr(), to, data.len()) };
    }
    for (word, bytes) in words.iter().zip(data.as_chunks::<WORD>().0) {
        word.store(u64::from_ne_bytes(*bytes), Relaxed);
    }
}

/// Has the processor bring the first lines of `words` near, for a copy that follows soon. A hint.
pub fn prefetch(words: &[AtomicU64]) {
    #[cfg(target_arch = "x86_64")]
    for line in words.chunks(64 / WORD).take(LINES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch touches nothing, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = words;
}

/// Copies `len` bytes.
///
/// # Safety
/// `from` and `to` are valid for that, and do not overlap. Other threads may use the bytes meanwhile if they are those
/// of atomics.
#[cfg(target_arch = "x86_64")]
unsafe fn move_bytes(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the caller says. The direction flag is clear wherever assembly begins.
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
    fn words_are_copied_both_ways_at_any_length() {
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
