//! The entries of one cache by number, spread over shards, each in the order of last use.

use std::fmt::Debug;

use hashlink::LinkedHashMap;

use super::budget::{Budget, NEVER};
use crate::sync::Rank;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard};

const SHARDS: usize = 64;

/// A cache. A shard's lock is held for a look-up or a change of the table, never while an entry is read from the device
/// or dropped.
#[derive(Debug)]
pub(crate) struct Shards<V> {
    budget: Arc<Budget>,
    shards: Vec<Mutex<Shard<V>>>,
    /// The shard whose oldest entry is evicted next.
    next: AtomicUsize,
}

/// The entries of one shard, the one not used for longest first.
#[derive(Debug)]
pub(crate) struct Shard<V> {
    entries: LinkedHashMap<u64, Entry<V>>,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// When it was last used, by the clock of the budget.
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

    /// Locks the shard of the entry `number`.
    pub(crate) fn shard(&self, number: u64) -> MutexGuard<'_, Shard<V>> {
        // Fibonacci hashing also spreads multiples of a power of two, as the numbers of directories in different groups
        // are.
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SHARDS.ilog2());
        self.shards[usize::try_from(hash).unwrap_or(0)].lock()
    }

    /// Finds an entry and notes that it is used; the shard is locked by the caller.
    pub(crate) fn find<'a>(&self, shard: &'a mut Shard<V>, number: u64) -> Option<&'a V> {
        let entry = shard.entries.to_back(&number)?;
        entry.used_at = self.budget.now();
        Some(&entry.value)
    }

    /// Adds an entry or replaces one; returns what was replaced, for the caller to drop without the lock.
    #[must_use]
    pub(crate) fn put(&self, shard: &mut Shard<V>, number: u64, value: V) -> Option<V> {
        let entry = Entry { value, used_at: self.budget.now() };
        shard.entries.insert(number, entry).map(|replaced| replaced.value)
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    fn next_shard(&self) -> MutexGuard<'_, Shard<V>> {
        self.shards[self.next.load(Ordering::Relaxed) % SHARDS].lock()
    }

    /// As [`Evict::oldest`](super::Evict::oldest). Passes over shards that are empty.
    pub(crate) fn oldest(&self) -> u64 {
        let oldest = |_| {
            let used_at = self.next_shard().entries.front().map(|(_, entry)| entry.used_at);
            if used_at.is_none() {
                self.pass();
            }
            used_at
        };
        (0..SHARDS).find_map(oldest).unwrap_or(NEVER)
    }

    /// As [`Evict::pass`](super::Evict::pass).
    pub(crate) fn pass(&self) {
        self.next.fetch_add(1, Ordering::Relaxed);
    }

    /// As [`Evict::evict`](super::Evict::evict): examines the oldest entry of the next shard. If `may_go` returns true
    /// it is dropped, else it counts as used now.
    pub(crate) fn evict(&self, may_go: impl Fn(&V) -> bool) {
        let mut shard = self.next_shard();
        self.pass();
        let Some((&number, entry)) = shard.entries.front() else { return };
        let evicted = if may_go(&entry.value) {
            shard.entries.remove(&number)
        } else {
            self.find(&mut shard, number);
            None
        };
        drop(shard);
        drop(evicted);
    }
}

impl<V> Shard<V> {
    /// Removes an entry if `is_it` returns true, and returns it for the caller to drop without the lock.
    #[must_use]
    pub(crate) fn take_if(&mut self, number: u64, is_it: impl FnOnce(&V) -> bool) -> Option<V> {
        let found = self.entries.get(&number).is_some_and(|entry| is_it(&entry.value));
        if found { self.entries.remove(&number).map(|entry| entry.value) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Evict;

    /// A cache that counts how many entries are looked at.
    #[derive(Debug)]
    struct Cache {
        entries: Shards<(Arc<()>, crate::memory::Charge)>,
        looks: AtomicUsize,
    }

    impl Evict for Cache {
        fn oldest(&self) -> u64 {
            self.entries.oldest()
        }

        fn pass(&self) {
            self.entries.pass();
        }

        fn evict(&self) {
            self.entries.evict(|(held, _)| {
                self.looks.fetch_add(1, Ordering::Relaxed);
                Arc::strong_count(held) == 1
            });
        }
    }

    impl Cache {
        fn new(limit: u64) -> (Arc<Budget>, Arc<Self>) {
            let budget = Budget::new(limit);
            let cache = Arc::new(Self { entries: Shards::new(&budget), looks: AtomicUsize::new(0) });
            budget.share(vec![Arc::downgrade(&cache) as std::sync::Weak<dyn Evict>]);
            (budget, cache)
        }

        fn add(&self, number: u64) -> Arc<()> {
            let value = Arc::new(());
            let entry = (Arc::clone(&value), self.entries.budget().charge(1));
            drop(self.entries.put(&mut self.entries.shard(number), number, entry));
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
                let before = cache.looks.load(Ordering::Relaxed);
                let value = cache.add(number);
                most = most.max(cache.looks.load(Ordering::Relaxed) - before);
                value
            })
            .collect();
        assert_eq!(cache.entries.len(), held.len(), "what is held stays");
        assert!(most <= 16, "one addition looked at {most} entries");
    }

    #[test]
    fn an_entry_in_use_keeps_no_other_in_memory() {
        let (budget, cache) = Cache::new(1000);
        for number in 0..5000 {
            drop(cache.add(number * 64));
            // One that is always recent, and mostly alone in its shard at the start.
            drop(cache.add(1));
        }
        assert!(budget.used() <= 1001, "{}", budget.used());
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first_and_what_is_recent_stays() {
        let (budget, cache) = Cache::new(6400);
        let in_cache = |number| cache.entries.find(&mut cache.entries.shard(number), number).is_some();
        (0..6400).for_each(|number| drop(cache.add(number)));
        assert!((0..640).all(in_cache), "all of it fits; the first tenth is used again");
        (6400..9000).for_each(|number| drop(cache.add(number)));
        assert_eq!(budget.used(), 6400);
        assert!((0..640).all(in_cache) && !(700..2000).any(in_cache));
        // With more in use than the budget, what was just used stays all the same.
        let _held: Vec<_> = (10_000..20_000).map(|number| cache.add(number)).collect();
        (20_000..21_000).for_each(|number| drop(cache.add(number)));
        assert!((20_000..21_000).all(in_cache));
        (21_000..30_000).for_each(|number| drop(cache.add(number)));
        assert!(budget.used() <= 10_000 + 6400 / 4 + 100, "{}", budget.used());
    }
}
