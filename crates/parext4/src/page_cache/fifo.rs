//! The order of eviction: S3-FIFO.
//!
//! The queues decide which page is evicted next, and have the free frames. The state of
//! a page decides through [`EvictPages`] whether it may be evicted. All functions run under the
//! lock of the eviction, which look-ups do not acquire.
//!
//! 1. A new page enters the *small* queue, whose target is a tenth of all frames.
//! 2. At the end of the small queue, a page that was accessed more than once moves to the *main*
//!    queue. Other pages are evicted and remembered as *ghosts*.
//! 3. A page that is claimed again while its ghost is remembered enters the main queue.
//! 4. At the end of the main queue, a page with accesses moves to the start of the queue with one
//!    access less, so at most three times. Other pages are evicted.
//!
//! So pages that are read once pass through the small queue only. Pages that cannot be evicted move
//! to the start of their queue.
//!
//! Invariant: a frame is in exactly one queue from the claim of its page until the page is evicted
//! or discarded.
//!
//! Source: Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction", SOSP
//! 2023.

use super::nodes::SlotId;

/// Marks the end of a list.
const NONE: u32 = u32::MAX;
/// Number of pages that are examined in one queue without an eviction before the other queue is
/// tried.
const EXAMINE_LIMIT: u32 = 128;

/// The result of an attempt to evict a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvictOutcome {
    /// The page cannot be evicted now.
    Busy,
    /// The page was accessed more often than the limit and is kept.
    Kept,
    /// The page was evicted. The number identifies its ghost.
    Evicted(u64),
}

/// Access of the queues to the states of pages.
pub(super) trait EvictPages {
    /// Evicts a page, if that is possible and it was accessed at most `most` times. Otherwise
    /// replaces its number of accesses by the result of `if_kept`.
    fn evict(&mut self, id: SlotId, frame: u32, most: u64, if_kept: fn(u64) -> u64) -> EvictOutcome;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Small,
    Main,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    prev: u32,
    id: SlotId,
    queue: Queue,
}

/// Bytes that the queues need for a frame: its link, and at most two ghosts.
pub(super) const LINK: u64 = size_of::<Link>() as u64 + 2 * size_of::<u64>() as u64;

/// A doubly linked list of frames, in `links`.
#[derive(Debug)]
struct List {
    head: u32,
    tail: u32,
    len: u32,
}

#[derive(Debug)]
pub(super) struct Queues {
    /// The links, by frame number.
    links: Vec<Link>,
    /// Frames without a page. Cold frames have no memory and are used last.
    free: Vec<u32>,
    cold: Vec<u32>,
    small: List,
    main: List,
    ghosts: GhostQueue,
    /// Length of the small queue from which on pages are evicted from it before the main queue.
    small_target: u32,
}

impl Queues {
    /// Returns empty queues for a cache of `frames` frames.
    pub fn new(frames: u32) -> Self {
        let list = || List { head: NONE, tail: NONE, len: 0 };
        Self {
            links: Vec::new(),
            free: Vec::new(),
            cold: Vec::new(),
            small: list(),
            main: list(),
            ghosts: GhostQueue::new(frames),
            small_target: (frames / 10).max(1),
        }
    }

    /// Returns the number of frames that were added, which is the number of the next frame.
    pub fn frame_count(&self) -> u32 {
        u32::try_from(self.links.len()).unwrap_or(NONE)
    }

    /// Returns the number of pages in both queues.
    pub fn len(&self) -> u32 {
        self.small.len + self.main.len
    }

    /// Returns the slots of the pages in both queues.
    pub fn slots(&self) -> impl Iterator<Item = SlotId> {
        [self.small.head, self.main.head].into_iter().flat_map(|head| {
            let link = |frame: u32| self.links.get(frame as usize);
            std::iter::successors(link(head), move |last| link(last.next)).map(|link| link.id)
        })
    }

    /// Assigns a free frame to the page in slot `id`, whose ghost would be `ghost`. Returns `None`
    /// if no frame is free.
    pub fn allocate(&mut self, id: SlotId, ghost: u64) -> Option<u32> {
        let frame = self.free.pop().or_else(|| self.cold.pop())?;
        let queue = if self.ghosts.remove(ghost) { Queue::Main } else { Queue::Small };
        self.links[frame as usize].id = id;
        self.push(frame, queue);
        Some(frame)
    }

    /// Adds the next frame, as a free one.
    pub fn add_frame(&mut self) {
        self.free.push(self.frame_count());
        self.links.push(Link { next: NONE, prev: NONE, id: SlotId::default(), queue: Queue::Small });
    }

    /// Returns the number of frames that have memory.
    pub fn resident(&self) -> u32 {
        self.frame_count().saturating_sub(u32::try_from(self.cold.len()).unwrap_or(NONE))
    }

