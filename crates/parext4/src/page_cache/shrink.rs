//! Returns the memory of an idle page cache to the system.
//!
//! The owner of the cache decides when it is idle, by comparing [`PageCache::uses`] over time.
//! Invariant: memory is returned only for frames that were removed from the free list, so that no
//! thread fills such a frame meanwhile.

use super::PageCache;
use super::evict::BATCH;

/// Limit of the free frames, in bytes, that are unavailable to other threads while their memory is
/// returned.
const AT_ONCE: u64 = 16 << 20;

impl PageCache {
    /// Returns the number of look-ups so far. A cache is idle while this number does not change.
    pub fn uses(&self) -> u64 {
        self.counters.uses()
    }

    /// Evicts all clean pages that are not in use, and returns the memory of free frames to the
    /// system. Returns the number of these frames. Does not block look-ups.
    pub fn shrink(&self) -> usize {
        while self.evict(&mut self.eviction.lock(), BATCH, false) > 0 {}
        self.eviction.lock().queues.sort_free();
        let (mut count, most) = (0, self.page_size.pages_in(AT_ONCE) as usize);
        loop {
            let frames = self.eviction.lock().queues.remove_free(most);
            if frames.is_empty() {
                return count;
            }
            count += frames.len();
            for run in frames.chunk_by(|frame, next| frame + 1 == *next) {
                self.frames.release(run[0]..run[run.len() - 1] + 1);
            }
            self.eviction.lock().queues.add_cold(frames);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FilePages, PageCache, PageIndex, PageLookup, PageSize};

    #[test]
    fn an_idle_cache_keeps_dirty_pages_only_and_works_on() {
        let cache = PageCache::with_capacity(5000, 256, PageSize::MIN);
        let file = FilePages::new(&cache);
        let fill = |index: u32, dirty: u8, byte: u8| {
            let Ok(PageLookup::Vacant(fill)) = file.claim(PageIndex(index)) else {
                panic!("page {index} is there")
            };
            fill.write(0, &[byte; 4096]);
            drop(fill.finish(dirty, 0));
        };
        // Frames of two chunks.
        (0..4500).for_each(|index| fill(index, u8::from(index % 1000 == 7), 9));
        assert_eq!(cache.stats().memory, 4500 * 4096);
        let uses = cache.uses();
        assert_eq!(cache.shrink(), 4495);
        let stats = cache.stats();
        assert_eq!((stats.pages, stats.memory, cache.uses()), (5, 5 * 4096, uses), "{stats:?}");
        assert_eq!(cache.shrink(), 0, "there is no more");
        for index in 0..4500 {
            let mut byte = [0];
            if index % 1000 == 7 {
                file.get(PageIndex(index)).expect("it is dirty").read(4000, &mut byte);
                assert_eq!(byte, [9], "page {index}");
            } else {
                fill(index, 0, 3);
            }
        }
        assert_eq!(cache.stats().memory, 4500 * 4096);
    }
}
