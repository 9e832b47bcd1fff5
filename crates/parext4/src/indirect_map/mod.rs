//! The map of a file with indirect blocks: the mapping from file blocks to volume blocks, in
//! memory.
//!
//! The module looks up, changes, reads and encodes the mapping. [`map_update`](crate::map_update)
//! allocates and frees the blocks. Invariant: the leaves and nodes in memory are authoritative;
//! pointer blocks on the device are encoded from them, once for each transaction.
//!
//! The format has no unwritten blocks. So a hole that is about to be written gets a *claimed*
//! block, which exists in memory only: the allocator has removed it from its free extents, but its
//! bit in the bitmap and the pointer to it are unset. Lookups return it as unwritten. The
//! conversion sets the bit and the pointer, once the data is on the device (I1). A pointer block
//! that the conversion will need is reserved when the first block below it is claimed (I5).
//!
//! | Operation | Locks | Effect |
//! |---|---|---|
//! | lookup in a leaf in memory | none | loads the pointer |
//! | lookup in another leaf | nodes shared | reads the leaf; two threads may do so, and one of the results is kept |
//! | claim, convert | map shared | changes pointers in place |
//! | add or remove a pointer block, unmap | map exclusive, nodes exclusive | changes the tree |
//! | encode | map exclusive | writes each changed pointer block, once for each transaction |
//!
//! Source of the format: kernel documentation, "Direct/Indirect Block Addressing".

mod check;
mod claims;
mod encode;
mod leaf;
mod leaf_table;
mod neighbours;
mod nodes;
mod writer;

use std::collections::{BTreeMap, BTreeSet};

use parext4_format::indirect::{self, DIRECT, PointerBlock, PointerPosition, Shape};
use parext4_format::{BlockRange, FileBlock};

use crate::convert::saturating_u32;
use crate::error::Result;
use crate::fault::{Fault, guarded};
use crate::layout::Layout;
use crate::mapping::{BlockState, Mapping};
use crate::meta::{BlockKind, MetaBlock, MetaCache};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, Rank, RwLock};
use leaf::Leaf;
use leaf_table::LeafTable;
use nodes::{Nodes, Source};

pub(crate) use writer::{LeafPart, Writer};

/// Limit of the memory of leaves, in bytes. Above it, the map drops the leaves that it can read
/// again.
const MAX_LEAF_BYTES: usize = 20 << 20;

/// Returns the number of leaves that occupy [`MAX_LEAF_BYTES`].
fn max_leaves(shape: Shape) -> usize {
    if cfg!(shuttle) { 2 } else { MAX_LEAF_BYTES / Leaf::memory(shape.pointers()) }
}

/// The map of one file.
#[derive(Debug)]
pub(crate) struct IndirectMap {
    source: Source,
    /// The blocks whose pointers are in the inode.
    direct: Arc<Leaf>,
    leaves: LeafTable,
    /// The map's lock.
    changing: RwLock<()>,
    nodes: RwLock<Nodes>,
    in_memory: Mutex<InMemory>,
    /// Number of blocks that are claimed.
    claims: AtomicU64,
}

/// The pointer blocks in memory.
#[derive(Debug, Default)]
struct InMemory {
    /// The changed pointer blocks, which the transaction has registered.
    dirty: BTreeMap<PointerBlock, Arc<MetaBlock>>,
    /// The leaves in memory, and leaves that were removed since the list was last cleaned.
    leaves: BTreeSet<u32>,
    /// The length of `leaves` at which it is cleaned next.
    clean_at: usize,
    /// Number of times that leaves were dropped that can be read again.
    drops: u64,
}

impl IndirectMap {
    /// Returns the map whose pointers in the inode are `i_block`. Its pointer blocks, of kind
    /// `kind`, are read when they are first needed.
    ///
    /// # Errors
    /// Corruption, if a pointer leads to blocks that the file cannot have.
    pub(crate) fn load(
        i_block: &[u8; 60],
        layout: &Arc<Layout>,
        kind: BlockKind,
        cache: &Arc<MetaCache>,
    ) -> Result<Self> {
        let shape = Shape::new(layout.block_size);
        let source = Source { shape, layout: Arc::clone(layout), cache: Arc::clone(cache), kind };
        let pointers: Vec<u32> = indirect::parse(i_block).collect();
        source.check(&pointers)?;
        let (direct, root) = pointers.split_at(DIRECT as usize);
        let nodes = Nodes::new(std::array::from_fn(|index| root[index]))?;
        let blocks = BlockRange::ALL.take(DIRECT);
        Ok(Self {
            direct: Arc::new(Leaf::new(blocks, direct.iter().copied(), 0)),
            leaves: LeafTable::new(shape),
            changing: RwLock::new(Rank::ExtentMap, ()),
            nodes: RwLock::new(Rank::MapView, nodes),
            in_memory: Mutex::new(
                Rank::MapLeaf,
                InMemory { clean_at: max_leaves(shape), ..InMemory::default() },
            ),
            claims: AtomicU64::new(0),
            source,
        })
    }

