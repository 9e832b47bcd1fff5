//! In which order files are written back. All operations but those on all files take constant time: many small files
//! become dirty together.

use std::time::{Duration, Instant};

use hashlink::LinkedHashMap;

/// What identifies a file here.
type Key = usize;

/// Files that have something to write back. Those with much have turns, and others come in between.
#[derive(Debug)]
pub(super) struct FlushOrder<T> {
    /// Those that wait until they are old enough, the oldest first.
    waiting: LinkedHashMap<Key, (T, Instant)>,
    /// Those whose turn has come, which may not be over after one.
    begun: LinkedHashMap<Key, T>,
}

impl<T: Clone> FlushOrder<T> {
    pub fn new() -> Self {
        Self { waiting: LinkedHashMap::new(), begun: LinkedHashMap::new() }
    }

    pub fn len(&self) -> usize {
        self.waiting.len() + self.begun.len()
    }

    /// Puts a file last, unless it is there. `now` is later than at earlier calls.
    pub fn add(&mut self, key: Key, file: T, now: Instant) {
        if !self.begun.contains_key(&key) && !self.waiting.contains_key(&key) {
            self.waiting.insert(key, (file, now));
        }
    }

    /// The file whose turn it is: one that has waited for `age` or longer by now, or was [hurried](Self::hurry). It
    /// comes again after the others, until it is [restarted](Self::restart).
    pub fn next(&mut self, now: Instant, age: Duration) -> Option<T> {
        if self.waiting.front().is_some_and(|(_, &(_, since))| now.saturating_duration_since(since) >= age)
            && let Some((key, (file, _))) = self.waiting.pop_front()
        {
            self.begun.insert(key, file);
        }
        let (key, file) = self.begun.pop_front()?;
        self.begun.insert(key, file.clone());
        Some(file)
    }

    /// What waited in a file is written back: what it has to write back now, it has had since `now`.
    pub fn restart(&mut self, key: Key, now: Instant) {
        if let Some(file) = self.begun.remove(&key) {
            self.waiting.insert(key, (file, now));
        }
    }

    /// Makes it a file's turn.
    pub fn hurry(&mut self, key: Key) {
        if let Some((file, _)) = self.waiting.remove(&key) {
            self.begun.insert(key, file);
        }
        self.begun.to_front(&key);
    }

    /// Makes it the turn of all files.
    pub fn hurry_all(&mut self) {
        let waiting = self.waiting.drain();
        self.begun.extend(waiting.map(|(key, (file, _))| (key, file)));
    }

    pub fn remove(&mut self, key: Key) {
        self.waiting.remove(&key);
        self.begun.remove(&key);
    }

    /// All files, in the order of their turns.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.begun.values().chain(self.waiting.values().map(|(file, _)| file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(10);

    /// A second after the other, files that are called as their keys.
    fn turns(keys: std::ops::Range<usize>) -> (FlushOrder<usize>, Instant) {
        let (mut turns, start) = (FlushOrder::new(), Instant::now());
        for key in keys {
            turns.add(key, key, at(start, key));
        }
        (turns, start)
    }

    fn at(start: Instant, seconds: usize) -> Instant {
        start + Duration::from_secs(seconds as u64)
    }

    fn order(turns: &FlushOrder<usize>) -> Vec<usize> {
        turns.all().copied().collect()
    }

    #[test]
    fn the_oldest_comes_first_once_it_is_due() {
        let (mut turns, start) = turns(1..4);
        assert_eq!(turns.next(at(start, 10), AGE), None);
        assert_eq!(turns.next(at(start, 11), AGE), Some(1));
        turns.restart(1, at(start, 11));
        assert_eq!(turns.next(at(start, 11), AGE), None);
        assert_eq!((order(&turns), turns.len()), (vec![2, 3, 1], 3));
    }

    #[test]
    fn one_that_takes_several_turns_and_those_that_come_share_them() {
        let (mut turns, start) = turns(1..4);
        let now = at(start, 15);
        let take = |turns: &mut FlushOrder<usize>| turns.next(now, AGE).expect("there are some");
        // One comes in between each two turns, until all have begun.
        assert_eq!([(); 6].map(|()| take(&mut turns)), [1, 1, 2, 1, 3, 2]);
        turns.add(4, 4, at(start, 4));
        assert_eq!([(); 6].map(|()| take(&mut turns)), [1, 3, 2, 4, 1, 3]);
    }

    #[test]
    fn who_is_hurried_is_first_whether_it_has_begun_or_not() {
        let (mut turns, start) = turns(1..4);
        turns.hurry(2);
        assert_eq!(order(&turns), [2, 1, 3]);
        turns.hurry(3);
        turns.hurry(2);
        turns.hurry(7);
        assert_eq!(order(&turns), [2, 3, 1]);
        assert_eq!([(); 3].map(|()| turns.next(start, AGE)), [2, 3, 2].map(Some));
        turns.hurry_all();
        turns.restart(2, at(start, 9));
        assert_eq!(order(&turns), [3, 1, 2]);
    }

    #[test]
    fn a_file_is_there_once_and_gone_when_removed() {
        let (mut turns, start) = turns(1..3);
        turns.add(1, 1, start);
        turns.hurry(1);
        turns.add(1, 1, start);
        assert_eq!(turns.len(), 2);
        turns.remove(1);
        turns.restart(1, start);
        turns.remove(2);
        assert_eq!((turns.next(at(start, 20), AGE), turns.len()), (None, 0));
    }
}
