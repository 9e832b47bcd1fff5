//! Changes of the map.
//!
//! This module changes leaves, and adds and removes pointer blocks, under the map's lock. The
//! caller allocates and frees the blocks.

use parext4_format::indirect::{Holder, PointerBlock, PointerPosition};
use parext4_format::{BlockRange, FileBlock, FsBlock};
use smallvec::SmallVec;

use super::leaf::Change;
use super::{IndirectMap, Leaf};
use crate::convert::saturating_u32;
use crate::error::{Error, Result};
use crate::journal::Handle;
use crate::mapping::{BlockState, Mapping};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, ReadGuard, WriteGuard};

/// The map, locked: shared to change blocks in leaves, or exclusively for any change.
#[derive(Debug)]
#[must_use]
pub(crate) struct Writer<'a> {
    map: &'a IndirectMap,
    lock: Lock<'a>,
}

#[derive(Debug)]
enum Lock<'a> {
    Shared(#[expect(dead_code, reason = "held")] ReadGuard<'a, ()>),
    Exclusive(#[expect(dead_code, reason = "held")] WriteGuard<'a, ()>),
    /// Unlocked, while the lock changes from shared to exclusive.
    Released,
}

/// Blocks that one leaf maps. It is valid while the map is locked.
#[derive(Debug)]
pub(crate) struct LeafPart {
    leaf: Arc<Leaf>,
    pub blocks: BlockRange,
}

impl IndirectMap {
    /// Acquires the map's lock shared.
    pub(crate) fn lock_shared(&self) -> Writer<'_> {
        Writer { map: self, lock: Lock::Shared(self.changing.read()) }
    }

    /// Acquires the map's lock exclusively.
    pub(crate) fn lock(&self) -> Writer<'_> {
        Writer { map: self, lock: Lock::Exclusive(self.changing.write()) }
    }
}

