//! The table of inodes in memory.
//!
//! Responsible for finding, loading and evicting inodes. Not responsible for their contents.
//! Invariant: an inode is in memory at most once. Before a thread reads an inode from the device it
//! puts a mark into the table; threads that need the same inode wait until the mark is removed. No
//! lock is held during the read.

use parext4_format::InodeNo;

use super::Inode;
use crate::error::Result;
use crate::fault::{Fault, guarded};
use crate::journal::Journal;
use crate::memory::{Budget, Charge, Evict, Shards};
use crate::sync::Rank;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::{Arc, Condvar, Mutex};

#[derive(Debug)]
pub(crate) struct InodeCache {
    inodes: Shards<CacheEntry>,
    journal: Arc<Journal>,
}

#[derive(Debug)]
enum CacheEntry {
    Present(Arc<Inode>),
    /// A thread reads it.
    Loading(Arc<Loading>),
}

/// The reading of one inode from the device.
#[derive(Debug)]
struct Loading {
    ended: Mutex<bool>,
    wake: Condvar,
}

impl Loading {
    fn begin() -> Arc<Self> {
        Arc::new(Self { ended: Mutex::new(Rank::Leaf, false), wake: Condvar::default() })
    }

    fn end(&self) {
        *self.ended.lock() = true;
        self.wake.notify_all();
    }

    fn wait(&self) {
        let mut ended = self.ended.lock();
        while !*ended {
            self.wake.wait(&mut ended);
        }
    }
}

/// The result of a lookup.
enum Found {
    Present(Arc<Inode>),
    /// Another thread is reading it.
    Elsewhere(Arc<Loading>),
    /// This thread must read it.
    Missing(Arc<Loading>),
}

impl InodeCache {
    pub(crate) fn new(budget: &Arc<Budget>, journal: &Arc<Journal>) -> Self {
        Self { inodes: Shards::new(budget), journal: Arc::clone(journal) }
    }

    /// Returns the number of inodes in memory.
    pub(crate) fn len(&self) -> usize {
        self.inodes.len()
    }

