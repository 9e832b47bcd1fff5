//! The inodes that the kernel knows, by number.
//!
//! The kernel may know every inode of the volume, so the table keeps a number and two counts for each and holds none:
//! the volume reads an inode again when a request names it ([`Volume::node`]). An inode that has lost its last name is
//! the exception. Nothing but a [`Node`] keeps it from being deleted, so the table holds one until the kernel forgets
//! the inode. No scan of all inodes is needed: a request that removes a name calls [`keep`](Nodes::keep) while it holds
//! a `Node`, and a request that tells the kernel of an inode calls [`remember`](Nodes::remember) while it holds one.
//! Both read the link count and change the table under the lock of one shard, so the later one sees what the earlier
//! one has done.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use fuser::INodeNo;
use parext4::{InodeNo, Node, NodeId, Volume};
use parking_lot::Mutex;

use crate::failure::{Failure, Outcome};
use crate::kernel_pages::KernelPages;

const SHARDS: usize = 64;

/// An inode, and how often the kernel was told of it.
#[derive(Debug)]
struct Known {
    /// Set once the file was opened.
    pages: Option<Arc<KernelPages>>,
    lookups: u64,
    generation: u32,
    /// Set if the inode has no name left.
    unlinked: Option<Box<Node>>,
}

/// All inodes that the kernel may name in a request.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// The kernel has its own number for it and never forgets it.
    root: Node,
    shards: Vec<Mutex<HashMap<u64, Known>>>,
    /// Writes stay in the kernel's page cache.
    writeback: bool,
}

impl Nodes {
    pub fn new(root: Node, writeback: bool) -> Self {
        Self { root, shards: (0..SHARDS).map(|_| Mutex::default()).collect(), writeback }
    }

    fn shard(&self, ino: u64) -> &Mutex<HashMap<u64, Known>> {
        &self.shards[usize::try_from(ino % SHARDS as u64).unwrap_or(0)]
    }

    /// The inode that a request names. The kernel forgets it only after the request.
    pub fn get(&self, volume: &Volume, ino: INodeNo) -> Outcome<Node> {
        if ino == INodeNo::ROOT {
            return Ok(self.root.clone());
        }
        let generation = {
            let shard = self.shard(ino.0).lock();
            match shard.get(&ino.0).ok_or(Failure::STALE)? {
                Known { unlinked: Some(node), .. } => return Ok(Node::clone(node)),
                Known { generation, .. } => *generation,
            }
        };
        let ino = InodeNo(u32::try_from(ino.0).map_err(|_| Failure::STALE)?);
        volume.node(NodeId { ino, generation }).map_err(Failure::by_number)
    }

    /// The kernel's pages of a file that a request names.
    pub fn pages(&self, ino: INodeNo) -> Outcome<Arc<KernelPages>> {
        let mut shard = self.shard(ino.0).lock();
        let known = shard.get_mut(&ino.0).ok_or(Failure::STALE)?;
        let new = || Arc::new(KernelPages::new(ino, self.writeback));
        Ok(Arc::clone(known.pages.get_or_insert_with(new)))
    }

    /// Counts that the kernel is told of an inode.
    pub fn remember(&self, node: &Node) {
        let NodeId { ino, generation } = node.id();
        let ino = u64::from(ino.get());
        match self.shard(ino).lock().entry(ino) {
            Slot::Occupied(mut known) => known.get_mut().lookups += 1,
            Slot::Vacant(slot) => {
                let unlinked = has_no_name(node).then(|| Box::new(node.clone()));
                slot.insert(Known { lookups: 1, generation, pages: None, unlinked });
            }
        }
    }

    /// Keeps an inode whose name was removed until the kernel forgets it, if that was the last name.
    pub fn keep(&self, node: &Node) {
        let ino = u64::from(node.ino().get());
        let mut shard = self.shard(ino).lock();
        if let Some(known) = shard.get_mut(&ino)
            && known.unlinked.is_none()
            && has_no_name(node)
        {
            known.unlinked = Some(Box::new(node.clone()));
        }
    }

    /// The kernel forgets so many of the times that it was told of an inode. The last use of an unlinked inode
    /// deletes it, after the lock.
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

    /// Forgets all but the root, when nobody asks any more.
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

fn has_no_name(node: &Node) -> bool {
    node.metadata().links == 0
}
