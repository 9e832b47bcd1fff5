//! The table of inodes in memory, and the only way to an [`Inode`].

use std::collections::HashMap;

use parext4_format::InodeNo;

use super::Inode;
use crate::error::Result;
use crate::lock_order::Rank;
use crate::sync::{Arc, Mutex};

const SHARDS: usize = 64;
/// Inodes kept in a shard beyond those in use.
const SHARD_CAPACITY: usize = 256;

#[derive(Debug)]
pub(crate) struct InodeCache {
    shards: Vec<Mutex<HashMap<u32, Arc<Inode>>>>,
}

impl InodeCache {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::new(Rank::InodeCache, HashMap::new())).collect() }
    }

    fn shard(&self, ino: InodeNo) -> &Mutex<HashMap<u32, Arc<Inode>>> {
        &self.shards[ino.get() as usize % SHARDS]
    }

    /// The inode, loaded with `load` if it is not in memory. The shard's lock is held over the load, so that
    /// there is never a second, older copy.
    /// `durable` tells of a transaction whether it is: until then the inode stays, for fsync to know what to
    /// wait for.
    pub(crate) fn get(
        &self,
        ino: InodeNo,
        durable: impl Fn(u64) -> bool,
        load: impl FnOnce() -> Result<Inode>,
    ) -> Result<Arc<Inode>> {
        let mut shard = self.shard(ino).lock();
        if let Some(inode) = shard.get(&ino.get()) {
            return Ok(Arc::clone(inode));
        }
        if shard.len() >= SHARD_CAPACITY {
            // What a transaction, a `Node` or the list of lazy timestamps holds stays.
            let mut drop_every_second = false;
            shard.retain(|_, inode| {
                drop_every_second = !drop_every_second;
                let in_use = Arc::strong_count(inode) > 1 || inode.has_lazy_times();
                drop_every_second || in_use || !durable(inode.changed_in())
            });
        }
        let inode = Arc::new(load()?);
        shard.insert(ino.get(), Arc::clone(&inode));
        Ok(inode)
    }

    /// Puts a new inode in.
    pub(crate) fn insert(&self, inode: Arc<Inode>) {
        self.shard(inode.ino()).lock().insert(inode.ino().get(), inode);
    }

    /// Forgets a deleted inode; call before its number is freed.
    pub(crate) fn remove(&self, ino: InodeNo) {
        self.shard(ino).lock().remove(&ino.get());
    }
}