    /// Calls `visit` with each inode in memory.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Inode)) {
        let mut inodes = Vec::new();
        self.inodes.for_each(|entry| {
            if let CacheEntry::Present(inode) = entry {
                inodes.push(Arc::clone(inode));
            }
        });
        inodes.iter().for_each(|inode| visit(inode));
    }

    /// Returns a charge of 0 bytes for an inode, which sets the amount itself.
    pub(crate) fn charge(&self) -> Charge {
        self.inodes.budget().charge(0)
    }

    /// Returns the inode. Reads it with `load` if it is not in memory. Blocks while another thread
    /// reads it.
    pub(crate) fn get(&self, ino: InodeNo, load: impl Fn() -> Result<Inode>) -> Result<Arc<Inode>> {
        loop {
            match self.find(ino) {
                Found::Present(inode) => return Ok(inode),
                Found::Elsewhere(loading) => loading.wait(),
                Found::Missing(loading) => {
                    let _mark = LoadMark { cache: self, ino, loading: &loading };
                    let inode = Arc::new(load()?);
                    if let Some(inode) = self.put_loaded(inode, &loading) {
                        return Ok(inode);
                    }
                }
            }
        }
    }

    /// Returns the inode if it is in memory.
    pub(crate) fn present(&self, ino: InodeNo) -> Option<Arc<Inode>> {
        let number = ino.get().into();
        match self.inodes.get(&mut self.inodes.shard(number), number) {
            Some(CacheEntry::Present(inode)) => Some(Arc::clone(inode)),
            Some(CacheEntry::Loading(_)) | None => None,
        }
    }

    fn find(&self, ino: InodeNo) -> Found {
        let number = ino.get().into();
        let mut shard = self.inodes.shard(number);
        let found = self.inodes.get(&mut shard, number);
        let present = |entry: &&CacheEntry| matches!(entry, CacheEntry::Present(_));
        match guarded!(Fault::LoadTwice, found, found.filter(present)) {
            Some(CacheEntry::Present(inode)) => Found::Present(Arc::clone(inode)),
            Some(CacheEntry::Loading(loading)) => Found::Elsewhere(Arc::clone(loading)),
            None => {
                let loading = Loading::begin();
                let none = self.inodes.insert(&mut shard, number, CacheEntry::Loading(Arc::clone(&loading)));
                debug_assert!(guarded!(Fault::LoadTwice, none.is_none(), true));
                Found::Missing(loading)
            }
        }
    }

    /// Replaces the mark with the inode that was read. If a new inode of the number has replaced
    /// the mark meanwhile, returns that one. Returns `None` if that one was also deleted again,
    /// because the inode that was read may be the deleted one then.
    fn put_loaded(&self, inode: Arc<Inode>, loading: &Arc<Loading>) -> Option<Arc<Inode>> {
        let number = inode.ino().get().into();
        inode.recharge();
        {
            let mut shard = self.inodes.shard(number);
            match self.inodes.get(&mut shard, number) {
                Some(CacheEntry::Present(newer)) => {
                    guarded!(Fault::LoadTwice, return Some(Arc::clone(newer)), ());
                }
                Some(CacheEntry::Loading(mark)) if Arc::ptr_eq(mark, loading) => {
                    drop(self.inodes.insert(&mut shard, number, CacheEntry::Present(Arc::clone(&inode))));
                }
                Some(CacheEntry::Loading(_)) => guarded!(Fault::LoadTwice, return None, ()),
                None => {
                    guarded!(Fault::InsertUnmarked, return None, ());
                    drop(self.inodes.insert(&mut shard, number, CacheEntry::Present(Arc::clone(&inode))));
                }
            }
        }
        self.inodes.budget().make_room();
        Some(inode)
    }

    /// Inserts a new inode. Replaces an earlier inode of the number.
    pub(crate) fn insert(&self, inode: Arc<Inode>) {
        let number = inode.ino().get().into();
        inode.recharge();
        let replaced = {
            let mut shard = self.inodes.shard(number);
            self.inodes.insert(&mut shard, number, CacheEntry::Present(inode))
        };
        drop(replaced);
        self.inodes.budget().make_room();
    }

    /// Removes a deleted inode, unless a new inode has its number already.
    pub(crate) fn remove(&self, inode: &Arc<Inode>) {
        let number = inode.ino().get().into();
        let is_it =
            |entry: &CacheEntry| matches!(entry, CacheEntry::Present(other) if Arc::ptr_eq(other, inode));
        let removed = self.inodes.shard(number).remove_if(number, is_it);
        drop(removed);
    }
}

/// The mark of an inode that is being read. Dropping this removes the mark if it is still in the
/// table.
struct LoadMark<'a> {
    cache: &'a InodeCache,
    ino: InodeNo,
    loading: &'a Arc<Loading>,
}

impl Drop for LoadMark<'_> {
    fn drop(&mut self) {
        let number = self.ino.get().into();
        let is_it = |entry: &CacheEntry| matches!(entry, CacheEntry::Loading(mark) if Arc::ptr_eq(mark, self.loading));
        let mark = self.cache.inodes.shard(number).remove_if(number, is_it);
        drop(mark);
        self.loading.end();
    }
}

impl Evict for InodeCache {
    fn oldest(&self) -> u64 {
        self.inodes.oldest()
    }

    fn skip(&self) {
        self.inodes.skip();
    }

    fn evict(&self) {
        self.inodes.evict(|entry| match entry {
            // An inode stays while a transaction, a `InodeRef` or a list of the volume refers to
            // it, and until its last change is durable, because fsync needs to know what to wait
            // for. New references are taken under the shard's lock only, which is held here.
            CacheEntry::Present(inode) => {
                let is_unused = Arc::strong_count(inode) == 1;
                // Pairs with the drop of the last other reference, before which the change was
                // marked.
                fence(Ordering::Acquire);
                is_unused && !inode.has_lazy_times() && self.journal.is_committed(inode.changed_in())
            }
            CacheEntry::Loading(_) => false,
        });
    }
}
