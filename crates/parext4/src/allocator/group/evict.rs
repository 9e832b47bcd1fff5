//! Evicts the bitmaps and free extents of groups that are not in use. The next use of a group reads
//! its bitmap and builds its free extents again.

use super::{Group, Inodes};
use crate::allocator::Allocator;
use crate::allocator::free_extents::FreeExtents;
use crate::memory::{Evict, NEVER};
use crate::meta::MetaBlock;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// Limit of groups that one search for a loaded group examines.
const STRIDE: u32 = 64;

impl Group {
    /// Returns true if a bitmap is in memory.
    #[cfg(test)]
    pub(in crate::allocator) fn is_loaded(&self) -> bool {
        self.blocks.lock().bitmap.is_some() || self.inodes.lock().bitmap.is_some()
    }

    /// Drops each bitmap that is at its home location and has no other references, with the free
    /// extents, unless another thread holds the group's locks. If the group keeps a bitmap, it
    /// counts as used `now`, so that other groups are examined first.
    fn evict(&self, now: u64) {
        // `try_lock`, because the caller may hold this group's lock, or another group's.
        let (Some(mut blocks), Some(mut inodes)) = (self.blocks.try_lock(), self.inodes.try_lock()) else {
            self.used_at.store(now, Ordering::Relaxed);
            return;
        };
        if blocks.in_windows == 0 && blocks.bitmap.as_ref().is_none_or(is_idle) {
            blocks.bitmap = None;
            blocks.free = FreeExtents::default();
            blocks.charge = None;
        }
        let Inodes { bitmap, .. } = &mut *inodes;
        if bitmap.as_ref().is_none_or(is_idle) {
            *bitmap = None;
        }
        let is_empty = blocks.bitmap.is_none() && inodes.bitmap.is_none();
        self.used_at.store(if is_empty { NEVER } else { now }, Ordering::Relaxed);
    }
}

/// Returns true if only the group and the cache hold a bitmap. A transaction that changes a bitmap
/// holds it until it is at its home location. So if no transaction holds it, the descriptor has the
/// bitmap's checksum.
fn is_idle(bitmap: &Arc<MetaBlock>) -> bool {
    Arc::strong_count(bitmap) <= 2
}

impl Evict for Allocator {
    fn oldest(&self) -> u64 {
        let count = self.layout.group_count;
        for _ in 0..STRIDE.min(count) {
            let group = &self.groups[(self.next_evicted.load(Ordering::Relaxed) % count) as usize];
            let used_at = group.used_at.load(Ordering::Relaxed);
            if used_at != NEVER {
                return used_at;
            }
            self.skip();
        }
        NEVER
    }

    fn skip(&self) {
        self.next_evicted.fetch_add(1, Ordering::Relaxed);
    }

    fn evict(&self) {
        let next = self.next_evicted.fetch_add(1, Ordering::Relaxed) % self.layout.group_count;
        self.groups[next as usize].evict(self.cache.budget().now());
    }
}
