//! The counters of a page cache.
//!
//! The module is responsible for what [`PageCacheStats`] reports and for the number of dirty pages,
//! which limits writers. The counters are striped: an update is a relaxed addition to a cache line
//! that a thread shares with few other threads. A sum is not a snapshot: each stripe is read at
//! another moment.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::stripes::Stripes;

/// Counters and size of a volume's page cache, as
/// [`Volume::cache_stats`](crate::Volume::cache_stats) returns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageCacheStats {
    /// Limit of the memory of the cache, in bytes.
    pub budget: u64,
    /// Memory that pages occupy, in bytes. It grows with the number of pages, and shrinks when the
    /// cache was [idle](crate::VolumeOptions::cache_idle).
    pub memory: u64,
    /// Size of a page, in bytes: 4 KiB, or one block if blocks are larger.
    pub page_size: u64,
    /// Number of pages in memory.
    pub pages: u64,
    /// Number of pages that are dirty or under write-back.
    pub dirty: u64,
    /// Number of nodes in the trees of all files.
    pub nodes: u64,
    /// Number of look-ups that found a page.
    pub hits: u64,
    /// Number of pages that were claimed in order to fill them.
    pub misses: u64,
    /// Number of pages that were evicted.
    pub evicted: u64,
}

/// The counters, by stripe.
#[derive(Debug, Default)]
pub(super) struct CacheCounters(Stripes<Stripe, 16>);

#[derive(Debug, Default)]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
    evicted: AtomicU64,
    /// Pages that threads of this stripe made dirty, less the pages that they made clean, modulo
    /// 2^64. A page may become dirty in one stripe and clean in another.
    dirty: AtomicU64,
}

impl CacheCounters {
    #[inline]
    pub fn hit(&self) {
        self.0.mine().hits.fetch_add(1, Relaxed);
    }

    pub fn missed(&self) {
        self.0.mine().misses.fetch_add(1, Relaxed);
    }

    pub fn evicted(&self, pages: u64) {
        self.0.mine().evicted.fetch_add(pages, Relaxed);
    }

    /// Returns the number of look-ups so far.
    pub fn uses(&self) -> u64 {
        self.0.iter().fold(0, |sum, stripe| {
            sum.wrapping_add(stripe.hits.load(Relaxed)).wrapping_add(stripe.misses.load(Relaxed))
        })
    }

    pub fn dirty(&self, change: i64) {
        self.0.mine().dirty.fetch_add(change.cast_unsigned(), Relaxed);
    }

    /// Returns the number of dirty pages. Each stripe is read at some moment during the call.
    pub fn dirty_pages(&self) -> u64 {
        let sum = self.0.iter().fold(0_u64, |sum, stripe| sum.wrapping_add(stripe.dirty.load(Relaxed)));
        // The sum may be negative for a moment, if it has read the stripe in which a page became
        // clean, but not yet the stripe in which it became dirty.
        sum.cast_signed().max(0).cast_unsigned()
    }

    /// Returns `stats` with the fields of the counters set.
    pub fn add_to(&self, mut stats: PageCacheStats) -> PageCacheStats {
        for stripe in self.0.iter() {
            stats.hits += stripe.hits.load(Relaxed);
            stats.misses += stripe.misses.load(Relaxed);
            stats.evicted += stripe.evicted.load(Relaxed);
        }
        stats.dirty = self.dirty_pages();
        stats
    }
}
