//! The cache of metadata blocks: sharded, bounded by the [budget](Budget), and the only source of a
//! [`MetaBlock`].
//!
//! The module is responsible for reading and verifying blocks and for evicting them. Invariants: a
//! block is in memory at most once, and always as the kind (and of the inode) for which it was
//! first read; a request for it as another kind is corruption. Only blocks without references are
//! evicted.

use std::io::IoSliceMut;

use parext4_device::{AlignedBuf, Device};
use parext4_format::FsBlock;

use super::{BlockKind, MetaBlock};
use crate::error::{Error, Result};
use crate::memory::{Budget, Evict, Shards};
use crate::sync::Arc;

/// Bytes that a block occupies besides its contents: up to one page of padding for alignment, the
/// block itself, the counts of two references, and the entry in the cache.
const OVERHEAD: usize = 4096 + 256;

/// The metadata blocks in memory.
#[derive(Debug)]
pub(crate) struct MetaCache {
    device: Arc<dyn Device>,
    block_size: usize,
    blocks_count: u64,
    blocks: Shards<Arc<MetaBlock>>,
}

impl MetaCache {
    /// Returns an empty cache over `device` whose blocks are charged to `budget`.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        block_size: u32,
        blocks_count: u64,
        budget: &Arc<Budget>,
    ) -> Self {
        Self { device, block_size: block_size as usize, blocks_count, blocks: Shards::new(budget) }
    }

    /// Returns the number of blocks in memory.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        self.blocks.budget()
    }

    /// Returns a block. Reads and verifies it if it is not in memory. Blocks on the device, and
    /// while another thread reads the block.
    ///
    /// # Errors
    /// A failed read; a bad checksum; [`Error::Corrupt`] if the block is in use as another kind.
    pub(crate) fn read(&self, number: FsBlock, kind: BlockKind) -> Result<Arc<MetaBlock>> {
        self.loaded(number, kind, || None, || self.read_device(number, kind))
    }

    /// Returns a zeroed block in memory, without reading the device. The caller has just allocated
    /// the block.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the block is in use as another kind.
    pub(crate) fn create(&self, number: FsBlock, kind: BlockKind) -> Result<Arc<MetaBlock>> {
        let zeroed = || AlignedBuf::zeroed(self.block_size);
        self.loaded(number, kind, || Some(zeroed()), || Ok(zeroed()))
    }

    /// Returns a block. If it is not in memory, adds it with `contents`, or if `contents` returns
    /// `None`, loads it with `load`.
    fn loaded(
        &self,
        number: FsBlock,
        kind: BlockKind,
        contents: impl Fn() -> Option<AlignedBuf>,
        load: impl Fn() -> Result<AlignedBuf>,
    ) -> Result<Arc<MetaBlock>> {
        loop {
            let block = self.entry(number, kind, &contents)?;
            let loaded = block.load(&load);
            if matches!(loaded, Ok(true)) {
                return Ok(block);
            }
            self.drop_failed(&block);
            // If another thread failed to load the block, this thread tries with a new entry.
            loaded?;
        }
    }

    /// Drops a freed block, so that its next owner does not find the old contents.
    pub(crate) fn forget(&self, number: FsBlock) {
        let freed = self.blocks.shard(number.get()).remove_if(number.get(), |_| true);
        if let Some(block) = freed {
            block.forget();
        }
    }

    /// Removes the entry of a block that could not be loaded. Its kind may have come from a corrupt
    /// structure.
    fn drop_failed(&self, block: &Arc<MetaBlock>) {
        let number = block.number().get();
        let failed = self.blocks.shard(number).remove_if(number, |entry| Arc::ptr_eq(entry, block));
        drop(failed);
    }

    fn entry(
        &self,
        number: FsBlock,
        kind: BlockKind,
        contents: impl FnOnce() -> Option<AlignedBuf>,
    ) -> Result<Arc<MetaBlock>> {
        if number.get() >= self.blocks_count {
            return Err(Error::corrupt(format_args!("{}: block {number} is out of range", kind.name())));
        }
        let block = {
            let mut shard = self.blocks.shard(number.get());
            if let Some(block) = self.blocks.get(&mut shard, number.get()) {
                return claimed_as(block, kind);
            }
            let charge = self.budget().charge(self.block_size + OVERHEAD);
            let block = Arc::new(MetaBlock::new(number, kind, contents(), charge));
            let replaced = self.blocks.insert(&mut shard, number.get(), Arc::clone(&block));
            debug_assert!(replaced.is_none());
            block
        };
        self.budget().make_room();
        Ok(block)
    }

    fn read_device(&self, number: FsBlock, kind: BlockKind) -> Result<AlignedBuf> {
        let mut bytes = AlignedBuf::zeroed(self.block_size);
        let offset = number.get() * self.block_size as u64;
        self.device
            .read_at(offset, &mut [IoSliceMut::new(&mut bytes)])
            .map_err(|e| Error::device(format_args!("reading {} {number}", kind.name()), e))?;
        kind.verify(number, &bytes).map_err(|error| error.in_block(number))?;
        Ok(bytes)
    }
}

impl Evict for MetaCache {
    fn oldest(&self) -> u64 {
        self.blocks.oldest()
    }

    fn skip(&self) {
        self.blocks.skip();
    }

    fn evict(&self) {
        // A thread acquires a new reference only under the lock of the shard, which this thread
        // holds.
        self.blocks.evict(|block| Arc::strong_count(block) == 1);
    }
}

/// Returns the block if it is of the kind that the caller expects.
fn claimed_as(block: &Arc<MetaBlock>, kind: BlockKind) -> Result<Arc<MetaBlock>> {
    if block.kind() == kind {
        return Ok(Arc::clone(block));
    }
    let (number, one, other) = (block.number(), block.kind().name(), kind.name());
    Err(Error::corrupt(format_args!("block {number} is claimed as {one} and as {other}")))
}
