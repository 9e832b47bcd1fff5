//! One metadata block in memory: copy-on-write contents and their registration in a transaction.
//!
//! The module `cache` provides the contents, and `kind` seals them. Invariant: contents change from
//! missing to loaded or failed once, and a failed block is never used.

use parext4_device::AlignedBuf;
use parext4_format::FsBlock;

use super::BlockKind;
use crate::error::Result;
use crate::memory::Charge;
use crate::sync::Rank;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, RwLock};

/// A metadata block. Its contents are copy-on-write: a reader or the commit keeps the version that
/// it has read.
#[derive(Debug)]
pub(crate) struct MetaBlock {
    number: FsBlock,
    kind: BlockKind,
    contents: RwLock<BlockContents>,
    /// The last transaction in which this block was registered (`journal::Handle::register`).
    registered: AtomicU64,
    /// True if the block was freed. The transaction in which it is registered must not write it.
    forgotten: AtomicBool,
    _charge: Charge,
}

/// The contents of a block.
#[derive(Debug)]
enum BlockContents {
    /// The first reader has not loaded the contents from the device yet.
    Missing,
    Loaded(Arc<AlignedBuf>),
    /// The contents could not be loaded. This is final: the cache makes another block for the
    /// number.
    Failed,
}

impl BlockContents {
    fn loaded(&mut self) -> &mut Arc<AlignedBuf> {
        match self {
            Self::Loaded(bytes) => bytes,
            _ => unreachable!("{NOT_LOADED}"),
        }
    }
}

const NOT_LOADED: &str = "the cache hands out loaded blocks only";

impl MetaBlock {
    pub(super) fn new(number: FsBlock, kind: BlockKind, bytes: Option<AlignedBuf>, charge: Charge) -> Self {
        Self {
            number,
            kind,
            contents: RwLock::new(
                Rank::MetaBlock,
                bytes.map_or(BlockContents::Missing, |bytes| BlockContents::Loaded(Arc::new(bytes))),
            ),
            registered: AtomicU64::new(0),
            forgotten: AtomicBool::new(false),
            _charge: charge,
        }
    }

    pub(crate) fn number(&self) -> FsBlock {
        self.number
    }

    pub(crate) fn kind(&self) -> BlockKind {
        self.kind
    }

    /// Returns the current contents. Later changes do not affect the returned version.
    pub(crate) fn snapshot(&self) -> Arc<AlignedBuf> {
        match &*self.contents.read() {
            BlockContents::Loaded(bytes) => Arc::clone(bytes),
            _ => unreachable!("{NOT_LOADED}"),
        }
    }

    /// Loads the contents with `read` unless they are loaded. Blocks while another thread loads
    /// them. Returns false if that thread failed: the caller must not use the block, because the
    /// cache replaces it.
    ///
    /// # Errors
    /// The error of `read`. The block then stays without contents for good.
    pub(super) fn load(&self, read: impl FnOnce() -> Result<AlignedBuf>) -> Result<bool> {
        if matches!(*self.contents.read(), BlockContents::Loaded(_)) {
            return Ok(true);
        }
        let mut contents = self.contents.write();
        if matches!(*contents, BlockContents::Missing) {
            *contents = BlockContents::Failed;
            *contents = BlockContents::Loaded(Arc::new(read()?));
        }
        Ok(matches!(*contents, BlockContents::Loaded(_)))
    }

    /// Changes the contents. Only a journal handle calls this, after it has registered the block.
    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        f(&mut Arc::make_mut(self.contents.write().loaded())[..])
    }

    /// Writes the checksum and returns the version that the commit writes.
    pub(crate) fn freeze(&self) -> Arc<AlignedBuf> {
        let mut contents = self.contents.write();
        let bytes = contents.loaded();
        self.kind.seal(self.number, &mut Arc::make_mut(bytes)[..]);
        Arc::clone(bytes)
    }

    /// Registers the block in transaction `tid`. Returns false if it was registered there already.
    ///
    /// A load comes before the swap, so that threads which change one block repeatedly share its
    /// cache line. Relaxed suffices: dependent accesses are ordered by the lock of the
    /// transaction's list, and only one transaction runs at a time.
    pub(crate) fn register_in(&self, tid: u64) -> bool {
        self.registered.load(Ordering::Relaxed) != tid && self.registered.swap(tid, Ordering::Relaxed) != tid
    }

    /// Marks the block as freed, so that no transaction writes it.
    pub(crate) fn forget(&self) {
        self.forgotten.store(true, Ordering::Release);
    }

    /// Returns true if the block was freed. The load pairs with the store in `forget`.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.forgotten.load(Ordering::Acquire)
    }
}
