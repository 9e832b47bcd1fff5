//! The leaves in memory, by number. Readers find a leaf without a lock.
//!
//! The table has the slots. The map adds and removes leaves under its locks. The table has the form
//! of the tree: a branch for the leaves below the double indirect block, and one for each block
//! below the triple indirect block. A slot costs 8 bytes, and dropping a slot checks the loads of
//! all threads, so slots are created for 64 leaves at a time.
//!
//! Invariants: a branch or a chunk is published once, with empty slots, and stays until the table
//! is dropped. Its memory is counted before it is published.

use std::sync::atomic::Ordering;

// once_cell's memory orders are visible to ThreadSanitizer, unlike those inside
// `std::sync::OnceLock`.
use once_cell::sync::OnceCell;
use parext4_format::FileBlock;
use parext4_format::indirect::Shape;

use super::leaf::Leaf;
use crate::convert::to_usize;
use crate::sync::{Arc, SwapOption};

// This is not the type of `sync`: the model checker would switch threads at it, inside the
// initialisation of a cell, which blocks other threads in a way that the checker does not know.
type Bytes = std::sync::atomic::AtomicUsize;

const CHUNK: usize = 64;

type Chunk = Box<[SwapOption<Leaf>]>;
/// The leaves below one block, whose pointers are leaves.
type Branch = OnceCell<Box<[OnceCell<Chunk>]>>;

#[derive(Debug)]
pub(super) struct LeafTable {
    /// Leaf 0. Most files have no other leaf.
    first: SwapOption<Leaf>,
    /// The leaves below the double indirect block.
    double: Branch,
    /// The leaves below each block below the triple indirect block.
    triple: OnceCell<Box<[Branch]>>,
    /// Binary logarithm of the number of pointers in a block.
    bits: u32,
    /// Memory of branches and chunks, in bytes.
    memory: Bytes,
}

impl LeafTable {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            first: SwapOption::new(None),
            double: OnceCell::new(),
            triple: OnceCell::new(),
            bits: shape.pointers().ilog2(),
            memory: Bytes::new(0),
        }
    }

    /// Returns the number of a leaf in its branch, and the number of its branch if that is below
    /// the triple indirect block. The leaf is not leaf 0.
    fn place(&self, leaf: u32) -> (usize, Option<usize>) {
        let (at, pointers) = (leaf as usize - 1, 1 << self.bits);
        (at & (pointers - 1), at.checked_sub(pointers).map(|at| at >> self.bits))
    }

    /// Calls `f` with a leaf. Returns `None` if the leaf is not in memory.
    #[inline]
    pub(super) fn with<R>(&self, leaf: u32, f: impl FnOnce(&Arc<Leaf>) -> R) -> Option<R> {
        if leaf == 0 {
            return self.first.load().as_ref().map(f);
        }
        let (at, middle) = self.place(leaf);
        let branch = match middle {
            None => &self.double,
            Some(middle) => self.triple.get()?.get(middle)?,
        };
        let chunk = branch.get()?.get(at / CHUNK)?.get()?;
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
        let (at, middle) = self.place(leaf);
        let branch = match middle {
            None => Some(&self.double),
            Some(middle) => self.triple.get_or_init(|| self.cells(self.middles())).get(middle),
        };
        let chunks = branch.map(|branch| branch.get_or_init(|| self.cells((1 << self.bits) / CHUNK)));
        if let Some(chunk) = chunks.and_then(|chunks| chunks.get(at / CHUNK)) {
            chunk.get_or_init(|| self.slots())[at % CHUNK].store(value);
        }
    }

    /// Estimates the memory of the table without the leaves, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Returns the number of blocks below the triple indirect block that lead to blocks that a file
    /// can have: at most 1024, with any block size.
    fn middles(&self) -> usize {
        to_usize(FileBlock::LIMIT >> (2 * self.bits)).min(1 << self.bits)
    }

    fn cells<T>(&self, count: usize) -> Box<[OnceCell<T>]> {
        self.count(count * size_of::<OnceCell<T>>());
        (0..count).map(|_| OnceCell::new()).collect()
    }

    fn slots(&self) -> Chunk {
        self.count(CHUNK * size_of::<SwapOption<Leaf>>());
        (0..CHUNK).map(|_| SwapOption::new(None)).collect()
    }

    fn count(&self, bytes: usize) {
        // Relaxed suffices: only the sum matters.
        self.memory.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use parext4_format::BlockRange;
    use parext4_format::BlockSize;

    use super::*;

    fn shapes() -> impl Iterator<Item = Shape> {
        (10..=16).filter_map(BlockSize::from_bits).map(Shape::new)
    }

    fn leaf(shape: Shape, number: u32) -> Arc<Leaf> {
        let first = shape.first_of_leaf(number);
        Arc::new(Leaf::new(BlockRange::clamped(first, first + 1), std::iter::repeat(0), number))
    }

    /// The last leaf that the tree of a shape can have.
    fn last_leaf(shape: Shape) -> u32 {
        let tree = shape.pointers() * (1 + shape.pointers());
        tree.min(((FileBlock::LIMIT - 13) / u64::from(shape.pointers())).try_into().unwrap())
    }

    #[test]
    fn each_leaf_has_a_slot_of_its_own() {
        for shape in shapes() {
            let (table, pointers) = (LeafTable::new(shape), shape.pointers());
            let middle = 2 * pointers;
            let numbers = [0, 1, 64, 65, pointers, pointers + 1, middle, middle + 1, last_leaf(shape)];
            for number in numbers {
                assert!(table.get(number).is_none(), "leaf {number}");
                table.set(number, Some(leaf(shape, number)));
            }
            for number in numbers {
                assert_eq!(table.get(number).map(|leaf| leaf.block()), Some(number));
            }
        }
    }

    #[test]
    fn the_first_leaf_below_the_triple_indirect_block_takes_no_table_of_96_mib() {
        for shape in shapes() {
            let table = LeafTable::new(shape);
            assert_eq!(table.memory(), 0);
            for number in [shape.pointers() + 1, last_leaf(shape)] {
                table.set(number, Some(leaf(shape, number)));
            }
            let memory = table.memory();
            assert!((1..40 << 10).contains(&memory), "{memory} bytes with {} pointers", shape.pointers());
        }
    }

    #[test]
    fn leaves_that_no_tree_has_take_no_memory_and_have_no_slot() {
        for shape in shapes() {
            let table = LeafTable::new(shape);
            table.set(u32::MAX, Some(leaf(shape, 1)));
            assert!(table.get(u32::MAX).is_none() && table.memory() < 32 << 10);
        }
    }
}
