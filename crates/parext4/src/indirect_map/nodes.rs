//! The pointer blocks above the leaves, and the leaves that have no block.
//!
//! This module reads these blocks when they are first needed, with all checks that keep a corrupt
//! or malicious tree harmless (I9). It does not manage the leaves in memory. Invariant: `known` has
//! the numbers of all pointer blocks to which a block in memory points. So no pointer block is used
//! twice, and no leaf that is read later maps a pointer block as data.

use std::collections::{BTreeSet, HashMap, HashSet};

use parext4_format::indirect::{self, Holder, PointerBlock, Shape};
use parext4_format::{FileBlock, FsBlock};

use crate::convert::saturating_u32;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::meta::{BlockKind, MetaCache};
use crate::sync::Arc;

/// The source of pointer blocks: the cache and the layout of the volume.
#[derive(Debug)]
pub(super) struct Source {
    pub shape: Shape,
    pub layout: Arc<Layout>,
    pub cache: Arc<MetaCache>,
    pub kind: BlockKind,
}

/// A pointer block above the leaves.
#[derive(Debug)]
pub(super) struct Node {
    pub block: u32,
    pub pointers: Vec<u32>,
    /// Number of pointers that are not 0.
    used: u32,
}

#[derive(Debug)]
pub(super) struct Nodes {
    /// The pointers of the inode to the single, double and triple indirect blocks.
    pub root: [u32; 3],
    loaded: HashMap<PointerBlock, Node>,
    known: HashSet<u32>,
    /// The leaves in memory that have no block.
    unlinked: BTreeSet<u32>,
    /// Missing pointer blocks for each of which a block of the volume is claimed.
    pub reserved: HashSet<PointerBlock>,
}

impl Source {
    /// Reads the pointers of a block.
    pub(super) fn read(&self, block: u32) -> Result<Vec<u32>> {
        let number = FsBlock(block.into());
        let bytes = self.cache.read(number, self.kind)?.snapshot();
        let pointers: Vec<u32> = indirect::parse(&bytes).collect();
        self.check(&pointers).map_err(|error| error.in_block(number))?;
        Ok(pointers)
    }

    /// Checks that all pointers lead to blocks that a file may have.
    pub(super) fn check(&self, pointers: &[u32]) -> Result<()> {
        let runs: Vec<_> = runs(pointers).collect();
        for &(start, len) in &runs {
            self.layout.check_data_range(FsBlock(start), len)?;
        }
        check_disjoint(runs)
    }
}

impl Node {
    fn new(block: u32, pointers: Vec<u32>) -> Self {
        let used = saturating_u32(pointers.iter().filter(|&&pointer| pointer != 0).count());
        Self { block, pointers, used }
    }

    fn first_used(&self, from: usize) -> Option<usize> {
        let rest = self.pointers.get(from..)?;
        rest.iter().position(|&pointer| pointer != 0).map(|at| from + at)
    }

    fn last_used(&self, upto: usize) -> Option<usize> {
        self.pointers[..=upto].iter().rposition(|&pointer| pointer != 0)
    }
}

impl Nodes {
    /// Returns the nodes of the tree whose pointers in the inode are `root`.
    pub(super) fn new(root: [u32; 3]) -> Result<Self> {
        let mut nodes = Self {
            root,
            loaded: HashMap::new(),
            known: HashSet::new(),
            unlinked: BTreeSet::new(),
            reserved: HashSet::new(),
        };
        nodes.learn(&root)?;
        Ok(nodes)
    }

    /// Adds pointer blocks to `known`. Returns an error if one is there already.
    fn learn(&mut self, pointers: &[u32]) -> Result<()> {
        let mut used = pointers.iter().filter(|&&pointer| pointer != 0);
        match used.find(|&&pointer| !self.known.insert(pointer)) {
            Some(&pointer) => Err(twice(pointer.into())),
            None => Ok(()),
        }
    }

