//! One budget for all caches of metadata: inodes with their extent maps, metadata blocks, and the
//! free space of groups.
//!
//! Every entry of a cache holds a [`Charge`], so the budget knows how much is in memory. Entries
//! are evicted in the order of last use across the caches:
//!
//! 1. The budget has a clock, which counts the bytes that were ever charged. An entry stores the
//!    clock when it is used.
//! 2. A thread that has added an entry calls [`make_room`](Budget::make_room). If the budget is
//!    exceeded, it examines the entry with the oldest time of use, and evicts it if it is
//!    unreferenced.
//! 3. It repeats this at most [`STEPS`] times, so the cost of an addition does not depend on how
//!    much is in memory.
//!
//! Entries in use are not evicted. Neither are entries that were used while the last quarter of the
//! budget was charged; otherwise a volume with much in use would read all other metadata again and
//! again.
//!
//! Invariant: the memory in use is at most the budget, or the entries in use and a quarter of the
//! budget, whichever is more.

use std::sync::Weak;

// Its orders are visible to ThreadSanitizer, unlike those inside `std::sync::OnceLock`.
use once_cell::sync::OnceCell;

use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Limit of entries that one addition examines. More than 1, so that a cache with many entries in
/// use shrinks too.
const STEPS: u32 = 16;
/// What [`Evict::oldest`] returns for an empty cache.
pub(crate) const NEVER: u64 = u64::MAX;

/// A cache whose entries can be evicted.
pub(crate) trait Evict: Send + Sync + std::fmt::Debug {
    /// Returns the time of last use, by the budget's clock, of the entry that
    /// [`evict`](Self::evict) examines next.
    fn oldest(&self) -> u64;

    /// Skips the entry that would be examined next.
    fn skip(&self);

    /// Evicts the next entry if it is unreferenced and can be read or built again. Only tries locks
    /// that a caller of the cache may hold, and blocks on none of them.
    fn evict(&self);
}

/// The budget of a volume, in bytes.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
    /// Bytes charged so far.
    clock: AtomicU64,
    caches: OnceCell<Vec<Weak<dyn Evict>>>,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0), clock: AtomicU64::new(0), caches: OnceCell::new() })
    }

    /// Sets the caches that share the budget. Before that nothing is evicted.
    pub(crate) fn share(&self, caches: Vec<Weak<dyn Evict>>) {
        let first = self.caches.set(caches).is_ok();
        debug_assert!(first, "the caches of a volume are set once");
    }

    /// Returns the budget in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes in memory.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the budget's clock, as the time of use of an entry.
    pub(crate) fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Charges `bytes` until the charge is dropped.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        let charge = Charge { budget: Arc::clone(self), bytes: AtomicU64::new(0) };
        charge.set(bytes);
        charge
    }

    /// Evicts the least recently used entries while the budget is exceeded, in at most [`STEPS`]
    /// steps. The caller may hold any lock but one of `Rank::Leaf`.
    pub(crate) fn make_room(&self) {
        if self.used() <= self.limit {
            return;
        }
        let Some(caches) = self.caches.get() else { return };
        let caches: Vec<_> = caches.iter().filter_map(Weak::upgrade).collect();
        for _ in 0..STEPS {
            let oldest =
                caches.iter().map(|cache| (cache.oldest(), cache)).min_by_key(|&(used_at, _)| used_at);
            let Some((used_at, cache)) = oldest else { return };
            let is_recent = used_at != NEVER && self.now().saturating_sub(used_at) < self.limit / 4;
            if is_recent {
                // The next entries of the caches may be older.
                caches.iter().for_each(|cache| cache.skip());
                continue;
            }
            cache.evict();
            if self.used() <= self.limit {
                return;
            }
        }
    }
}

/// The share of the budget that one entry of a cache uses.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: AtomicU64,
}

impl Charge {
    /// Returns true if the budget is not exceeded.
    pub(crate) fn has_room(&self) -> bool {
        self.budget.used() <= self.budget.limit
    }

    /// Changes the charge to `bytes`.
    pub(crate) fn set(&self, bytes: usize) {
        let now = bytes as u64;
        // Relaxed: no other data depends on these sums.
        let before = self.bytes.swap(now, Ordering::Relaxed);
        if now >= before {
            self.budget.used.fetch_add(now - before, Ordering::Relaxed);
            self.budget.clock.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.budget.used.fetch_sub(before - now, Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            // A failed model is being torn down: its primitives no longer work.
            return;
        }
        self.set(0);
    }
}