impl Writer<'_> {
    /// Returns the part of `blocks`, from the first one on, that one leaf maps. Adds that leaf if
    /// all its blocks are holes.
    pub(crate) fn part(&self, blocks: BlockRange) -> Result<LeafPart> {
        let map = self.map;
        let leaf = match map.source.shape.place(blocks.start()) {
            PointerPosition::Direct(_) => Arc::clone(&map.direct),
            PointerPosition::Leaf(number, _) if number > map.max_leaf() => {
                return Err(Error::FileTooLarge);
            }
            PointerPosition::Leaf(number, _) => match map.leaf(number)? {
                Some(leaf) => leaf,
                None => {
                    let mut nodes = map.nodes.write();
                    let leaf = map.keep(number, Leaf::new(map.blocks_of(number), std::iter::repeat(0), 0));
                    if leaf.block() == 0 {
                        nodes.add_unlinked(number);
                    }
                    leaf
                }
            },
        };
        let blocks = leaf.blocks().intersection(blocks);
        Ok(LeafPart { leaf, blocks })
    }

    /// Returns the last leaf that maps one of `blocks`, with the part of `blocks` that it maps.
    pub(crate) fn last_part(&self, blocks: BlockRange) -> Result<Option<LeafPart>> {
        let leaf = self.map.last_leaf(blocks)?;
        Ok(leaf.map(|leaf| LeafPart { blocks: leaf.blocks().intersection(blocks), leaf }))
    }

    /// Claims volume blocks from `start` on for the blocks of `part`, which are holes. The caller
    /// holds their range.
    pub(crate) fn claim(&self, part: &LeafPart, start: FsBlock) {
        self.map.claims.fetch_add(part.blocks.len(), Ordering::AcqRel);
        part.leaf.change(part.blocks, Change::Claim(start));
    }

    /// Maps the blocks of `part`, which are holes, to volume blocks from `start` on, as written.
    /// Their leaf is [registered](Self::register).
    pub(crate) fn map_written(&self, part: &LeafPart, start: FsBlock) {
        part.leaf.change(part.blocks, Change::Write(start));
    }

    /// Makes the blocks of `part`, which are claimed, written. Their leaf is
    /// [registered](Self::register).
    pub(crate) fn convert(&self, part: &LeafPart) {
        part.leaf.change(part.blocks, Change::Convert);
        self.map.claims.fetch_sub(part.blocks.len(), Ordering::AcqRel);
    }

    /// Unmaps `run`, which is claimed or written. The leaf of written blocks is
    /// [registered](Self::register).
    pub(crate) fn unmap(&self, part: &LeafPart, run: &Mapping) {
        part.leaf.change(run.blocks(), Change::Unmap);
        if matches!(run.state, BlockState::Unwritten(_)) {
            self.map.claims.fetch_sub(u64::from(run.len), Ordering::AcqRel);
        }
    }

    /// Adds the leaf's block to the handle's transaction. The inode has joined that transaction.
    /// The leaf has a block, or is stored in the inode.
    pub(crate) fn register(&self, handle: &Handle<'_>, part: &LeafPart) -> Result<()> {
        let leaf = &part.leaf;
        if let Some(number) = leaf.number(self.map.source.shape)
            && !leaf.is_registered(handle.tid())
        {
            self.map.register(handle, PointerBlock::Leaf(number), leaf.block())?;
            leaf.set_registered(handle.tid());
        }
        Ok(())
    }

    /// Returns the number of pointer blocks that must be [added](Self::link) before the leaf of
    /// `part` can be registered.
    pub(crate) fn missing(&self, part: &LeafPart) -> Result<usize> {
        let Some(number) = part.leaf.number(self.map.source.shape).filter(|_| part.leaf.block() == 0) else {
            return Ok(0);
        };
        let mut nodes = self.map.nodes.write();
        nodes.loaded_pointer(&self.map.source, PointerBlock::Leaf(number))?;
        Ok(self.map.missing(&nodes, number).count())
    }

    /// Removes the reservations of the pointer blocks that the leaf of `part` lacks. Returns their
    /// number.
    pub(crate) fn take_reserved(&self, part: &LeafPart) -> u32 {
        let Some(number) = part.leaf.number(self.map.source.shape) else { return 0 };
        let mut nodes = self.map.nodes.write();
        let missing: SmallVec<[PointerBlock; 3]> = self.map.missing(&nodes, number).collect();
        let taken = missing.iter().filter(|block| nodes.reserved.remove(block)).count();
        saturating_u32(taken)
    }

    /// Removes the reservations of the pointer blocks that only blocks of `unmapped` need. Returns
    /// their number.
    pub(crate) fn release_reserved(&self, unmapped: BlockRange) -> u32 {
        let map = self.map;
        let is_unmapped = |leaf| map.blocks_of(leaf).intersection(unmapped) == map.blocks_of(leaf);
        map.nodes.write().release_reserved(map.source.shape, is_unmapped)
    }

    /// Locks the map exclusively instead of shared. Other threads may change the map in between.
    pub(crate) fn make_exclusive(&mut self) {
        if !matches!(self.lock, Lock::Exclusive(_)) {
            self.lock = Lock::Released;
            self.lock = Lock::Exclusive(self.map.changing.write());
        }
    }

    /// Adds the [missing](Self::missing) pointer blocks, which are stored in `blocks`. The map is
    /// locked exclusively.
    pub(crate) fn link(&self, handle: &Handle<'_>, part: &LeafPart, blocks: &[FsBlock]) -> Result<()> {
        let (map, shape) = (self.map, self.map.source.shape);
        let Some(number) = part.leaf.number(shape) else { return Ok(()) };
        let mut nodes = map.nodes.write();
        let mut missing: SmallVec<[PointerBlock; 3]> = map.missing(&nodes, number).collect();
        debug_assert_eq!(missing.len(), blocks.len(), "the map was not locked");
        // Pointer blocks are added from the top down, so that the holder of each pointer exists.
        missing.reverse();
        for (block, at) in missing.into_iter().zip(blocks) {
            let at = saturating_u32(at.get());
            nodes.add(shape, block, at);
            if let Holder::Block(holder, _) = shape.holder(block)
                && let Some(node) = nodes.node(holder)
            {
                map.register(handle, holder, node.block)?;
            }
            map.register(handle, block, at)?;
        }
        part.leaf.set_block(nodes.pointer(shape, PointerBlock::Leaf(number)).unwrap_or(0));
        Ok(())
    }

    /// Removes the leaf of `part` if all its blocks are holes, and then the pointer blocks above it
    /// that are empty. Adds their block numbers to `freed`. The map is locked exclusively.
    pub(crate) fn unlink(
        &self,
        handle: &Handle<'_>,
        part: &LeafPart,
        freed: &mut Vec<FsBlock>,
    ) -> Result<()> {
        let map = self.map;
        let Some(number) = part.leaf.number(map.source.shape).filter(|_| part.leaf.is_empty()) else {
            return Ok(());
        };
        let mut nodes = map.nodes.write();
        nodes.remove_unlinked(number);
        map.leaves.set(number, None);
        let linked = part.leaf.block() != 0;
        part.leaf.set_block(0);
        if linked { map.remove(handle, &mut nodes, PointerBlock::Leaf(number), freed) } else { Ok(()) }
    }

    /// Removes the pointer blocks above the leaves that are empty and in memory, as
    /// [`unlink`](Self::unlink) does.
    pub(crate) fn remove_empty(&self, handle: &Handle<'_>, freed: &mut Vec<FsBlock>) -> Result<()> {
        let mut nodes = self.map.nodes.write();
        match nodes.empty(self.map.source.shape) {
            Some(block) => self.map.remove(handle, &mut nodes, block, freed),
            None => Ok(()),
        }
    }

    /// Returns true if a pointer block above the leaves is in memory and empty.
    pub(crate) fn has_empty(&self) -> bool {
        self.map.nodes.read().empty(self.map.source.shape).is_some()
    }
}