    /// Returns an error if one of the blocks of the file is a pointer block.
    pub(super) fn check_data(&self, pointers: &[u32]) -> Result<()> {
        match pointers.iter().find(|pointer| self.known.contains(pointer)) {
            Some(&pointer) => Err(twice(pointer.into())),
            None => Ok(()),
        }
    }

    /// Returns the pointer to a pointer block, 0 if there is none, or `None` if the block that
    /// holds it is not in memory.
    pub(super) fn pointer(&self, shape: Shape, block: PointerBlock) -> Option<u32> {
        match shape.holder(block) {
            Holder::Root(index) => Some(self.root[index]),
            Holder::Block(holder, index) => match self.loaded.get(&holder) {
                // A block past the end of the map, which a damaged size may name, has no pointer.
                Some(node) => Some(node.pointers.get(index).copied().unwrap_or(0)),
                None => self.pointer(shape, holder).filter(|&pointer| pointer == 0),
            },
        }
    }

    /// Like [`pointer`](Self::pointer), but first reads the blocks above.
    pub(super) fn loaded_pointer(&mut self, source: &Source, block: PointerBlock) -> Result<u32> {
        if let Holder::Block(holder, _) = source.shape.holder(block) {
            self.load(source, holder)?;
        }
        Ok(self.pointer(source.shape, block).unwrap_or(0))
    }

    /// Reads a block above the leaves, and the blocks above it. Returns false if there is none.
    pub(super) fn load(&mut self, source: &Source, block: PointerBlock) -> Result<bool> {
        if self.loaded.contains_key(&block) {
            return Ok(true);
        }
        let number = self.loaded_pointer(source, block)?;
        if number == 0 {
            return Ok(false);
        }
        let pointers = source.read(number)?;
        if let Some(last) = pointers.iter().rposition(|&pointer| pointer != 0) {
            let leaf = match source.shape.child(block, saturating_u32(last)) {
                PointerBlock::Middle(_) => 0,
                PointerBlock::Leaf(leaf) => leaf,
                PointerBlock::Double | PointerBlock::Triple => 0,
            };
            if source.shape.first_of_leaf(leaf) >= FileBlock::LIMIT {
                return Err(Error::corrupt("indirect block: it maps blocks that no file has"));
            }
        }
        self.learn(&pointers).map_err(|error| error.in_block(FsBlock(number.into())))?;
        self.loaded.insert(block, Node::new(number, pointers));
        Ok(true)
    }

    pub(super) fn node(&self, block: PointerBlock) -> Option<&Node> {
        self.loaded.get(&block)
    }

