//! A table of cached entries by number, in 64 shards, each in the order of last use.
//!
//! Not responsible for what an entry is and whether it is in use. Invariant: a shard's lock is held
//! for a look-up or a change of the table, never while an entry is read from the device or dropped.

use std::fmt::Debug;

use hashlink::LinkedHashMap;

use super::budget::{Budget, NEVER};
use super::shrink::shrink_if_sparse;
use crate::convert::to_usize;
use crate::sync::Rank;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard};

const SHARDS: usize = 64;

/// The entries of a cache.
#[derive(Debug)]
pub(crate) struct Shards<V> {
    budget: Arc<Budget>,
    shards: Vec<Mutex<Shard<V>>>,
    /// The shard whose oldest entry is evicted next, modulo the number of shards.
    next: AtomicUsize,
}

/// The entries of one shard, in the order of last use, the oldest first.
#[derive(Debug)]
pub(crate) struct Shard<V> {
    entries: LinkedHashMap<u64, CachedEntry<V>>,
}

#[derive(Debug)]
struct CachedEntry<V> {
    value: V,
    /// Time of last use, by the clock of the budget.
    used_at: u64,
}

impl<V: Debug> Shards<V> {
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        let shard = || Mutex::new(Rank::Leaf, Shard { entries: LinkedHashMap::new() });
        Self {
            budget: Arc::clone(budget),
            shards: (0..SHARDS).map(|_| shard()).collect(),
            next: AtomicUsize::new(0),
        }
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Locks the shard of entry `number`.
    pub(crate) fn shard(&self, number: u64) -> MutexGuard<'_, Shard<V>> {
        // Fibonacci hashing also spreads multiples of a power of two, such as the numbers of
        // directories in different groups.
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SHARDS.ilog2());
        self.shards[to_usize(hash)].lock()
    }

    /// Returns an entry of a locked shard and sets its time of last use.
    pub(crate) fn get<'a>(&self, shard: &'a mut Shard<V>, number: u64) -> Option<&'a V> {
        let entry = shard.entries.to_back(&number)?;
        entry.used_at = self.budget.now();
        Some(&entry.value)
    }

    /// Adds or replaces an entry. Returns the replaced value, which the caller drops without the
    /// lock.
    #[must_use]
    pub(crate) fn insert(&self, shard: &mut Shard<V>, number: u64, value: V) -> Option<V> {
        let entry = CachedEntry { value, used_at: self.budget.now() };
        shard.entries.insert(number, entry).map(|replaced| replaced.value)
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    /// Calls `visit` with each entry, under the lock of its shard.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&V)) {
        self.shards
            .iter()
            .for_each(|shard| shard.lock().entries.values().for_each(|entry| visit(&entry.value)));
    }

    fn next_shard(&self) -> MutexGuard<'_, Shard<V>> {
        self.shards[self.next.load(Ordering::Relaxed) % SHARDS].lock()
    }

    /// Implements [`Evict::oldest`](super::Evict::oldest). Skips empty shards.
    pub(crate) fn oldest(&self) -> u64 {
        let oldest = |_| {
            let used_at = self.next_shard().entries.front().map(|(_, entry)| entry.used_at);
            if used_at.is_none() {
                self.skip();
            }
            used_at
        };
        (0..SHARDS).find_map(oldest).unwrap_or(NEVER)
    }

    /// Implements [`Evict::skip`](super::Evict::skip).
    pub(crate) fn skip(&self) {
        self.next.fetch_add(1, Ordering::Relaxed);
    }

    /// Implements [`Evict::evict`](super::Evict::evict): examines the oldest entry of the next
    /// shard. Evicts it if `may_evict` returns true; otherwise sets its time of last use.
    pub(crate) fn evict(&self, may_evict: impl Fn(&V) -> bool) {
        let mut shard = self.next_shard();
        self.skip();
        let Some((&number, entry)) = shard.entries.front() else { return };
        let evicted = if may_evict(&entry.value) {
            shard.remove(number)
        } else {
            self.get(&mut shard, number);
            None
        };
        drop(shard);
        drop(evicted);
    }
}