    /// Sorts the free frames, so that consecutive ones are returned to the system together.
    pub fn sort_free(&mut self) {
        self.free.sort_unstable();
    }

    /// Removes up to `most` free frames from the list. The caller returns their memory to the
    /// system, and then calls [`add_cold`](Self::add_cold).
    pub fn remove_free(&mut self, most: usize) -> Vec<u32> {
        self.free.split_off(self.free.len().saturating_sub(most))
    }

    /// Adds free frames that have no memory.
    pub fn add_cold(&mut self, frames: Vec<u32>) {
        self.cold.extend(frames);
    }

    /// Frees the frame of a page that was removed.
    pub fn release(&mut self, frame: u32) {
        self.unlink(frame);
        self.free.push(frame);
    }

    /// Evicts one page. Returns false if no page can be evicted.
    pub fn evict(&mut self, pages: &mut impl EvictPages) -> bool {
        self.try_evict(pages)
            || self.evict_from(Queue::Small, NONE, pages)
            || self.evict_from(Queue::Main, NONE, pages)
    }

    /// Like [`evict`](Self::evict), but gives up after 128 pages of each queue, so that a caller
    /// that does not need the page does not search a cache full of dirty pages.
    pub fn try_evict(&mut self, pages: &mut impl EvictPages) -> bool {
        let first = if self.small.len >= self.small_target { Queue::Small } else { Queue::Main };
        let second = if first == Queue::Small { Queue::Main } else { Queue::Small };
        self.evict_from(first, EXAMINE_LIMIT, pages) || self.evict_from(second, EXAMINE_LIMIT, pages)
    }

    /// Examines up to `most` pages of a queue until one is evicted. Stops early once all pages of
    /// the queue are busy.
    fn evict_from(&mut self, queue: Queue, most: u32, pages: &mut impl EvictPages) -> bool {
        // Number of pages found busy in a row.
        let mut busy = 0;
        for _ in 0..most {
            let list = self.list(queue);
            let (frame, len) = (list.tail, list.len);
            if busy >= len {
                return false;
            }
            match self.examine_tail(frame, queue, pages) {
                EvictOutcome::Evicted(_) => return true,
                EvictOutcome::Kept => busy = 0,
                EvictOutcome::Busy => busy += 1,
            }
        }
        false
    }

    fn examine_tail(&mut self, frame: u32, queue: Queue, pages: &mut impl EvictPages) -> EvictOutcome {
        let id = self.links[frame as usize].id;
        let (outcome, next) = match queue {
            Queue::Small => (pages.evict(id, frame, 1, |_| 0), Queue::Main),
            Queue::Main => (pages.evict(id, frame, 0, |accessed| accessed - 1), Queue::Main),
        };
        match outcome {
            EvictOutcome::Evicted(ghost) => {
                if queue == Queue::Small {
                    self.ghosts.add(ghost);
                }
                self.release(frame);
            }
            EvictOutcome::Kept | EvictOutcome::Busy => {
                self.unlink(frame);
                self.push(frame, if outcome == EvictOutcome::Busy { queue } else { next });
            }
        }
        outcome
    }

    fn list(&mut self, queue: Queue) -> &mut List {
        match queue {
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
        }
    }

    fn push(&mut self, frame: u32, queue: Queue) {
        let list = self.list(queue);
        let next = std::mem::replace(&mut list.head, frame);
        list.len += 1;
        match next {
            NONE => list.tail = frame,
            next => self.links[next as usize].prev = frame,
        }
        let link = &mut self.links[frame as usize];
        (link.next, link.prev, link.queue) = (next, NONE, queue);
    }

    fn unlink(&mut self, frame: u32) {
        let Link { next, prev, queue, .. } = self.links[frame as usize];
        let list = self.list(queue);
        list.len -= 1;
        if prev == NONE {
            list.head = next;
        }
        if next == NONE {
            list.tail = prev;
        }
        if prev != NONE {
            self.links[prev as usize].next = next;
        }
        if next != NONE {
            self.links[next as usize].prev = prev;
        }
    }
}

/// The ghosts: the pages that were last evicted from the small queue, about as many as the main
/// queue holds.
///
/// The queue is a hash table in which a newer ghost overwrites an older one. An entry holds 32 bits
/// of the hash and the value of the clock when it was added. An entry that is too old counts as
/// missing.
#[derive(Debug)]
struct GhostQueue {
    table: Vec<u64>,
    /// Number of ghosts that were added.
    clock: u32,
    /// Age, in ghosts, from which an entry counts as missing.
    most: u32,
}

impl GhostQueue {
    fn new(frames: u32) -> Self {
        Self { table: vec![0; frames.next_power_of_two() as usize], clock: 0, most: frames - frames / 10 }
    }

