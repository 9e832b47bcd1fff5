//! One metadata block in memory.

use parext4_device::AlignedBuf;
use parext4_format::FsBlock;

use super::BlockKind;
use crate::error::Result;
use crate::lock_order::Rank;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, RwLock};

/// A metadata block. Its contents are copy-on-write: a reader or the commit keeps the version it took.
#[derive(Debug)]
pub(crate) struct MetaBlock {
    number: FsBlock,
    kind: BlockKind,
    /// `None` until the first reader has loaded it from the device.
    bytes: RwLock<Option<Arc<AlignedBuf>>>,
    /// The transaction this block was last registered in; see `journal::Handle::register`.
    registered: AtomicU64,
    /// The block was freed: the transaction it is registered in must not write it.
    forgotten: AtomicBool,
    /// Used since the cache last looked for something to drop.
    pub(super) used: AtomicBool,
}

impl MetaBlock {
    pub(super) fn new(number: FsBlock, kind: BlockKind, bytes: Option<AlignedBuf>) -> Self {
        Self {
            number,
            kind,
            bytes: RwLock::new(Rank::MetaBlock, bytes.map(Arc::new)),
            registered: AtomicU64::new(0),
            forgotten: AtomicBool::new(false),
            used: AtomicBool::new(true),
        }
    }

    pub(crate) fn number(&self) -> FsBlock {
        self.number
    }

    pub(crate) fn kind(&self) -> BlockKind {
        self.kind
    }

    /// The contents as they are now; later changes do not show in what is returned.
    pub(crate) fn snapshot(&self) -> Arc<AlignedBuf> {
        self.bytes.read().clone().expect("the cache hands out loaded blocks only")
    }

    /// Loads the contents with `read` if nobody has yet; a failed read leaves the block to the next caller.
    pub(super) fn load(&self, read: impl FnOnce() -> Result<AlignedBuf>) -> Result<()> {
        if self.bytes.read().is_some() {
            return Ok(());
        }
        let mut bytes = self.bytes.write();
        if bytes.is_none() {
            *bytes = Some(Arc::new(read()?));
        }
        Ok(())
    }

    /// Changes the contents. Only a journal handle calls this, after it has registered the block.
    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut bytes = self.bytes.write();
        let bytes = bytes.as_mut().expect("the cache hands out loaded blocks only");
        f(&mut Arc::make_mut(bytes)[..])
    }

    /// Seals the checksum and returns the version that the commit writes.
    pub(crate) fn freeze(&self) -> Arc<AlignedBuf> {
        let mut bytes = self.bytes.write();
        let bytes = bytes.as_mut().expect("a registered block is loaded");
        self.kind.seal(self.number, &mut Arc::make_mut(bytes)[..]);
        Arc::clone(bytes)
    }

    /// Notes that transaction `tid` will write this block; says whether it did not know it yet.
    ///
    /// Looks first, so that those who change one block again and again share the line that says so.
    /// Relaxed: the transaction's list, which is behind a lock, orders what follows from it; and one
    /// transaction runs at a time.
    pub(crate) fn register_in(&self, tid: u64) -> bool {
        self.registered.load(Ordering::Relaxed) != tid && self.registered.swap(tid, Ordering::Relaxed) != tid
    }

    /// Marks the block as freed, so that no transaction writes it any more.
    pub(crate) fn forget(&self) {
        self.forgotten.store(true, Ordering::Release);
    }

    /// Whether the block was freed since it was registered. Pairs with the store in `forget`.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.forgotten.load(Ordering::Acquire)
    }
}