impl<V> Shard<V> {
    /// Removes an entry if `matches` returns true. Returns the value, which the caller drops
    /// without the lock.
    #[must_use]
    pub(crate) fn remove_if(&mut self, number: u64, matches: impl FnOnce(&V) -> bool) -> Option<V> {
        let found = self.entries.get(&number).is_some_and(|entry| matches(&entry.value));
        if found { self.remove(number).map(|entry| entry.value) } else { None }
    }

    fn remove(&mut self, number: u64) -> Option<CachedEntry<V>> {
        let removed = self.entries.remove(&number);
        shrink_if_sparse(&mut self.entries);
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Evict;

    /// A cache that counts how many entries are examined.
    #[derive(Debug)]
    struct Cache {
        entries: Shards<(Arc<()>, crate::memory::Charge)>,
        examined: AtomicUsize,
    }

    impl Evict for Cache {
        fn oldest(&self) -> u64 {
            self.entries.oldest()
        }

        fn skip(&self) {
            self.entries.skip();
        }

        fn evict(&self) {
            self.entries.evict(|(held, _)| {
                self.examined.fetch_add(1, Ordering::Relaxed);
                Arc::strong_count(held) == 1
            });
        }
    }

    impl Cache {
        fn new(limit: u64) -> (Arc<Budget>, Arc<Self>) {
            let budget = Budget::new(limit);
            let cache = Arc::new(Self { entries: Shards::new(&budget), examined: AtomicUsize::new(0) });
            budget.share(vec![Arc::downgrade(&cache) as std::sync::Weak<dyn Evict>]);
            (budget, cache)
        }

        fn add(&self, number: u64) -> Arc<()> {
            let value = Arc::new(());
            let entry = (Arc::clone(&value), self.entries.budget().charge(1));
            drop(self.entries.insert(&mut self.entries.shard(number), number, entry));
            self.entries.budget().make_room();
            value
        }
    }

    #[test]
    fn an_addition_costs_the_same_however_much_is_held() {
        let (_budget, cache) = Cache::new(1000);
        let mut most = 0;
        let held: Vec<_> = (0..50_000)
            .map(|number| {
                let before = cache.examined.load(Ordering::Relaxed);
                let value = cache.add(number);
                most = most.max(cache.examined.load(Ordering::Relaxed) - before);
                value
            })
            .collect();
        assert_eq!(cache.entries.len(), held.len(), "referenced entries stay");
        assert!(most <= 16, "one addition examined {most} entries");
    }

    #[test]
    fn an_entry_in_use_keeps_no_other_in_memory() {
        let (budget, cache) = Cache::new(1000);
        for number in 0..5000 {
            drop(cache.add(number * 64));
            // An entry that is always recent, and mostly alone in its shard at the start.
            drop(cache.add(1));
        }
        assert!(budget.used() <= 1001, "{}", budget.used());
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first_and_what_is_recent_stays() {
        let (budget, cache) = Cache::new(6400);
        let in_cache = |number| cache.entries.get(&mut cache.entries.shard(number), number).is_some();
        (0..6400).for_each(|number| drop(cache.add(number)));
        assert!((0..640).all(in_cache), "all of it fits; the first tenth is used again");
        (6400..9000).for_each(|number| drop(cache.add(number)));
        assert_eq!(budget.used(), 6400);
        assert!((0..640).all(in_cache) && !(700..2000).any(in_cache));
        // Recently used entries stay even while more than the budget is in use.
        let _held: Vec<_> = (10_000..20_000).map(|number| cache.add(number)).collect();
        (20_000..21_000).for_each(|number| drop(cache.add(number)));
        assert!((20_000..21_000).all(in_cache));
        (21_000..30_000).for_each(|number| drop(cache.add(number)));
        assert!(budget.used() <= 10_000 + 6400 / 4 + 100, "{}", budget.used());
    }
}
