//! One quota file in memory: the places of its entries, and the entries in use.

use std::collections::HashMap;
use std::sync::Weak;

use parext4_format::quota::entry::QuotaEntry;
use parext4_format::quota::{QuotaHeader, QuotaKind};
use parext4_format::{FsBlock, InodeNo};

use super::rules::Rules;
use super::{Amount, Dquot};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::meta::{BlockKind, MetaCache};
use crate::sync::{Arc, Mutex, MutexGuard, Rank};

/// Number of entries in memory up to which the map keeps entries that are not in use.
const MIN_SWEEP: usize = 1024;

/// The location of an entry on the volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryLocation {
    pub block: FsBlock,
    /// The offset in the block, in bytes.
    pub offset: usize,
}

/// One quota file.
#[derive(Debug)]
pub(crate) struct QuotaTable {
    ino: InodeNo,
    rules: Arc<Rules>,
    /// The header as it is on the volume. It is locked while an entry is added.
    header: Mutex<QuotaHeader>,
    places: Mutex<HashMap<u32, EntryLocation>>,
    in_use: Mutex<InUse>,
}

/// The entries in memory. An entry without users is encoded in its block.
#[derive(Debug)]
struct InUse {
    dquots: HashMap<u32, Weak<Dquot>>,
    sweep_at: usize,
}

impl QuotaTable {
    pub(crate) fn new(
        kind: QuotaKind,
        ino: InodeNo,
        header: QuotaHeader,
        places: HashMap<u32, EntryLocation>,
        enforced: bool,
        clock: Clock,
    ) -> Self {
        let rules = Rules::new(kind, enforced, clock);
        rules.note_graces(&header);
        Self {
            ino,
            rules: Arc::new(rules),
            header: Mutex::new(Rank::QuotaFile, header),
            places: Mutex::new(Rank::Leaf, places),
            in_use: Mutex::new(Rank::Dquots, InUse { dquots: HashMap::new(), sweep_at: MIN_SWEEP }),
        }
    }

    pub(crate) fn kind(&self) -> QuotaKind {
        self.rules.kind
    }

    /// Returns true if limits are enforced.
    pub(crate) fn is_enforced(&self) -> bool {
        self.rules.enforced
    }

    /// Returns the inode of the file.
    pub(crate) fn ino(&self) -> InodeNo {
        self.ino
    }

    /// Locks the header, to add an entry or to change the header.
    pub(crate) fn lock_header(&self) -> MutexGuard<'_, QuotaHeader> {
        self.header.lock()
    }

    /// Sets the times for which soft limits may be exceeded, from a header that the caller is
    /// writing.
    pub(crate) fn note_graces(&self, header: &QuotaHeader) {
        self.rules.note_graces(header);
    }

    /// Records the location of an entry that was added.
    pub(crate) fn note(&self, id: u32, location: EntryLocation) {
        self.places.lock().insert(id, location);
    }

    /// Returns true if the file has an entry of `id`.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.places.lock().contains_key(&id)
    }

    /// Returns all ids, in ascending order.
    pub(crate) fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.places.lock().keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the reserved amount of all ids.
    pub(super) fn reserved(&self) -> Amount {
        let in_use = self.in_use.lock();
        in_use.dquots.values().filter_map(Weak::upgrade).map(|dquot| dquot.reserved()).sum()
    }

    /// Returns the entry of `id`, if the file has one.
    ///
    /// # Errors
    /// A failed read; corruption.
    pub(crate) fn dquot(&self, id: u32, cache: &MetaCache) -> Result<Option<Arc<Dquot>>> {
        let Some(EntryLocation { block, offset }) = self.places.lock().get(&id).copied() else {
            return Ok(None);
        };
        let block = cache.read(block, BlockKind::Quota(self.ino))?;
        // The contents are read under the lock, because an entry that another thread has just
        // stopped using is encoded in them.
        let mut in_use = self.in_use.lock();
        if let Some(dquot) = in_use.dquots.get(&id).and_then(Weak::upgrade) {
            return Ok(Some(dquot));
        }
        let entry = QuotaEntry::parse(block.snapshot().get(offset..).unwrap_or_default());
        let Some(entry) = entry.filter(|entry| entry.id == id) else {
            return Err(Error::corrupt(format_args!(
                "quota file {}: the entry of id {id} is lost",
                self.ino
            )));
        };
        let dquot = Arc::new(Dquot::new(&self.rules, block, offset, &entry));
        if in_use.dquots.len() >= in_use.sweep_at {
            in_use.dquots.retain(|_, dquot| dquot.strong_count() > 0);
            in_use.sweep_at = (2 * in_use.dquots.len()).max(MIN_SWEEP);
        }
        in_use.dquots.insert(id, Arc::downgrade(&dquot));
        Ok(Some(dquot))
    }
}
