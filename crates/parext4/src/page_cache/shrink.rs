//! Giving the memory of an idle cache back to the system.

use super::{BATCH, PageCache};

/// The most free frames that are withheld from other threads while their memory is given back: 4096 frames, 16 MiB.
const AT_ONCE: usize = 4096;

impl PageCache {
    /// Look-ups so far: a cache whose number does not change is idle.
    pub fn uses(&self) -> u64 {
        self.counters.uses()
    }

    /// Evicts all clean pages that nobody uses, and gives the memory of free frames back to the system. Returns how many
    /// frames that were.
    pub fn shrink(&self) -> usize {
        while self.evict(&mut self.eviction.lock(), BATCH, false) > 0 {}
        self.eviction.lock().queues.sort_free();
        let mut count = 0;
        loop {
            let frames = self.eviction.lock().queues.take_free(AT_ONCE);
            if frames.is_empty() {
                return count;
            }
            count += frames.len();
            for run in frames.chunk_by(|frame, next| frame + 1 == *next) {
                self.frames.give_back(run[0]..run[run.len() - 1] + 1);
            }
            self.eviction.lock().queues.add_cold(frames);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FilePages, PageCache, PageLookup};

    #[test]
    fn an_idle_cache_keeps_dirty_pages_only_and_works_on() {
        let cache = PageCache::with_room(5000, 256);
        let file = FilePages::new(&cache);
        let fill = |index: u32, dirty: u8, byte: u8| {
            let Ok(PageLookup::Vacant(fill)) = file.claim(index) else { panic!("page {index} is there") };
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
                file.get(index).expect("it is dirty").read(4000, &mut byte);
                assert_eq!(byte, [9], "page {index}");
            } else {
                fill(index, 0, 3);
            }
        }
        assert_eq!(cache.stats().memory, 4500 * 4096);
    }
}
