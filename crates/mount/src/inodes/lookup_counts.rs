//! Counts the look-ups of each inode of which the kernel was told.
//!
//! The kernel may know every inode of the volume, so an entry is a number and two counts, and pins
//! no inode: the volume reads an inode again when a request names it ([`Volume::inode_ref`]). The
//! exception is an inode that has lost its last name. Only a [`InodeRef`] keeps the volume from
//! deleting it, so its entry holds one until the kernel forgets the inode.
//!
//! Invariant: an unlinked inode that the kernel knows is pinned. No scan is needed for it:
//!
//! 1. A request that removes a name calls [`pin_unlinked`](LookupCounts::pin_unlinked) while it
//!    holds a `InodeRef`.
//! 2. A request that tells the kernel of an inode calls
//!    [`count_lookup`](LookupCounts::count_lookup) while it holds one.
//! 3. Both read the link count and change the entry under the lock of the same shard. So the later
//!    of the two sees the effect of the earlier.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use fuser::INodeNo;
use parext4::server::ServerInode;
use parext4::{InodeId, InodeNo, InodeRef, Volume};
use parext4_sync::Mutex;

use crate::kernel_cache::KernelPages;
use crate::protocol::{Failure, Outcome};

const SHARDS: usize = 64;

/// An inode that the kernel knows.
#[derive(Debug)]
struct KnownInode {
    /// The kernel's pages; set once the file was opened.
    pages: Option<Arc<KernelPages>>,
    lookups: u64,
    /// The generation; `None` if the kernel was told only of the number, see
    /// [`LookupCounts::count_refused`].
    generation: Option<u32>,
    /// Reference to an inode without names, which keeps the volume from deleting it.
    unlinked: Option<Box<InodeRef>>,
}

/// All inodes that the kernel may name in a request.
#[derive(Debug)]
pub(crate) struct LookupCounts {
    shards: Vec<Mutex<HashMap<u64, KnownInode>>>,
    /// True if writes stay in the kernel's page cache (`cache=writeback`).
    writeback: bool,
}

