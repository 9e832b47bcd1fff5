//! The leaves in memory, by number. Readers find a leaf without a lock.
//!
//! Responsible for the slots. Not responsible for when a leaf is added or removed: the map's locks decide that. A slot costs
//! 8 bytes, and dropping it checks what each thread is loading, so slots are made for 64 leaves at a time.

// Its orders are visible to ThreadSanitizer, unlike those inside `std::sync::OnceLock`.
use once_cell::sync::OnceCell;
use parext4_format::indirect::Shape;

use super::leaf::Leaf;
use crate::sync::{Arc, SwapOption};

const CHUNK: usize = 64;

type Chunk = Box<[SwapOption<Leaf>]>;
type Chunks = OnceCell<Box<[OnceCell<Chunk>]>>;

#[derive(Debug)]
pub(super) struct LeafTable {
    /// Leaf 0. Most files have no other.
    first: SwapOption<Leaf>,
    /// The leaves below the double indirect block.
    double: Chunks,
    /// The leaves below the triple indirect block.
    triple: Chunks,
    pointers: usize,
}

impl LeafTable {
    pub(super) fn new(shape: Shape) -> Self {
        let pointers = shape.pointers() as usize;
        Self { first: SwapOption::new(None), double: OnceCell::new(), triple: OnceCell::new(), pointers }
    }

    /// Returns the chunks that hold a leaf other than leaf 0, the number of chunks there, and the leaf's index in them.
    fn chunks(&self, leaf: u32) -> (&Chunks, usize, usize) {
        let at = leaf as usize - 1;
        match at.checked_sub(self.pointers) {
            None => (&self.double, self.pointers / CHUNK, at),
            Some(at) => (&self.triple, self.pointers * self.pointers / CHUNK, at),
        }
    }

    /// Calls `f` with a leaf. Returns `None` if it is not in memory.
    #[inline]
    pub(super) fn with<R>(&self, leaf: u32, f: impl FnOnce(&Arc<Leaf>) -> R) -> Option<R> {
        if leaf == 0 {
            return self.first.load().as_ref().map(f);
        }
        let (chunks, _, at) = self.chunks(leaf);
        let chunk = chunks.get()?.get(at / CHUNK)?.get()?;
        chunk[at % CHUNK].load().as_ref().map(f)
    }

    /// Returns a leaf, or `None` if it is not in memory.
    pub(super) fn get(&self, leaf: u32) -> Option<Arc<Leaf>> {
        self.with(leaf, Arc::clone)
    }

    /// Replaces the leaf of a number that the tree can have.
    pub(super) fn set(&self, leaf: u32, value: Option<Arc<Leaf>>) {
        if leaf == 0 {
            return self.first.store(value);
        }
        let (chunks, count, at) = self.chunks(leaf);
        let chunks = chunks.get_or_init(|| (0..count).map(|_| OnceCell::new()).collect());
        if let Some(chunk) = chunks.get(at / CHUNK) {
            let empty = || (0..CHUNK).map(|_| SwapOption::new(None)).collect();
            chunk.get_or_init(empty)[at % CHUNK].store(value);
        }
    }
}
