//! Counts the space and the inodes of each user, group and project, for the comparison with the
//! quota files.
//!
//! Each thread counts the inodes of one group of the volume, and adds the sums to the sums of all
//! threads when the group ends. So memory follows the number of ids, whatever the number of
//! threads.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use parext4_format::inode::Inode;
use parext4_format::quota::QuotaKind;
use parext4_format::superblock::Superblock;
use parext4_format::{FormatError, InodeNo};

/// The largest number of ids that are counted, of all kinds together.
pub(crate) const MOST_IDS: usize = 1 << 23;

/// The space and the inodes that an id uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Space in blocks of the volume.
    pub blocks: u64,
    pub inodes: u64,
}

/// The usage of each id of one kind.
pub(crate) type Ids = HashMap<u32, Used>;

/// The usage of each kind, in the order of [`QuotaKind::ALL`].
#[derive(Default)]
pub(crate) struct Counts {
    pub ids: [Ids; 3],
}

impl Counts {
    fn add(&mut self, kind: usize, id: u32, used: Used) {
        let sum = self.ids[kind].entry(id).or_default();
        sum.blocks = sum.blocks.saturating_add(used.blocks);
        sum.inodes = sum.inodes.saturating_add(used.inodes);
    }
}

/// The quota files of a volume, and the usage that all threads have counted.
pub(crate) struct Usage {
    /// The inode of each quota file; an error if the superblock names an inode that cannot be one.
    pub files: [Result<Option<InodeNo>, FormatError>; 3],
    /// The usage of all threads; `None` if there are too many ids.
    total: Mutex<Option<Counts>>,
}

impl Usage {
    /// Returns empty usage. `None` if the volume has no quota files.
    pub(crate) fn new(sb: &Superblock) -> Option<Self> {
        let files = QuotaKind::ALL.map(|kind| sb.quota_inode(kind));
        let has_any = files.iter().any(|file| !matches!(file, Ok(None)));
        has_any.then(|| Self { files, total: Mutex::new(Some(Counts::default())) })
    }

    /// Adds the usage of an inode to its user, group and project.
    pub(crate) fn count(&self, counts: &mut Counts, inode: &Inode, used: Used) {
        for (kind, id) in [inode.uid, inode.gid, inode.projid].into_iter().enumerate() {
            if matches!(self.files[kind], Ok(Some(_))) {
                counts.add(kind, id, used);
            }
        }
    }

    /// Adds the counts of a thread for one group of the volume, and leaves `counts` empty.
    pub(crate) fn add(&self, counts: &mut Counts) {
        let mut locked = self.total.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, ids) in counts.ids.iter_mut().enumerate() {
            for (id, used) in ids.drain() {
                if let Some(total) = &mut *locked {
                    total.add(kind, id, used);
                }
            }
        }
        if locked.as_ref().is_some_and(|total| total.ids.iter().map(Ids::len).sum::<usize>() > MOST_IDS) {
            *locked = None;
        }
    }

    /// Returns the usage of all ids. `None` if there are more than [`MOST_IDS`].
    pub(crate) fn take(&self) -> Option<Counts> {
        self.total.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
