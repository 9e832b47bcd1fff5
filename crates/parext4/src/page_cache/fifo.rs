//! Which page is evicted next: S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache
//! eviction", SOSP 2023).
//!
//! New pages go through a *small* queue, a tenth of all; those that were used more than once when they come to its
//! end move on to the *main* queue, others are evicted, and remembered for a while as *ghosts*. A page that comes
//! back while its ghost is there goes to the main queue at once. At the end of the main queue a page that was used
//! since goes round again, at most three times. So pages that are read once pass through the small queue only.
//!
//! A frame is in one queue as long as a page has it, from the claim on. Pages that cannot be evicted go round.

use super::nodes::Place;

/// The end of a list.
const NONE: u32 = u32::MAX;
/// Pages looked at in one queue before the other gets a turn, as long as none was evicted.
const PATIENCE: u32 = 128;

/// What became of a page at the end of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It cannot be evicted now.
    Busy,
    /// It was used more often than it may be.
    Spared,
    /// It is gone, and its ghost's number is this.
    Evicted(u64),
}

/// The pages, for the queues.
pub(super) trait Pages {
    /// Evicts a page, if it may be and was accessed at most `most` times; else sets its accesses by `spared`.
    fn evict(&mut self, place: Place, frame: u32, most: u64, spared: fn(u64) -> u64) -> Fate;
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
    place: Place,
    queue: Queue,
}

/// Bytes that a frame costs here: its link, and two ghosts at most.
pub(super) const LINK: u64 = size_of::<Link>() as u64 + 2 * size_of::<u64>() as u64;

/// A list of frames, by their links.
#[derive(Debug)]
struct List {
    head: u32,
    tail: u32,
    len: u32,
}

#[derive(Debug)]
pub(super) struct Queues {
    /// By frame.
    links: Vec<Link>,
    /// Frames without a page; the cold ones have given their memory back, and are used last.
    free: Vec<u32>,
    cold: Vec<u32>,
    small: List,
    main: List,
    ghosts: Ghosts,
    /// The small queue is cut down to so many first.
    small_target: u32,
}

impl Queues {
    /// For so many frames.
    pub fn new(frames: u32) -> Self {
        let list = || List { head: NONE, tail: NONE, len: 0 };
        Self {
            links: Vec::new(),
            free: Vec::new(),
            cold: Vec::new(),
            small: list(),
            main: list(),
            ghosts: Ghosts::new(frames),
            small_target: (frames / 10).max(1),
        }
    }

    /// Frames that were ever used: the next one is the first that was not.
    pub fn known(&self) -> u32 {
        u32::try_from(self.links.len()).unwrap_or(NONE)
    }

    /// Pages in all queues.
    pub fn len(&self) -> u32 {
        self.small.len + self.main.len
    }

    /// Gives the page at `place`, whose ghost would be `ghost`, a free frame.
    pub fn take(&mut self, place: Place, ghost: u64) -> Option<u32> {
        let frame = self.free.pop().or_else(|| self.cold.pop())?;
        let queue = if self.ghosts.take(ghost) { Queue::Main } else { Queue::Small };
        self.links[frame as usize].place = place;
        self.push(frame, queue);
        Some(frame)
    }

    /// Adds the next frame.
    pub fn add_frame(&mut self) {
        self.free.push(self.known());
        self.links.push(Link { next: NONE, prev: NONE, place: Place::default(), queue: Queue::Small });
    }

    /// Frames that have memory.
    pub fn warm(&self) -> u32 {
        self.known().saturating_sub(u32::try_from(self.cold.len()).unwrap_or(NONE))
    }

    /// Sorts the free frames, so that those taken together lie together.
    pub fn sort_free(&mut self) {
        self.free.sort_unstable();
    }

    /// Takes up to `most` free frames out, for the caller to give their memory back and [`add_cold`](Self::add_cold) them.
    pub fn take_free(&mut self, most: usize) -> Vec<u32> {
        self.free.split_off(self.free.len().saturating_sub(most))
    }

    /// Adds free frames without memory.
    pub fn add_cold(&mut self, frames: Vec<u32>) {
        self.cold.extend(frames);
    }

    /// Takes a frame back from a page that is gone.
    pub fn release(&mut self, frame: u32) {
        self.unlink(frame);
        self.free.push(frame);
    }

    /// Evicts one page. `false` if none can be.
    pub fn evict(&mut self, pages: &mut impl Pages) -> bool {
        let first = if self.small.len >= self.small_target { Queue::Small } else { Queue::Main };
        let second = if first == Queue::Small { Queue::Main } else { Queue::Small };
        self.evict_from(first, PATIENCE, pages)
            || self.evict_from(second, PATIENCE, pages)
            || self.evict_from(Queue::Small, NONE, pages)
            || self.evict_from(Queue::Main, NONE, pages)
    }

