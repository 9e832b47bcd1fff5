//! Timestamps that are written with the next transaction, whichever that is (H25).

use crate::inode::Inode;
use crate::sync::{Arc, Mutex, Rank};

/// Inodes whose timestamps wait for a transaction.
#[derive(Debug)]
pub(crate) struct LazyTimes(pub(super) Mutex<Vec<Arc<Inode>>>);

impl LazyTimes {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Rank::Leaf, Vec::new()))
    }

    pub(super) fn add(&self, inode: &Arc<Inode>) {
        self.0.lock().push(Arc::clone(inode));
    }
}