    /// Estimates the memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        let of_node = |node: &Node| size_of::<Node>() + node.pointers.len() * 4;
        self.loaded.values().map(of_node).sum::<usize>() + self.known.capacity() * 8
    }

    /// Sets the pointer to a pointer block. The block that holds the pointer is in memory.
    fn set_pointer(&mut self, shape: Shape, block: PointerBlock, to: u32) {
        let (slot, used) = match shape.holder(block) {
            Holder::Root(index) => (&mut self.root[index], None),
            Holder::Block(holder, index) => match self.loaded.get_mut(&holder) {
                Some(node) => (&mut node.pointers[index], Some(&mut node.used)),
                None => unreachable!("the holder of a pointer that changes is in memory"),
            },
        };
        let before = std::mem::replace(slot, to);
        if let Some(used) = used {
            *used = *used + u32::from(to != 0) - u32::from(before != 0);
        }
        self.known.remove(&before);
        if to != 0 {
            self.known.insert(to);
        }
    }

    /// Adds a new pointer block. The block that holds its pointer is in memory.
    pub(super) fn add(&mut self, shape: Shape, block: PointerBlock, number: u32) {
        self.set_pointer(shape, block, number);
        if let PointerBlock::Leaf(leaf) = block {
            self.unlinked.remove(&leaf);
        } else {
            self.loaded.insert(block, Node::new(number, vec![0; shape.pointers() as usize]));
        }
    }

    /// Removes a pointer block that is empty. Returns its number, 0 if there was none.
    pub(super) fn remove(&mut self, shape: Shape, block: PointerBlock) -> u32 {
        let number = self.pointer(shape, block).unwrap_or(0);
        self.loaded.remove(&block);
        if number != 0 {
            self.set_pointer(shape, block, 0);
        }
        number
    }

    /// Returns true if no leaf has a block or is in memory.
    pub(super) fn has_no_leaf(&self) -> bool {
        self.root == [0; 3] && self.unlinked.is_empty()
    }

    pub(super) fn add_unlinked(&mut self, leaf: u32) {
        self.unlinked.insert(leaf);
    }

    pub(super) fn remove_unlinked(&mut self, leaf: u32) {
        self.unlinked.remove(&leaf);
    }

    /// Releases the reservations of the leaves for which `is_unneeded` is true, and of the blocks
    /// above them that no other reserved leaf needs. Returns their number.
    pub(super) fn release_reserved(&mut self, shape: Shape, is_unneeded: impl Fn(u32) -> bool) -> u32 {
        let before = self.reserved.len();
        let is_kept = |block: &PointerBlock| !matches!(block, PointerBlock::Leaf(leaf) if is_unneeded(*leaf));
        self.reserved.retain(is_kept);
        if self.reserved.len() < before {
            let leaves = self.reserved.iter().filter(|block| matches!(block, PointerBlock::Leaf(_)));
            let needed: HashSet<PointerBlock> = leaves.flat_map(|&leaf| path(shape, leaf)).collect();
            self.reserved.retain(|block| needed.contains(block));
        }
        saturating_u32(before - self.reserved.len())
    }

    /// Returns true if a block above the leaves is in memory and has no pointers, and no leaf below
    /// it is in memory or reserved.
    pub(super) fn is_empty(&self, shape: Shape, block: PointerBlock) -> bool {
        let is_below = |below| path(shape, below).skip(1).any(|above| above == block);
        self.loaded.get(&block).is_some_and(|node| node.used == 0)
            && !self.unlinked.iter().any(|&leaf| is_below(PointerBlock::Leaf(leaf)))
            && !self.reserved.iter().any(|&reserved| is_below(reserved))
    }

    /// Returns a block above the leaves that is in memory and empty.
    pub(super) fn empty(&self, shape: Shape) -> Option<PointerBlock> {
        self.loaded.keys().copied().find(|&block| self.is_empty(shape, block))
    }

    /// Returns the first leaf from `leaf` on that has a block or is in memory.
    pub(super) fn next_leaf(&mut self, source: &Source, leaf: u32) -> Result<Option<u32>> {
        let unlinked = self.unlinked.range(leaf..).next().copied();
        let linked = self.next_linked(source, leaf)?;
        Ok(unlinked.into_iter().chain(linked).min())
    }

    fn next_linked(&mut self, source: &Source, leaf: u32) -> Result<Option<u32>> {
        let pointers = source.shape.pointers();
        if leaf == 0 && self.root[0] != 0 {
            return Ok(Some(0));
        }
        if leaf <= pointers
            && let Some(found) = self.first_below(source, PointerBlock::Double, leaf.max(1) as usize - 1)?
        {
            return Ok(Some(found));
        }
        if !self.load(source, PointerBlock::Triple)? {
            return Ok(None);
        }
        let (mut middle, mut index) = below_triple(source.shape, leaf.max(1 + pointers));
        while let Some(next) = self.loaded[&PointerBlock::Triple].first_used(middle) {
            let from = if next == middle { index } else { 0 };
            let block = PointerBlock::Middle(saturating_u32(next));
            if let Some(found) = self.first_below(source, block, from)? {
                return Ok(Some(found));
            }
            (middle, index) = (next + 1, 0);
        }
        Ok(None)
    }

    /// Returns the first leaf below `block` whose index there is at least `from`.
    fn first_below(&mut self, source: &Source, block: PointerBlock, from: usize) -> Result<Option<u32>> {
        self.load(source, block)?;
        let at = self.loaded.get(&block).and_then(|node| node.first_used(from));
        Ok(at.and_then(|at| leaf_below(source.shape, block, at)))
    }

    /// Returns the last leaf up to `leaf` that has a block or is in memory.
    pub(super) fn last_leaf(&mut self, source: &Source, leaf: u32) -> Result<Option<u32>> {
        let unlinked = self.unlinked.range(..=leaf).next_back().copied();
        Ok(unlinked.max(self.last_linked(source, leaf)?))
    }

    fn last_linked(&mut self, source: &Source, leaf: u32) -> Result<Option<u32>> {
        let pointers = source.shape.pointers();
        if leaf > pointers && self.load(source, PointerBlock::Triple)? {
            let (mut middle, mut index) = below_triple(source.shape, leaf);
            while let Some(before) = self.loaded[&PointerBlock::Triple].last_used(middle) {
                let upto = if before == middle { index } else { pointers as usize - 1 };
                let block = PointerBlock::Middle(saturating_u32(before));
                if let Some(found) = self.last_below(source, block, upto)? {
                    return Ok(Some(found));
                }
                let Some(next) = before.checked_sub(1) else { break };
                (middle, index) = (next, pointers as usize - 1);
            }
        }
        if leaf > 0 {
            let upto = leaf.min(pointers) as usize - 1;
            if let Some(found) = self.last_below(source, PointerBlock::Double, upto)? {
                return Ok(Some(found));
            }
        }
        Ok((self.root[0] != 0).then_some(0))
    }

    /// Returns the last leaf below `block` whose index there is at most `upto`.
    fn last_below(&mut self, source: &Source, block: PointerBlock, upto: usize) -> Result<Option<u32>> {
        self.load(source, block)?;
        let at = self.loaded.get(&block).and_then(|node| node.last_used(upto));
        Ok(at.and_then(|at| leaf_below(source.shape, block, at)))
    }
}