impl LeafPart {
    /// Returns the mapping of the first of the blocks, and of the following blocks in the same
    /// state.
    pub(crate) fn first_run(&self) -> Mapping {
        self.leaf.lookup(self.blocks.start(), self.blocks.count())
    }

    /// Returns the last run of mapped blocks before file block `end`.
    pub(crate) fn last_run(&self, end: u64) -> Option<Mapping> {
        self.leaf.last_run(self.blocks.start(), end.min(self.blocks.end()))
    }

    /// Returns the first blocks, at most `len`.
    pub(crate) fn take(&self, len: u32) -> Self {
        Self { leaf: Arc::clone(&self.leaf), blocks: self.blocks.take(len) }
    }

    /// Returns true if the leaf is a pointer block, or in memory only, and maps no block.
    pub(crate) fn is_empty_leaf(&self) -> bool {
        self.leaf.is_empty() && self.leaf.blocks().start() != FileBlock::ZERO
    }

    /// Returns true if these are all blocks of the leaf.
    pub(crate) fn is_whole_leaf(&self) -> bool {
        self.blocks == self.leaf.blocks()
    }

    /// Returns the first file block of the leaf.
    pub(crate) fn leaf_start(&self) -> u64 {
        self.leaf.blocks().start().to_u64()
    }
}

impl IndirectMap {
    /// Adds a pointer block to the handle's transaction, and to the blocks that are encoded when it
    /// closes.
    fn register(&self, handle: &Handle<'_>, block: PointerBlock, number: u32) -> Result<()> {
        let mut in_memory = self.in_memory.lock();
        let meta = match in_memory.dirty.get(&block) {
            Some(meta) => Arc::clone(meta),
            None => self.source.cache.create(FsBlock(number.into()), self.source.kind)?,
        };
        handle.register(&meta);
        in_memory.dirty.insert(block, meta);
        Ok(())
    }

    /// Removes an empty pointer block, and the blocks above it that become empty.
    fn remove(
        &self,
        handle: &Handle<'_>,
        nodes: &mut super::Nodes,
        mut block: PointerBlock,
        freed: &mut Vec<FsBlock>,
    ) -> Result<()> {
        let shape = self.source.shape;
        loop {
            let number = nodes.remove(shape, block);
            self.in_memory.lock().dirty.remove(&block);
            if number != 0 {
                freed.push(FsBlock(number.into()));
            }
            let Holder::Block(holder, _) = shape.holder(block) else { return Ok(()) };
            if !nodes.is_empty(shape, holder) {
                let number = nodes.node(holder).map_or(0, |node| node.block);
                return self.register(handle, holder, number);
            }
            block = holder;
        }
    }
}
