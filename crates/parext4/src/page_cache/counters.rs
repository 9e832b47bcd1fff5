//! Counting what the cache does: a relaxed addition to a cache line that a thread shares with few others.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::stripes::Stripes;

/// What a page cache has done, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageCacheStats {
    /// The most memory that it takes, in bytes.
    pub budget: u64,
    /// Memory that its pages take, in bytes. It grows with the pages, and falls when the cache was
    /// [idle](crate::OpenOptions::cache_idle).
    pub memory: u64,
    /// Pages in memory.
    pub pages: u64,
    /// Of them, those that are dirty or being written back.
    pub dirty: u64,
    /// Nodes of the trees of all files.
    pub nodes: u64,
    /// Look-ups that found a page.
    pub hits: u64,
    /// Pages that were claimed to be filled.
    pub misses: u64,
    /// Pages that made room for others.
    pub evicted: u64,
}

/// The counters, as [`crate::stats`] has them.
#[derive(Debug, Default)]
pub(super) struct Counters(Stripes<Stripe, 16>);

#[derive(Debug, Default)]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
    evicted: AtomicU64,
    /// What this stripe has seen become dirty less what it has seen become clean, modulo 2^64.
    dirty: AtomicU64,
}

impl Counters {
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

    /// Look-ups so far.
    pub fn uses(&self) -> u64 {
        self.0.iter().fold(0, |sum, stripe| {
            sum.wrapping_add(stripe.hits.load(Relaxed)).wrapping_add(stripe.misses.load(Relaxed))
        })
    }

    pub fn dirty(&self, change: i64) {
        self.0.mine().dirty.fetch_add(change.cast_unsigned(), Relaxed);
    }

    /// As of some moment during the call, in each stripe.
    pub fn dirty_pages(&self) -> u64 {
        let sum = self.0.iter().fold(0_u64, |sum, stripe| sum.wrapping_add(stripe.dirty.load(Relaxed)));
        // A page may have been counted out before it was counted in.
        sum.cast_signed().max(0).cast_unsigned()
    }

    /// The sums.
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