/// Returns the block below the triple indirect block on the path to a leaf, and the index of the
/// leaf in it.
fn below_triple(shape: Shape, leaf: u32) -> (usize, usize) {
    match shape.holder(PointerBlock::Leaf(leaf)) {
        Holder::Block(PointerBlock::Middle(number), index) => (number as usize, index),
        _ => (0, 0),
    }
}

fn leaf_below(shape: Shape, block: PointerBlock, index: usize) -> Option<u32> {
    match shape.child(block, saturating_u32(index)) {
        PointerBlock::Leaf(leaf) => Some(leaf),
        _ => None,
    }
}

/// Returns `block`, and the pointer blocks on the path above it.
pub(super) fn path(shape: Shape, block: PointerBlock) -> impl Iterator<Item = PointerBlock> {
    std::iter::successors(Some(block), move |&block| match shape.holder(block) {
        Holder::Root(_) => None,
        Holder::Block(holder, _) => Some(holder),
    })
}

/// Returns the contiguous blocks of `pointers`, as `(start, length)`.
pub(super) fn runs(pointers: &[u32]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let together = |a: &u32, b: &u32| *a != 0 && a.checked_add(1) == Some(*b);
    let runs = pointers.chunk_by(together).filter(|run| run[0] != 0);
    runs.map(|run| (run[0].into(), run.len() as u64))
}

/// Returns an error if two runs have a block in common.
pub(super) fn check_disjoint(mut runs: Vec<(u64, u64)>) -> Result<()> {
    runs.sort_unstable();
    match runs.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
        Some(pair) => Err(twice(pair[1].0)),
        None => Ok(()),
    }
}

fn twice(block: u64) -> Error {
    Error::corrupt_field("indirect block", "block", format_args!("block {block} appears twice"))
}
