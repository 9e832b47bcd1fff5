//! The cache of metadata blocks: sharded, bounded, and the only way to a [`MetaBlock`].

use std::collections::HashMap;
use std::io::IoSliceMut;

use parext4_device::{AlignedBuf, Device};
use parext4_format::FsBlock;

use super::{BlockKind, MetaBlock};
use crate::error::{Error, Result};
use crate::lock_order::Rank;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Mutex};

const SHARDS: usize = 64;

/// The metadata blocks in memory. Blocks that somebody still holds are never dropped; others are, oldest
/// unused first, when a shard is over its share of the budget.
#[derive(Debug)]
pub(crate) struct MetaCache {
    device: Arc<dyn Device>,
    block_size: usize,
    blocks_count: u64,
    shard_capacity: usize,
    shards: Vec<Mutex<HashMap<u64, Arc<MetaBlock>>>>,
}

impl MetaCache {
    /// A cache over `device` that keeps about `budget` bytes.
    pub(crate) fn new(device: Arc<dyn Device>, block_size: u32, blocks_count: u64, budget: usize) -> Self {
        let block_size = block_size as usize;
        let shards = (0..SHARDS).map(|_| Mutex::new(Rank::Leaf, HashMap::new())).collect();
        let shard_capacity = (budget / block_size / SHARDS).max(4);
        Self { device, block_size, blocks_count, shard_capacity, shards }
    }

    /// The block, read from the device and verified if it was not in memory.
    pub(crate) fn read(&self, number: FsBlock, kind: BlockKind) -> Result<Arc<MetaBlock>> {
        let block = self.entry(number, kind, || None)?;
        block.load(|| self.read_device(number, kind)).inspect_err(|_| self.drop_failed(&block))?;
        Ok(block)
    }

    /// A zeroed block in memory in place of whatever the device holds there: for a block just allocated.
    pub(crate) fn create(&self, number: FsBlock, kind: BlockKind) -> Result<Arc<MetaBlock>> {
        let zeroed = || Some(AlignedBuf::zeroed(self.block_size));
        let block = self.entry(number, kind, zeroed)?;
        block.load(|| Ok(AlignedBuf::zeroed(self.block_size)))?;
        Ok(block)
    }

    /// Drops a freed block, so that its next owner starts afresh.
    pub(crate) fn forget(&self, number: FsBlock) {
        if let Some(block) = self.shard(number).lock().remove(&number.get()) {
            block.forget();
        }
    }

    /// Takes out an entry that could not be loaded: its kind may have been a corrupt claim.
    fn drop_failed(&self, block: &Arc<MetaBlock>) {
        let mut shard = self.shard(block.number()).lock();
        if shard.get(&block.number().get()).is_some_and(|entry| Arc::ptr_eq(entry, block)) {
            shard.remove(&block.number().get());
        }
    }

    fn shard(&self, number: FsBlock) -> &Mutex<HashMap<u64, Arc<MetaBlock>>> {
        // Neighbouring blocks go to different shards.
        let index = usize::try_from(number.get() % SHARDS as u64).unwrap_or(0);
        &self.shards[index]
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
        let mut shard = self.shard(number).lock();
        if let Some(block) = shard.get(&number.get()) {
            if block.kind() != kind {
                let (one, other) = (block.kind().name(), kind.name());
                return Err(Error::corrupt(format_args!(
                    "block {number} is claimed as {one} and as {other}"
                )));
            }
            block.used.store(true, Ordering::Relaxed);
            return Ok(Arc::clone(block));
        }
        if shard.len() >= self.shard_capacity {
            shrink(&mut shard);
        }
        let block = Arc::new(MetaBlock::new(number, kind, contents()));
        shard.insert(number.get(), Arc::clone(&block));
        Ok(block)
    }

    fn read_device(&self, number: FsBlock, kind: BlockKind) -> Result<AlignedBuf> {
        let mut bytes = AlignedBuf::zeroed(self.block_size);
        let offset = number.get() * self.block_size as u64;
        self.device
            .read_at(offset, &mut [IoSliceMut::new(&mut bytes)])
            .map_err(|e| Error::device(format_args!("reading {} {number}", kind.name()), e))?;
        kind.verify(number, &bytes).map_err(|e| match e {
            Error::Corrupt(text) => Error::Corrupt(format!("{} {number}: {text}", kind.name())),
            other => other,
        })?;
        Ok(bytes)
    }
}

/// One turn of the clock: drops blocks that nobody holds and that were not used since the last turn.
fn shrink(shard: &mut HashMap<u64, Arc<MetaBlock>>) {
    shard.retain(|_, block| {
        // Whoever takes a reference does so under the shard's lock, which is held here.
        Arc::strong_count(block) > 1 || block.used.swap(false, Ordering::Relaxed)
    });
}