    /// Returns the index of a ghost's entry, and the part of the hash that the entry keeps, which
    /// is never 0.
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    fn hash(&self, ghost: u64) -> (usize, u32) {
        // Fibonacci hashing makes the upper bits of the product depend on all bits of the number.
        let hash = (ghost ^ ghost >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((hash >> 32) as usize & (self.table.len() - 1), hash as u32 | 1)
    }

    fn add(&mut self, ghost: u64) {
        let (at, part) = self.hash(ghost);
        self.clock = self.clock.wrapping_add(1);
        self.table[at] = u64::from(part) << 32 | u64::from(self.clock);
    }

    /// Removes a ghost. Returns false if it is not remembered.
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    fn remove(&mut self, ghost: u64) -> bool {
        let (at, part) = self.hash(ghost);
        let entry = self.table[at];
        let there = (entry >> 32) as u32 == part && self.clock.wrapping_sub(entry as u32) < self.most;
        if there {
            self.table[at] = 0;
        }
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    const FRAMES: u32 = 100;

    /// The queues, and pages by number with their accesses.
    struct Cache {
        queues: Queues,
        pages: Numbered,
    }

    #[derive(Default)]
    struct Numbered {
        accessed: HashMap<u64, u64>,
        number_in: HashMap<u32, u64>,
        busy: HashSet<u64>,
    }

    impl EvictPages for Numbered {
        fn evict(&mut self, _: SlotId, frame: u32, most: u64, if_kept: fn(u64) -> u64) -> EvictOutcome {
            let number = self.number_in[&frame];
            let accessed = self.accessed.get_mut(&number).unwrap();
            if self.busy.contains(&number) {
                return EvictOutcome::Busy;
            }
            if *accessed > most {
                *accessed = if_kept(*accessed);
                return EvictOutcome::Kept;
            }
            self.accessed.remove(&number);
            self.number_in.remove(&frame);
            EvictOutcome::Evicted(number)
        }
    }

    impl Cache {
        fn new() -> Self {
            let mut queues = Queues::new(FRAMES);
            (0..FRAMES).for_each(|_| queues.add_frame());
            Self { queues, pages: Numbered::default() }
        }

        /// Accesses a page, and adds it if it is missing. Returns true if it was present.
        fn access(&mut self, number: u64) -> bool {
            if let Some(accessed) = self.pages.accessed.get_mut(&number) {
                *accessed = (*accessed + 1).min(3);
                return true;
            }
            let frame = loop {
                match self.queues.allocate(SlotId::default(), number) {
                    Some(frame) => break frame,
                    None => assert!(self.queues.evict(&mut self.pages), "nothing is busy"),
                }
            };
            self.pages.accessed.insert(number, 0);
            self.pages.number_in.insert(frame, number);
            false
        }

        fn access_all(&mut self, numbers: std::ops::Range<u64>) {
            for number in numbers {
                self.access(number);
            }
        }

        fn holds(&self, numbers: impl IntoIterator<Item = u64>) -> usize {
            numbers.into_iter().filter(|number| self.pages.accessed.contains_key(number)).count()
        }
    }

    #[test]
    fn a_scan_does_not_wash_out_what_is_used() {
        let mut cache = Cache::new();
        for _ in 0..3 {
            cache.access_all(0..60);
        }
        // Ten times as many pages as the cache holds, each of them once.
        (1000..2000).for_each(|number| assert!(!cache.access(number)));
        assert_eq!(cache.holds(0..60), 60);
    }

    #[test]
    fn what_comes_back_soon_stays_longer() {
        let mut cache = Cache::new();
        cache.access_all(0..150);
        assert_eq!(cache.holds([0]), 0);
        // The page's ghost is remembered, so the page enters the main queue.
        assert!(!cache.access(0));
        cache.access_all(1000..1500);
        assert_eq!(cache.holds([0]), 1);
    }

    #[test]
    fn what_is_used_no_more_goes_in_the_end() {
        let mut cache = Cache::new();
        for _ in 0..4 {
            cache.access_all(0..60);
        }
        for round in 1..20 {
            for _ in 0..4 {
                cache.access_all(round * 100..round * 100 + 60);
            }
        }
        assert_eq!(cache.holds(0..60), 0);
    }

    #[test]
    fn busy_pages_are_passed_wherever_they_are() {
        let mut cache = Cache::new();
        cache.access_all(0..100);
        cache.pages.busy = (0..100).filter(|&number| number != 42).collect();
        assert!(cache.queues.evict(&mut cache.pages));
        assert_eq!((cache.holds(0..100), cache.holds([42])), (99, 0));
        assert!(!cache.queues.evict(&mut cache.pages), "all are busy");
        assert!(!cache.queues.try_evict(&mut cache.pages));
        cache.pages.busy.clear();
        assert!(cache.queues.try_evict(&mut cache.pages));
        assert_eq!(cache.queues.len(), 98);
    }
}