    /// Returns the state of `block` and of blocks after it in the same state, at most `max` blocks.
    /// The run may continue after the returned part.
    ///
    /// # Errors
    /// Corruption, or a failed read, of a pointer block that was not in memory.
    #[inline]
    pub(crate) fn lookup(&self, block: FileBlock, max: u32) -> Result<Mapping> {
        let leaf = match self.source.shape.place(block) {
            PointerPosition::Direct(_) => return Ok(self.direct.lookup(block, max)),
            PointerPosition::Leaf(leaf, _) => leaf,
        };
        match self.leaves.with(leaf, |leaf| leaf.lookup(block, max)) {
            Some(found) => Ok(found),
            None => self.lookup_uncached(leaf, block, max),
        }
    }

    #[cold]
    fn lookup_uncached(&self, leaf: u32, block: FileBlock, max: u32) -> Result<Mapping> {
        if let Some(leaf) = self.leaf(leaf)? {
            return Ok(leaf.lookup(block, max));
        }
        let next = self.nodes.write().next_leaf(&self.source, leaf)?;
        let end = next.map_or(FileBlock::LIMIT, |next| self.source.shape.first_of_leaf(next));
        let len = saturating_u32(end.saturating_sub(block.to_u64())).clamp(1, max.max(1));
        Ok(Mapping { logical: block, len, state: BlockState::Hole })
    }

    /// Returns the whole run that begins at `block`, at most `max` blocks.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup).
    pub(crate) fn run(&self, block: FileBlock, max: u32) -> Result<Mapping> {
        let mut run = self.lookup(block, max)?;
        // With large blocks, the tree reaches to the last block that a file can have.
        while run.len < max
            && let Some(next) = block.checked_add(run.len)
            && run.join(&self.lookup(next, max - run.len)?)
        {}
        Ok(run)
    }

    /// Returns the number of the file block after the last one that is mapped or claimed, 0 if none
    /// is.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup).
    pub(crate) fn end(&self) -> Result<u64> {
        let mut rest = BlockRange::ALL;
        while let Some(leaf) = self.last_leaf(rest)? {
            if let Some(run) = leaf.last_run(FileBlock::ZERO, FileBlock::LIMIT) {
                return Ok(run.end());
            }
            rest = BlockRange::clamped(0, leaf.blocks().start().to_u64());
        }
        Ok(0)
    }

    /// Returns the highest number of a leaf.
    fn max_leaf(&self) -> u32 {
        let pointers = self.source.shape.pointers();
        pointers + pointers * pointers
    }

    /// Returns the file blocks of a leaf.
    fn blocks_of(&self, leaf: u32) -> BlockRange {
        let first = self.source.shape.first_of_leaf(leaf);
        BlockRange::clamped(first, first + u64::from(self.source.shape.pointers()))
    }

    /// Returns a leaf. Reads it if it is not in memory. Returns `None` if all its blocks are holes
    /// and it has no block.
    fn leaf(&self, number: u32) -> Result<Option<Arc<Leaf>>> {
        if number > self.max_leaf() {
            return Ok(None);
        }
        if let Some(leaf) = self.leaves.get(number) {
            return Ok(Some(leaf));
        }
        loop {
            let nodes = self.nodes.read();
            let drops = self.in_memory.lock().drops;
            if let Some(leaf) = self.leaves.get(number) {
                return Ok(Some(leaf));
            }
            match nodes.pointer(self.source.shape, PointerBlock::Leaf(number)) {
                Some(0) => return Ok(None),
                Some(block) => {
                    let pointers = self.source.read(block)?;
                    nodes.check_data(&pointers)?;
                    let leaf = Leaf::new(self.blocks_of(number), pointers.into_iter(), block);
                    if let Some(leaf) = self.keep_read(number, leaf, drops) {
                        return Ok(Some(leaf));
                    }
                }
                None => {
                    drop(nodes);
                    self.nodes.write().loaded_pointer(&self.source, PointerBlock::Leaf(number))?;
                }
            }
        }
    }

    /// Adds a leaf to the leaves in memory, unless another thread has added it. Returns the leaf in
    /// memory. The caller has locked the nodes, and the map, so that no leaf is dropped.
    fn keep(&self, number: u32, leaf: Leaf) -> Arc<Leaf> {
        self.add(&mut self.in_memory.lock(), number, leaf)
    }

