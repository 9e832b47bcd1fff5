//! The inodes that the kernel knows: each stays as long as the kernel has not forgotten it.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use fuser::INodeNo;
use parext4::Node;
use parking_lot::Mutex;

use crate::failure::{Failure, Outcome};

const SHARDS: usize = 64;

/// An inode, and how often the kernel was told of it.
#[derive(Debug)]
struct Known {
    node: Arc<Node>,
    lookups: u64,
}

/// All inodes that the kernel may name in a request.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// The kernel has its own number for it and never forgets it.
    root: Arc<Node>,
    shards: Vec<Mutex<HashMap<u64, Known>>>,
}

impl Nodes {
    pub fn new(root: Node) -> Self {
        Self { root: Arc::new(root), shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, ino: u64) -> &Mutex<HashMap<u64, Known>> {
        &self.shards[usize::try_from(ino % SHARDS as u64).unwrap_or(0)]
    }

    /// The inode that a request names.
    pub fn get(&self, ino: INodeNo) -> Outcome<Arc<Node>> {
        if ino == INodeNo::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let shard = self.shard(ino.0).lock();
        shard.get(&ino.0).map(|known| Arc::clone(&known.node)).ok_or(Failure::STALE)
    }

    /// Counts that the kernel is told of an inode.
    pub fn remember(&self, node: &Node) {
        let ino = u64::from(node.ino().get());
        match self.shard(ino).lock().entry(ino) {
            Slot::Occupied(mut known) => known.get_mut().lookups += 1,
            Slot::Vacant(slot) => {
                slot.insert(Known { node: Arc::new(node.clone()), lookups: 1 });
            }
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
}
