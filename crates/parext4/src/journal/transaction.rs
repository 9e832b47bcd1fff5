//! The running transaction: the blocks it will write, the objects it must encode, the blocks it frees.

use parext4_device::AlignedBuf;
use parext4_format::FsBlock;

use crate::error::Result;
use crate::lock_order::Rank;
use crate::meta::MetaBlock;
use crate::sync::atomic::AtomicU64;
use crate::sync::{Arc, Mutex};

/// Something whose memory is the truth and whose blocks are encoded once, when the transaction closes.
///
/// Whoever changes it inside a handle registers the blocks that `encode` will write.
pub(crate) trait Participant: Send + Sync + std::fmt::Debug {
    /// Writes the object into its blocks. No handle is open meanwhile, so it is at rest.
    ///
    /// # Errors
    /// Only on a broken volume; the transaction is then lost and the volume stops.
    fn encode(&self) -> Result<()>;

    /// Where the object notes the last transaction that it joined.
    fn joined(&self) -> &AtomicU64;
}

/// Blocks given back by a transaction, to be reused once it is durable (I7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Freed {
    pub start: FsBlock,
    pub len: u32,
}

/// What the running transaction holds. Closing it leaves this empty for the next.
#[derive(Debug)]
pub(super) struct Transaction {
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    blocks: Vec<Arc<MetaBlock>>,
    participants: Vec<Arc<dyn Participant>>,
    freed: Vec<Freed>,
    revoked: Vec<FsBlock>,
}

/// A transaction at rest: the versions of its blocks that go to the log.
#[derive(Debug)]
pub(super) struct Frozen {
    pub tid: u64,
    pub blocks: Vec<FrozenBlock>,
    pub freed: Vec<Freed>,
    pub revoked: Vec<FsBlock>,
}

#[derive(Clone, Debug)]
pub(super) struct FrozenBlock {
    /// Held so that the cache keeps the block until it is at home.
    pub block: Arc<MetaBlock>,
    pub bytes: Arc<AlignedBuf>,
}

impl Transaction {
    pub(super) fn new() -> Self {
        Self { lists: Mutex::new(Rank::Transaction, Lists::default()) }
    }

    pub(super) fn is_empty(&self) -> bool {
        let lists = self.lists.lock();
        lists.blocks.is_empty() && lists.freed.is_empty() && lists.revoked.is_empty()
    }

    pub(super) fn add_block(&self, block: &Arc<MetaBlock>) {
        self.lists.lock().blocks.push(Arc::clone(block));
    }

    pub(super) fn add_participant(&self, participant: Arc<dyn Participant>) {
        self.lists.lock().participants.push(participant);
    }

    pub(super) fn add_freed(&self, freed: Freed) {
        self.lists.lock().freed.push(freed);
    }

    /// Returns how many blocks the transaction revokes now.
    pub(super) fn add_revoked(&self, block: FsBlock) -> usize {
        let mut lists = self.lists.lock();
        lists.revoked.push(block);
        lists.revoked.len()
    }

    /// Encodes every participant and freezes every block, as transaction `tid`. The journal has seen to it that
    /// no handle is open.
    pub(super) fn freeze(&self, tid: u64) -> Result<Frozen> {
        let lists = std::mem::take(&mut *self.lists.lock());
        for participant in &lists.participants {
            participant.encode()?;
        }
        let mut blocks: Vec<FrozenBlock> = lists
            .blocks
            .into_iter()
            .filter(|block| !block.is_forgotten())
            .map(|block| FrozenBlock { bytes: block.freeze(), block })
            .collect();
        blocks.sort_unstable_by_key(|frozen| frozen.block.number());
        Ok(Frozen { tid, blocks, freed: lists.freed, revoked: lists.revoked })
    }
}
