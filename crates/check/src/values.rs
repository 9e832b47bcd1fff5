//! Inodes that hold values of attributes (feature `ea_inode`): each entry must lead to such an
//! inode, and each such inode counts the entries that refer to it.
//!
//! The values are read before the pass over the inodes, because an entry may refer to an inode of
//! any group. That pass counts the references, and [`Values::check_references`] compares them with
//! the stored ones.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use parext4_format::features::Incompat;
use parext4_format::inode::{Inode, InodeFlags, Timestamp};
use parext4_format::{FormatError, InodeNo};

use crate::problem::{
    PR_1_ATTR_HASH, PR_1_ATTR_NO_EA_INODE_FL, PR_1_ATTR_SET_EA_INODE_FL, PR_1_ATTR_VALUE_EA_INODE,
    PR_4_BAD_REF_COUNT, PR_4_EA_INODE_REF_COUNT, PR_4_UNATTACHED_INODE, Problem,
};
use crate::scan::{self, for_each_inode};
use crate::usage::Used;
use crate::volume::Volume;
use crate::xattrs::Entry;

/// An inode that holds a value.
struct Value {
    size: u64,
    hash: u32,
    generation: u32,
    /// `i_mtime`. In a volume of Lustre, it is the number of the inode with the attribute.
    mtime: u32,
    links: u16,
    /// The stored number of references; `None` in a volume of Lustre, which stores none.
    stored: Option<u64>,
    /// The entries found that refer to the value.
    references: AtomicU64,
}

impl Value {
    fn new(inode: &Inode) -> Self {
        let has_count = seconds(inode.ctime) != seconds(inode.atime);
        Self {
            size: inode.size,
            hash: inode.value_hash(),
            generation: inode.generation,
            mtime: seconds(inode.mtime),
            links: inode.links,
            stored: has_count.then(|| inode.value_references()),
            references: AtomicU64::new(0),
        }
    }

    fn fits_hash(&self, entry: &Entry<'_>) -> bool {
        entry.has_hash_of(&self.hash.to_le_bytes())
    }

    /// Returns true if Lustre stored the value of this entry: it hashes no values, and the inode of
    /// the value names the inode with the attribute.
    fn is_of_lustre(&self, ino: InodeNo, inode: &Inode, entry: &Entry<'_>) -> bool {
        (self.mtime, self.generation) == (ino.get(), inode.generation) && !self.fits_hash(entry)
    }
}

/// Returns the field of a time without its extra bits.
#[expect(clippy::cast_possible_truncation, reason = "the field has the lower 32 bits")]
fn seconds(time: Timestamp) -> u32 {
    time.seconds as u32
}

/// Reads an inode in use that may hold a value although it lacks the flag of such inodes.
fn unmarked(volume: &Volume<'_>, number: u32) -> Option<Value> {
    let is_possible = volume.has(Incompat::EA_INODE) && number >= volume.sb.first_inode();
    let bytes = volume.inode_bytes(number, &mut volume.buffer(1)).filter(|_| is_possible)?;
    scan::parse(volume, InodeNo(number), &bytes).map(|inode| Value::new(&inode))
}

/// The inodes of all values, by number.
pub(crate) struct Values(HashMap<u32, Value>);

impl Values {
    /// Reads the inodes of all values. A volume without the feature has none.
    pub(crate) fn read(volume: &Volume<'_>, threads: usize) -> Self {
        let values = Mutex::new(HashMap::new());
        if volume.has(Incompat::EA_INODE) {
            for_each_inode(volume, threads, &|ino, inode| {
                if inode.flags.contains(InodeFlags::EA_INODE) && !volume.is_hidden(ino.get()) {
                    let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
                    values.insert(ino.get(), Value::new(inode));
                }
            });
        }
        Self(values.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts the reference of an entry of inode `ino`.
    ///
    /// # Errors
    /// Names the field in which the entry disagrees with the inode of its value, and the problems.
    pub(crate) fn refer(
        &self,
        volume: &Volume<'_>,
        ino: InodeNo,
        inode: &Inode,
        entry: &Entry<'_>,
    ) -> Result<(), (FormatError, &'static [Problem])> {
        let fail = |field, problem: String, e2fsck| Err((FormatError::new("xattr", field, problem), e2fsck));
        let number = entry.value_inode;
        let Some(value) = self.0.get(&number) else {
            let is_unmarked = unmarked(volume, number).is_some_and(|value| value.fits_hash(entry));
            // e2fsck offers to set the flag, and if that is declined, to remove the entry.
            let problems: &[Problem] = match is_unmarked {
                true => &[PR_1_ATTR_SET_EA_INODE_FL, PR_1_ATTR_NO_EA_INODE_FL],
                false => &[PR_1_ATTR_VALUE_EA_INODE],
            };
            return fail("e_value_inum", format!("inode {number} holds no value"), problems);
        };
        value.references.fetch_add(1, Ordering::Relaxed);
        if u64::from(entry.value_size) != value.size {
            let problem = format!("{}, but inode {number} has {} bytes", entry.value_size, value.size);
            return fail("e_value_size", problem, &[PR_1_ATTR_VALUE_EA_INODE]);
        }
        if !value.fits_hash(entry) && !value.is_of_lustre(ino, inode, entry) {
            return fail("e_hash", format!("{:#x}", entry.hash), &[PR_1_ATTR_HASH]);
        }
        Ok(())
    }

    /// Compares the references found with the stored counts. A value without links is an orphan,
    /// and may have none.
    pub(crate) fn check_references(&self, volume: &Volume<'_>) {
        // Sorts the values, because only the first findings are kept.
        let mut values: Vec<_> = self.0.iter().filter(|(_, value)| value.links != 0).collect();
        values.sort_unstable_by_key(|&(&ino, _)| ino);
        for (&ino, value) in values {
            let references = value.references.load(Ordering::Relaxed);
            let fail = |field, problem: String, e2fsck: Problem| {
                volume.report(FormatError::new("value inode", field, problem).of_inode(InodeNo(ino)), e2fsck);
            };
            if references == 0 {
                fail("i_version", "no attribute has the value".to_owned(), PR_4_UNATTACHED_INODE);
                continue;
            }
            if value.links != 1 {
                fail("i_links_count", format!("{} of a value", value.links), PR_4_BAD_REF_COUNT);
            }
            if let Some(stored) = value.stored.filter(|&stored| stored != references) {
                let problem = format!("{stored}, but {references} attributes have the value");
                fail("i_version", problem, PR_4_EA_INODE_REF_COUNT);
            }
        }
    }

    /// Returns the usage that the values of `entries` add to an inode with these entries: one inode
    /// for each, and its space in whole clusters. The space of a value of Lustre does not count.
    pub(crate) fn charge(
        &self,
        volume: &Volume<'_>,
        ino: InodeNo,
        inode: &Inode,
        entries: &[Entry<'_>],
    ) -> Used {
        let cluster_blocks = 1 << volume.sb.cluster_bits();
        let cluster = cluster_blocks * volume.block_size as u64;
        let is_charged = |entry: &&Entry<'_>| {
            self.0.get(&entry.value_inode).is_none_or(|value| !value.is_of_lustre(ino, inode, entry))
        };
        let charged = entries.iter().filter(is_charged);
        let clusters: u64 = charged.map(|entry| u64::from(entry.value_size).div_ceil(cluster)).sum();
        Used { blocks: clusters * cluster_blocks, inodes: entries.len() as u64 }
    }
}