impl LookupCounts {
    pub fn new(writeback: bool) -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), writeback }
    }

    fn shard(&self, ino: u64) -> &Mutex<HashMap<u64, KnownInode>> {
        &self.shards[usize::try_from(ino % SHARDS as u64).unwrap_or(0)]
    }

    /// Returns the inode that a request names, except for the root, which the kernel never forgets.
    /// The kernel forgets an inode only after its last request is answered.
    pub fn inode_ref(&self, volume: &Volume, ino: INodeNo) -> Outcome<InodeRef> {
        let generation = {
            let shard = self.shard(ino.0).lock();
            match shard.get(&ino.0).ok_or(Failure::STALE)? {
                KnownInode { unlinked: Some(node), .. } => return Ok(InodeRef::clone(node)),
                KnownInode { generation, .. } => generation.ok_or(Failure::STALE)?,
            }
        };
        let ino = InodeNo(u32::try_from(ino.0).map_err(|_| Failure::STALE)?);
        volume.inode_ref(InodeId { ino, generation }).map_err(Failure::of_number)
    }

    /// Returns the record of the kernel's pages of a file that a request names.
    pub fn kernel_pages(&self, ino: INodeNo) -> Outcome<Arc<KernelPages>> {
        let mut shard = self.shard(ino.0).lock();
        let known = shard.get_mut(&ino.0).ok_or(Failure::STALE)?;
        let new = || Arc::new(KernelPages::new(ino, self.writeback));
        Ok(Arc::clone(known.pages.get_or_insert_with(new)))
    }

    /// Counts a look-up of which the kernel is told. Replaces the entry of an older inode with the
    /// same number. The kernel returns the look-ups of both inodes by the number, so the count
    /// includes both.
    pub fn count_lookup(&self, node: &InodeRef) {
        let InodeId { ino, generation } = node.id();
        let ino = u64::from(ino.get());
        let mut shard = self.shard(ino).lock();
        let replaced = match shard.get_mut(&ino) {
            Some(known) if known.generation == Some(generation) => {
                known.lookups += 1;
                None
            }
            other => {
                let lookups = other.map_or(0, |known| known.lookups) + 1;
                let unlinked = has_no_name(node).then(|| Box::new(node.clone().departing()));
                let generation = Some(generation);
                shard.insert(ino, KnownInode { lookups, generation, pages: None, unlinked })
            }
        };
        drop(shard);
        drop(replaced);
    }

    /// Counts a look-up of an inode that the kernel does not link to its name. The kernel returns
    /// the look-up later.
    pub fn count_refused(&self, ino: InodeNo) {
        let ino = u64::from(ino.get());
        let mut shard = self.shard(ino).lock();
        let number = KnownInode { pages: None, lookups: 0, generation: None, unlinked: None };
        shard.entry(ino).or_insert(number).lookups += 1;
    }

    /// Pins an inode that the kernel knows until the kernel forgets it, if the inode has no name
    /// left.
    pub fn pin_unlinked(&self, node: &InodeRef) {
        let ino = u64::from(node.ino().get());
        let mut shard = self.shard(ino).lock();
        if let Some(known) = shard.get_mut(&ino)
            && known.unlinked.is_none()
            && has_no_name(node)
        {
            known.unlinked = Some(Box::new(node.clone().departing()));
        }
    }

    /// Subtracts `lookups` from the count of an inode, and removes its entry at 0. Dropping the
    /// last `InodeRef` of an unlinked inode deletes the inode, so this happens after the lock is
    /// released.
    pub fn forget(&self, ino: INodeNo, lookups: u64) {
        let mut shard = self.shard(ino.0).lock();
        let forgotten = match shard.entry(ino.0) {
            Slot::Occupied(mut known) if known.get().lookups > lookups => {
                known.get_mut().lookups -= lookups;
                None
            }
            Slot::Occupied(known) => Some(known.remove()),
            Slot::Vacant(_) => None,
        };
        drop(shard);
        drop(forgotten);
    }

    /// Forgets all inodes, when the kernel has ended the connection.
    pub fn forget_all(&self) {
        for shard in &self.shards {
            drop(std::mem::take(&mut *shard.lock()));
        }
    }

    /// Returns the number of inodes that the kernel knows.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

fn has_no_name(node: &InodeRef) -> bool {
    node.metadata().links == 0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parext4::{FileSize, OpenOptions};

    use super::*;

    #[test]
    fn a_number_leads_to_the_inode_that_has_it_now() {
        let volume = testkit::volume::scratch();
        let counts = LookupCounts::new(false);
        let create = || {
            volume.write("/file", "text").unwrap();
            volume.resolve("/file").unwrap()
        };
        let old = create();
        let old_id = old.id();
        counts.count_lookup(&old);
        drop(old);
        volume.remove_file("/file").unwrap();
        let new = create();
        assert!(new.ino() == old_id.ino && new.generation() != old_id.generation, "the number is used again");
        counts.count_lookup(&new);
        let number = INodeNo(new.ino().get().into());
        assert_eq!(counts.inode_ref(&volume, number).unwrap().id(), new.id());
        // The kernel forgets both by the number.
        counts.forget(number, 1);
        assert_eq!(counts.len(), 1);
        counts.forget(number, 1);
        assert_eq!(counts.len(), 0);
    }

    #[test]
    fn a_write_waits_until_the_kernel_forgets_a_removed_file() {
        let volume = testkit::volume::scratch();
        let counts = LookupCounts::new(false);
        let options = OpenOptions::read_write().create(true);
        let (file, other) =
            (volume.open_direct("/file", &options).unwrap(), volume.open_direct("/other", &options).unwrap());
        let space = volume.space();
        file.allocate(0..space.available_blocks * u64::from(space.block_size), FileSize::Extend).unwrap();
        counts.count_lookup(file.inode_ref());
        volume.remove_file("/file").unwrap();
        counts.pin_unlinked(file.inode_ref());
        let number = INodeNo(file.inode_ref().ino().get().into());
        drop(file);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                counts.forget(number, 1);
            });
            other.write_all_at(&[1; 4096], 0).unwrap();
        });
    }
}