    /// Like [`keep`](Self::keep), for a leaf that the caller has read without the map's lock, after
    /// it had loaded the count `drops`. Returns `None` if leaves were dropped meanwhile: another
    /// thread may have changed this leaf and dropped it, so the caller's copy may be old.
    fn keep_read(&self, number: u32, leaf: Leaf, drops: u64) -> Option<Arc<Leaf>> {
        let mut in_memory = self.in_memory.lock();
        let may_be_old = in_memory.drops != drops && self.leaves.get(number).is_none();
        if guarded!(Fault::OldLeafKept, may_be_old) {
            return None;
        }
        Some(self.add(&mut in_memory, number, leaf))
    }

    fn add(&self, in_memory: &mut InMemory, number: u32, leaf: Leaf) -> Arc<Leaf> {
        if let Some(leaf) = guarded!(Fault::LeafAddedTwice, self.leaves.get(number)) {
            return leaf;
        }
        if in_memory.leaves.len() >= in_memory.clean_at {
            self.drop_unused(in_memory);
        }
        let leaf = Arc::new(leaf);
        self.leaves.set(number, Some(Arc::clone(&leaf)));
        in_memory.leaves.insert(number);
        leaf
    }

    /// Drops the leaves that can be read again, unless a thread changes the map. A thread that is
    /// reading such a leaf keeps its reference.
    fn drop_unused(&self, in_memory: &mut InMemory) {
        let changing = self.changing.try_write();
        if guarded!(Fault::LeavesDroppedInUse, changing.is_none()) {
            return;
        }
        let InMemory { dirty, leaves, clean_at, drops } = in_memory;
        *drops += 1;
        leaves.retain(|&number| {
            let Some(leaf) = self.leaves.get(number) else { return false };
            let keep =
                leaf.block() == 0 || leaf.has_claims() || dirty.contains_key(&PointerBlock::Leaf(number));
            if !keep {
                self.leaves.set(number, None);
            }
            keep
        });
        *clean_at = (2 * leaves.len()).max(max_leaves(self.source.shape));
    }

    /// Returns the last leaf that maps one of `blocks`; the pointers in the inode count as a leaf.
    fn last_leaf(&self, blocks: BlockRange) -> Result<Option<Arc<Leaf>>> {
        let Some(last) = blocks.last() else { return Ok(None) };
        if let PointerPosition::Leaf(last, _) = self.source.shape.place(last) {
            let found = self.nodes.write().last_leaf(&self.source, last.min(self.max_leaf()))?;
            if let Some(number) = found.filter(|&number| self.blocks_of(number).overlaps(blocks)) {
                return self.leaf(number);
            }
        }
        Ok(Some(&self.direct).filter(|direct| direct.blocks().overlaps(blocks)).map(Arc::clone))
    }

    /// Returns true if a lookup of `block` reads nothing from the device.
    pub(crate) fn is_loaded(&self, block: FileBlock) -> bool {
        match self.source.shape.place(block) {
            PointerPosition::Direct(_) => true,
            PointerPosition::Leaf(leaf, _) if leaf > self.max_leaf() => true,
            PointerPosition::Leaf(leaf, _) => {
                let missing = || self.nodes.read().pointer(self.source.shape, PointerBlock::Leaf(leaf));
                self.leaves.with(leaf, |_| ()).is_some() || missing() == Some(0)
            }
        }
    }

    /// Returns the number of blocks from `block` to the end of its leaf.
    pub(crate) fn rest_of_leaf(&self, block: FileBlock) -> u32 {
        match self.source.shape.place(block) {
            PointerPosition::Direct(at) => DIRECT - at,
            PointerPosition::Leaf(_, at) => self.source.shape.pointers() - at,
        }
    }

    /// Returns true if blocks are claimed or reserved.
    pub(crate) fn has_claims(&self) -> bool {
        self.claims.load(Ordering::Acquire) > 0 || !self.nodes.read().reserved.is_empty()
    }

    /// Estimates the memory that the map uses, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let nodes = self.nodes.read().memory();
        let leaves = self.in_memory.lock().leaves.len();
        let table = self.leaves.memory();
        size_of::<Self>() + nodes + table + leaves * Leaf::memory(self.source.shape.pointers())
    }

    /// Returns the maximum number of blocks that one change registers, excluding the inode and the
    /// blocks of the file: the pointer blocks of one path; pointer blocks that are added or
    /// removed, each with its group's bitmap and descriptor; the superblock; and a revoke block.
    pub(crate) const CHANGE_CREDITS: u32 = 3 + 3 * 2 + 1 + 1;
}

#[cfg(test)]
mod tests;
