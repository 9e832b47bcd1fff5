//! Memory that is mapped bit by bit, and stays where it is.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use parext4_device::shared::SharedMemory;

/// Items of `N` zeroed words each, in chunks that are taken when first needed.
///
/// The words are those of [`std`] also under the model checker, which cannot be bothered with contents; what are
/// states among them is looked at through [`crate::sync::Word`].
#[derive(Debug)]
pub(super) struct Memory<const N: usize> {
    chunks: Box<[OnceLock<SharedMemory>]>,
    items: u32,
    /// Of the items of a chunk, the binary logarithm: a division would cost as much as the rest of a look-up.
    chunk_log: u32,
}

impl<const N: usize> Memory<N> {
    /// Room for so many items, in chunks of `chunk`, a power of two.
    pub fn new(items: u32, chunk: u32) -> Self {
        debug_assert!(chunk.is_power_of_two());
        let chunks = (0..items.div_ceil(chunk)).map(|_| OnceLock::new()).collect();
        Self { chunks, items, chunk_log: chunk.ilog2() }
    }

    pub fn items(&self) -> u32 {
        self.items
    }

    /// Sees to it that the item is there. `false` if the system has no memory for it. Not to be called by two
    /// threads at once.
    pub fn provide(&self, item: u32) -> bool {
        if self.get(item).is_some() {
            return true;
        }
        let nth = item >> self.chunk_log;
        let Some(cell) = self.chunks.get(nth as usize) else { return false };
        // The last one may be shorter. Zeroed pages cost nothing until they are used.
        let items = (1 << self.chunk_log).min(self.items - (nth << self.chunk_log));
        let Ok(memory) = SharedMemory::zeroed(items as usize * N) else { return false };
        cell.set(memory).is_ok()
    }

    /// Gives the memory of provided items back to the system until they are used again. Nobody uses them; their contents
    /// may be lost.
    pub fn give_back(&self, items: Range<u32>) {
        let mut first = items.start;
        while first < items.end {
            let chunk_end = ((first >> self.chunk_log) + 1) << self.chunk_log;
            let end = chunk_end.min(items.end);
            if let Some(memory) = self.chunks.get((first >> self.chunk_log) as usize).and_then(OnceLock::get)
            {
                let within = |item: u32| (item - (chunk_end - (1 << self.chunk_log))) as usize * N;
                memory.give_back(within(first)..within(end));
            }
            first = end;
        }
    }

    /// The words of an item, if it was provided.
    #[inline]
    pub fn get(&self, item: u32) -> Option<&[AtomicU64; N]> {
        let words = self.chunks.get((item >> self.chunk_log) as usize)?.get()?.words();
        let at = (item & ((1 << self.chunk_log) - 1)) as usize * N;
        words.get(at..at + N)?.try_into().ok()
    }
}
