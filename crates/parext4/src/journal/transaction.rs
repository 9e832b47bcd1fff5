//! The contents of the running transaction: blocks to write, objects to encode, blocks to free and
//! to revoke.
//!
//! The module `gate` decides when a transaction closes, and `log` writes it. Invariant: a frozen
//! block does not change any more, because its contents are copied on the next write.

use parext4_device::AlignedBuf;
use parext4_format::FsBlock;

use crate::error::Result;
use crate::meta::MetaBlock;
use crate::stripes::Padded;
use crate::sync::Rank;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex};

/// Number of participants from which on a transaction is committed before new handles enter: no
/// handle can enter while the participants are encoded, which takes about 1 µs each.
pub(super) const MAX_PARTICIPANTS: usize = 8 << 10;

/// An object whose authoritative state is in memory. It is encoded into its blocks once a
/// transaction, at the close.
///
/// Code that changes such an object under a handle registers the blocks that `encode` will write.
pub(crate) trait Participant: Send + Sync + std::fmt::Debug {
    /// Encodes the object into its blocks. No handle is open meanwhile, so the object does not
    /// change.
    ///
    /// # Errors
    /// Fails only if the volume is corrupt. The transaction is then lost and the volume stops.
    fn encode(&self) -> Result<()>;

    /// Returns the field in which the object stores the number of the last transaction that it
    /// joined.
    fn joined(&self) -> &AtomicU64;
}

/// Blocks that a transaction frees. They may be allocated again once it is durable (I7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Freed {
    pub start: FsBlock,
    pub len: u32,
}

/// The running transaction. [`freeze`](Self::freeze) empties it for the next one.
#[derive(Debug)]
pub(super) struct Transaction {
    contents: Mutex<TransactionContents>,
    /// The number of participants in `contents`.
    participants: Padded<AtomicUsize>,
}

#[derive(Debug, Default)]
struct TransactionContents {
    blocks: Vec<Arc<MetaBlock>>,
    participants: Vec<Arc<dyn Participant>>,
    freed: Vec<Freed>,
    revoked: Vec<FsBlock>,
}

/// A closed transaction: the versions of its blocks that are written to the log.
#[derive(Debug)]
pub(super) struct FrozenTransaction {
    pub tid: u64,
    pub blocks: Vec<FrozenBlock>,
    pub freed: Vec<Freed>,
    pub revoked: Vec<FsBlock>,
    /// The objects that were encoded.
    pub encoded: Vec<Arc<dyn Participant>>,
}

#[derive(Clone, Debug)]
pub(super) struct FrozenBlock {
    /// The block, which this reference keeps in the metadata cache until it is at its home
    /// location.
    pub block: Arc<MetaBlock>,
    pub bytes: Arc<AlignedBuf>,
}

impl Transaction {
    pub(super) fn new() -> Self {
        let contents = Mutex::new(Rank::Transaction, TransactionContents::default());
        Self { contents, participants: Padded(AtomicUsize::new(0)) }
    }

    /// Returns true if the transaction has [`MAX_PARTICIPANTS`] or more. Open handles may still add
    /// participants.
    pub(super) fn is_crowded(&self) -> bool {
        self.participants.0.load(Ordering::Relaxed) >= MAX_PARTICIPANTS
    }

    pub(super) fn is_empty(&self) -> bool {
        let contents = self.contents.lock();
        contents.blocks.is_empty() && contents.freed.is_empty() && contents.revoked.is_empty()
    }

    pub(super) fn add_block(&self, block: &Arc<MetaBlock>) {
        self.contents.lock().blocks.push(Arc::clone(block));
    }

    pub(super) fn add_participant(&self, participant: Arc<dyn Participant>) {
        let mut contents = self.contents.lock();
        contents.participants.push(participant);
        self.participants.0.store(contents.participants.len(), Ordering::Relaxed);
    }

    pub(super) fn add_freed(&self, freed: Freed) {
        self.contents.lock().freed.push(freed);
    }

    /// Adds a revoked block. Returns the number of blocks that the transaction revokes.
    pub(super) fn add_revoked(&self, block: FsBlock) -> usize {
        let mut contents = self.contents.lock();
        contents.revoked.push(block);
        contents.revoked.len()
    }

    /// Keeps the blocks of a transaction that could not be committed in memory, until the volume is
    /// closed.
    pub(super) fn keep_in_memory(&self, blocks: &[FrozenBlock]) {
        let blocks = blocks.iter().map(|frozen| Arc::clone(&frozen.block));
        self.contents.lock().blocks.extend(blocks);
    }

    /// Encodes every participant, freezes every block, and returns them as transaction `tid`. The
    /// caller has closed the gate, so no handle is open.
    pub(super) fn freeze(&self, tid: u64) -> Result<FrozenTransaction> {
        let contents = std::mem::take(&mut *self.contents.lock());
        self.participants.0.store(0, Ordering::Relaxed);
        let TransactionContents { blocks, participants, freed, mut revoked } = contents;
        for participant in &participants {
            participant.encode()?;
        }
        let mut blocks: Vec<FrozenBlock> = blocks
            .into_iter()
            .filter(|block| !block.is_forgotten())
            .map(|block| FrozenBlock { bytes: block.freeze(), block })
            .collect();
        blocks.sort_unstable_by_key(|frozen| frozen.block.number());
        // A block that was revoked and then used again has new contents in this transaction, which
        // a revocation would hide from the replay.
        let is_logged =
            |number: &FsBlock| blocks.binary_search_by_key(number, |frozen| frozen.block.number()).is_ok();
        revoked.retain(|number| !is_logged(number));
        Ok(FrozenTransaction { tid, blocks, freed, revoked, encoded: participants })
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use parext4_device::MemDevice;

    use super::*;
    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::volume::{Volume, VolumeOptions};

    #[test]
    fn a_transaction_has_a_limited_number_of_participants() {
        let device = Arc::new(MemDevice::new(256 << 20));
        mkfs(&*device, &MkfsOptions::new().block_size(4096).inodes(32 << 10).journal_blocks(16 << 10))
            .unwrap();
        let volume = Volume::open_device(device, &VolumeOptions::new().commit_interval(None)).unwrap();
        let journal = volume.engine.journal();
        let before = journal.commits();
        let files = 2 * MAX_PARTICIPANTS;
        for nth in 0..files {
            volume.write(format!("/{nth}"), "").unwrap();
            // Of one operation, over the limit: the file and its directory.
            assert!(journal.running.participants.0.load(Ordering::Relaxed) <= MAX_PARTICIPANTS + 2);
        }
        assert_eq!(journal.commits() - before, 2, "other limits are larger");
    }
}