    /// Evicts a page of the small queue that was never used since it came, if one is soon found.
    pub fn evict_unused(&mut self, pages: &mut impl Pages) -> bool {
        let most = PATIENCE.min(self.small.len);
        (0..most).any(|_| {
            let frame = self.small.tail;
            match pages.evict(self.links[frame as usize].place, frame, 0, |accessed| accessed) {
                Fate::Evicted(ghost) => {
                    self.ghosts.put(ghost);
                    self.release(frame);
                    true
                }
                Fate::Spared | Fate::Busy => {
                    self.unlink(frame);
                    self.push(frame, Queue::Small);
                    false
                }
            }
        })
    }

    /// Looks at up to `most` pages of a queue, as long as that may lead to something.
    fn evict_from(&mut self, queue: Queue, most: u32, pages: &mut impl Pages) -> bool {
        // Pages that were busy since one was not.
        let mut busy = 0;
        for _ in 0..most {
            let list = self.list(queue);
            let (frame, len) = (list.tail, list.len);
            if busy >= len {
                return false;
            }
            match self.look(frame, queue, pages) {
                Fate::Evicted(_) => return true,
                Fate::Spared => busy = 0,
                Fate::Busy => busy += 1,
            }
        }
        false
    }

    fn look(&mut self, frame: u32, queue: Queue, pages: &mut impl Pages) -> Fate {
        let place = self.links[frame as usize].place;
        let (fate, next) = match queue {
            Queue::Small => (pages.evict(place, frame, 1, |_| 0), Queue::Main),
            Queue::Main => (pages.evict(place, frame, 0, |accessed| accessed - 1), Queue::Main),
        };
        match fate {
            Fate::Evicted(ghost) => {
                if queue == Queue::Small {
                    self.ghosts.put(ghost);
                }
                self.release(frame);
            }
            Fate::Spared | Fate::Busy => {
                self.unlink(frame);
                self.push(frame, if fate == Fate::Busy { queue } else { next });
            }
        }
        fate
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

/// The last pages that were evicted from the small queue, about as many as the main queue holds.
///
/// A table by hash, where a later ghost takes the place of an earlier one. An entry is a part of the number, and
/// when it came; too old is as good as gone.
#[derive(Debug)]
struct Ghosts {
    table: Vec<u64>,
    /// Ghosts that came so far.
    clock: u32,
    /// How long one stays.
    most: u32,
}

impl Ghosts {
    fn new(frames: u32) -> Self {
        Self { table: vec![0; frames.next_power_of_two() as usize], clock: 0, most: frames - frames / 10 }
    }

    /// The entry of a number, and the part of it that is kept, never 0.
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    fn hash(&self, ghost: u64) -> (usize, u32) {
        // Multiplied by the golden ratio, the upper bits depend on all.
        let hash = (ghost ^ ghost >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((hash >> 32) as usize & (self.table.len() - 1), hash as u32 | 1)
    }

    fn put(&mut self, ghost: u64) {
        let (at, part) = self.hash(ghost);
        self.clock = self.clock.wrapping_add(1);
        self.table[at] = u64::from(part) << 32 | u64::from(self.clock);
    }

    /// Whether the ghost was there; it is not after this.
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    fn take(&mut self, ghost: u64) -> bool {
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

    /// Queues, and pages by number with how often they were accessed.
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

    impl Pages for Numbered {
        fn evict(&mut self, _: Place, frame: u32, most: u64, spared: fn(u64) -> u64) -> Fate {
            let number = self.number_in[&frame];
            let accessed = self.accessed.get_mut(&number).unwrap();
            if self.busy.contains(&number) {
                return Fate::Busy;
            }
            if *accessed > most {
                *accessed = spared(*accessed);
                return Fate::Spared;
            }
            self.accessed.remove(&number);
            self.number_in.remove(&frame);
            Fate::Evicted(number)
        }
    }

    impl Cache {
        fn new() -> Self {
            let mut queues = Queues::new(FRAMES);
            (0..FRAMES).for_each(|_| queues.add_frame());
            Self { queues, pages: Numbered::default() }
        }

        /// Whether the page was there; it is now.
        fn access(&mut self, number: u64) -> bool {
            if let Some(accessed) = self.pages.accessed.get_mut(&number) {
                *accessed = (*accessed + 1).min(3);
                return true;
            }
            let frame = loop {
                match self.queues.take(Place::default(), number) {
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
        // Ten times what the cache holds, each page once.
        (1000..2000).for_each(|number| assert!(!cache.access(number)));
        assert_eq!(cache.holds(0..60), 60);
    }

    #[test]
    fn what_comes_back_soon_stays_longer() {
        let mut cache = Cache::new();
        cache.access_all(0..150);
        assert_eq!(cache.holds([0]), 0);
        // Its ghost is there, so it goes to the main queue.
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
        assert!(!cache.queues.evict_unused(&mut cache.pages));
        cache.pages.busy.clear();
        assert!(cache.queues.evict_unused(&mut cache.pages));
        assert_eq!(cache.queues.len(), 98);
    }
}
