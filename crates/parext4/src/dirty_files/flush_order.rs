//! The order in which files are written back.
//!
//! This module tracks the age of files and lets them take turns. The caller locks it. All
//! operations take constant time except the operations on all files, because many small files may
//! become dirty together.

use std::time::Duration;

use hashlink::LinkedHashMap;

use crate::clock::Instant;
use crate::memory::shrink_if_sparse;

/// The identity of a file.
type Key = usize;

/// Files with dirty pages. A large file is written back in turns, and other files are written
/// between its turns.
#[derive(Debug)]
pub(super) struct FlushOrder<T> {
    /// Files that are not old enough yet, the oldest first.
    waiting: LinkedHashMap<Key, (T, Instant)>,
    /// Files that are old enough or were prioritized, in the order of their turns.
    due: LinkedHashMap<Key, T>,
}

impl<T: Clone> FlushOrder<T> {
    pub fn new() -> Self {
        Self { waiting: LinkedHashMap::new(), due: LinkedHashMap::new() }
    }

    pub fn len(&self) -> usize {
        self.waiting.len() + self.due.len()
    }

    /// Appends a file, unless it is in the list. `now` is not before the time of any earlier call.
    pub fn add(&mut self, key: Key, file: T, now: Instant) {
        if !self.due.contains_key(&key) && !self.waiting.contains_key(&key) {
            self.waiting.insert(key, (file, now));
        }
    }

    /// Returns the next file: one that has waited for `age` or longer at `now`, or was
    /// [prioritized](Self::prioritize). The file moves to the end, and is returned again until it
    /// is [restarted](Self::restart).
    pub fn next(&mut self, now: Instant, age: Duration) -> Option<T> {
        if self.waiting.front().is_some_and(|(_, &(_, since))| now.saturating_duration_since(since) >= age)
            && let Some((key, (file, _))) = self.waiting.pop_front()
        {
            self.due.insert(key, file);
        }
        let (key, file) = self.due.pop_front()?;
        self.due.insert(key, file.clone());
        Some(file)
    }

    /// Records that the file was written back. Its age begins at `now`.
    pub fn restart(&mut self, key: Key, now: Instant) {
        if let Some(file) = self.due.remove(&key) {
            self.waiting.insert(key, (file, now));
        }
    }

    /// Makes a file the next one.
    pub fn prioritize(&mut self, key: Key) {
        if let Some((file, _)) = self.waiting.remove(&key) {
            self.due.insert(key, file);
        }
        self.due.to_front(&key);
    }

    /// Makes all files due.
    pub fn make_all_due(&mut self) {
        let waiting = self.waiting.drain();
        self.due.extend(waiting.map(|(key, (file, _))| (key, file)));
    }

    pub fn remove(&mut self, key: Key) {
        self.waiting.remove(&key);
        self.due.remove(&key);
        shrink_if_sparse(&mut self.waiting);
        shrink_if_sparse(&mut self.due);
    }

    /// Returns all files, in the order of their turns.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.due.values().chain(self.waiting.values().map(|(file, _)| file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(10);

    /// Returns a list of files added one second after the other. Each file equals its key.
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
        // One more file becomes due before each turn, until all are due.
        assert_eq!([(); 6].map(|()| take(&mut turns)), [1, 1, 2, 1, 3, 2]);
        turns.add(4, 4, at(start, 4));
        assert_eq!([(); 6].map(|()| take(&mut turns)), [1, 3, 2, 4, 1, 3]);
    }

    #[test]
    fn who_is_hurried_is_first_whether_it_has_begun_or_not() {
        let (mut turns, start) = turns(1..4);
        turns.prioritize(2);
        assert_eq!(order(&turns), [2, 1, 3]);
        turns.prioritize(3);
        turns.prioritize(2);
        turns.prioritize(7);
        assert_eq!(order(&turns), [2, 3, 1]);
        assert_eq!([(); 3].map(|()| turns.next(start, AGE)), [2, 3, 2].map(Some));
        turns.make_all_due();
        turns.restart(2, at(start, 9));
        assert_eq!(order(&turns), [3, 1, 2]);
    }

    #[test]
    fn a_file_is_there_once_and_gone_when_removed() {
        let (mut turns, start) = turns(1..3);
        turns.add(1, 1, start);
        turns.prioritize(1);
        turns.add(1, 1, start);
        assert_eq!(turns.len(), 2);
        turns.remove(1);
        turns.restart(1, start);
        turns.remove(2);
        assert_eq!((turns.next(at(start, 20), AGE), turns.len()), (None, 0));
    }
}
