//! Memory that is mapped in chunks when first needed and whose addresses do not change.
//!
//! The module is responsible for mapping and unmapping. The owner of the arena records which items
//! are in use. Invariant: an item that was mapped once stays readable, so threads without a lock
//! may read an item that is no longer in use.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

// once_cell's memory orders are visible to ThreadSanitizer, unlike those inside
// `std::sync::OnceLock`.
use once_cell::sync::OnceCell;
use parext4_device::shared::SharedMemory;

/// Items of the same number of zeroed words, in chunks.
///
/// The words are [`std`] atomics also under the model checker, so that copies of contents do not
/// count as steps of a model. Words that hold states are accessed through [`crate::sync::Word`],
/// which the model checker schedules.
#[derive(Debug)]
pub(super) struct Arena {
    chunks: Box<[OnceCell<SharedMemory>]>,
    items: u32,
    /// Number of words of an item.
    words: usize,
    /// Binary logarithm of the number of items of a chunk. A shift replaces a division, which would
    /// double the cost of a look-up.
    chunk_log: u32,
}

impl Arena {
    /// Returns an arena of `items` items of `words` words, in chunks of `chunk` items, a power of
    /// two. Maps nothing yet.
    pub fn new(items: u32, words: usize, chunk: u32) -> Self {
        debug_assert!(chunk.is_power_of_two());
        let chunks = (0..items.div_ceil(chunk)).map(|_| OnceCell::new()).collect();
        Self { chunks, items, words, chunk_log: chunk.ilog2() }
    }

    pub fn items(&self) -> u32 {
        self.items
    }

    /// Maps the chunk of an item unless it is mapped. Returns false if the system has no memory for
    /// the chunk. The caller serializes calls.
    pub fn ensure_mapped(&self, item: u32) -> bool {
        if self.get(item).is_some() {
            return true;
        }
        let nth = item >> self.chunk_log;
        let Some(cell) = self.chunks.get(nth as usize) else { return false };
        // The last chunk may be shorter. The system allocates zeroed memory when it is first
        // written.
        let items = (1 << self.chunk_log).min(self.items - (nth << self.chunk_log));
        let Ok(memory) = SharedMemory::zeroed(items as usize * self.words) else { return false };
        cell.set(memory).is_ok()
    }

    /// Returns the memory of mapped items to the system until they are used again. The caller makes
    /// sure that no thread uses them. Their contents may be lost.
    pub fn release(&self, items: Range<u32>) {
        let mut first = items.start;
        while first < items.end {
            let chunk_end = ((first >> self.chunk_log) + 1) << self.chunk_log;
            let end = chunk_end.min(items.end);
            if let Some(memory) = self.chunks.get((first >> self.chunk_log) as usize).and_then(OnceCell::get)
            {
                let within = |item: u32| (item - (chunk_end - (1 << self.chunk_log))) as usize * self.words;
                memory.release(within(first)..within(end));
            }
            first = end;
        }
    }

    /// Returns the words of an item, or `None` if its chunk is not mapped.
    #[inline]
    pub fn get(&self, item: u32) -> Option<&[AtomicU64]> {
        let words = self.chunks.get((item >> self.chunk_log) as usize)?.get()?.words();
        let at = (item & ((1 << self.chunk_log) - 1)) as usize * self.words;
        words.get(at..at + self.words)
    }
}
