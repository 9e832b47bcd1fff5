//! The free extents of one block group, indexed by start and by length.

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::GroupRun;

/// The end of a free run from which blocks are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    First,
    /// The last blocks of the last run, away from blocks that are allocated from the first end.
    Last,
}

/// Free runs of blocks, by offset in the group. Adjacent runs are always joined.
#[derive(Debug, Default)]
pub(super) struct FreeExtents {
    by_start: BTreeMap<u32, u32>,
    /// The runs as `(len, start)`: the best fit is the first entry with at least the requested
    /// length.
    by_len: BTreeSet<(u32, u32)>,
}

impl FreeExtents {
    /// Estimates the memory of the runs, in bytes.
    pub(super) fn memory(&self) -> usize {
        // Each run has one entry in each tree. The nodes of a tree are about two thirds full.
        self.by_start.len() * 3 * size_of::<(u32, u32)>()
    }

    pub(super) fn largest(&self) -> u32 {
        self.by_len.last().map_or(0, |&(len, _)| len)
    }

    /// Removes `want` contiguous blocks: at `goal` if they are free, otherwise, depending on `end`,
    /// the first blocks of the best fit or the last blocks of the last run that is long enough.
    /// Returns `None` if no run is long enough.
    pub(super) fn take_whole(&mut self, goal: Option<u32>, want: u32, end: End) -> Option<GroupRun> {
        let at_goal = goal.and_then(|goal| self.at(goal)).filter(|run| run.len >= want);
        let fits = || match end {
            End::First => self.by_len.range((want, 0)..).next().map(|&(_, start)| start),
            End::Last => {
                let last = self.by_start.iter().rev().find(|&(_, &len)| len >= want);
                last.map(|(start, len)| start + len - want)
            }
        };
        let start = at_goal.map(|run| run.start).or_else(fits)?;
        let taken = GroupRun { start, len: want };
        self.remove(taken);
        Some(taken)
    }

    /// Removes up to `want` blocks: from `goal` on if that block is free, otherwise from the
    /// largest run.
    pub(super) fn take_part(&mut self, goal: Option<u32>, want: u32) -> Option<GroupRun> {
        let run = goal.and_then(|goal| self.at(goal)).or_else(|| self.largest_run())?;
        let taken = GroupRun { start: run.start, len: run.len.min(want) };
        self.remove(taken);
        Some(taken)
    }

    /// Returns the free run around `block` within `[low, high)`, or `None` if `block` is not free.
    pub(super) fn around(&self, block: u32, low: u32, high: u32) -> Option<GroupRun> {
        let (&start, &len) = self.by_start.range(..=block).next_back()?;
        let (start, end) = (start.max(low), (start + len).min(high));
        (start..end).contains(&block).then(|| GroupRun { start, len: end - start })
    }

    /// Returns the largest free run.
    pub(super) fn largest_run(&self) -> Option<GroupRun> {
        self.by_len.last().map(|&(len, start)| GroupRun { start, len })
    }

    /// Returns the free runs that end after `block`, in ascending order.
    pub(super) fn runs_from(&self, block: u32) -> impl Iterator<Item = GroupRun> {
        let before = self.by_start.range(..block).next_back().filter(|&(start, len)| start + len > block);
        before.into_iter().chain(self.by_start.range(block..)).map(|(&start, &len)| GroupRun { start, len })
    }

    /// Returns the free run from `block` on, or `None` if `block` is not free.
    fn at(&self, block: u32) -> Option<GroupRun> {
        self.around(block, block, u32::MAX)
    }

    /// Adds a run. Returns false, without effect, if a part of it is already free.
    pub(super) fn insert(&mut self, run: GroupRun) -> bool {
        let (mut start, mut end) = (run.start, run.end());
        let before = self.by_start.range(..end).next_back().map(|(&s, &l)| (s, s + l));
        if before.is_some_and(|(_, before_end)| before_end > start) {
            return false;
        }
        if let Some((before_start, before_end)) = before.filter(|&(_, before_end)| before_end == start) {
            self.drop_run(before_start, before_end - before_start);
            start = before_start;
        }
        if let Some(&after) = self.by_start.get(&end) {
            self.drop_run(end, after);
            end += after;
        }
        self.add_run(start, end - start);
        true
    }

    /// Removes blocks that are free.
    pub(super) fn remove(&mut self, run: GroupRun) {
        let Some((&free_start, &free_len)) = self.by_start.range(..=run.start).next_back() else { return };
        let (free_end, end) = (free_start + free_len, run.end());
        debug_assert!(end <= free_end, "removing blocks that are not free");
        self.drop_run(free_start, free_len);
        if free_start < run.start {
            self.add_run(free_start, run.start - free_start);
        }
        if end < free_end {
            self.add_run(end, free_end - end);
        }
    }

    fn add_run(&mut self, start: u32, len: u32) {
        self.by_start.insert(start, len);
        self.by_len.insert((len, start));
    }

    fn drop_run(&mut self, start: u32, len: u32) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(start: u32, len: u32) -> GroupRun {
        GroupRun { start, len }
    }

    #[test]
    fn whole_at_goal_or_best_fit_then_parts() {
        let mut free = FreeExtents::default();
        assert!(free.insert(run(10, 10)) && free.insert(run(40, 100)) && free.insert(run(200, 4)));
        assert_eq!(free.take_whole(Some(12), 3, End::First), Some(run(12, 3)));
        assert_eq!(free.take_whole(Some(0), 4, End::First), Some(run(200, 4)));
        assert_eq!(free.take_whole(Some(45), 1000, End::First), None);
        assert_eq!(free.take_whole(Some(0), 8, End::Last), Some(run(132, 8)));
        assert_eq!(free.around(50, 45, 60), Some(run(45, 15)));
        assert_eq!((free.around(39, 0, 99), free.around(50, 55, 60)), (None, None));
        assert!(free.runs_from(50).eq([run(40, 92)]) && free.runs_from(132).eq([]));
        assert!(free.runs_from(15).eq([run(15, 5), run(40, 92)]));
        assert_eq!(free.take_part(Some(0), 1000), Some(run(40, 92)));
        assert!(!free.insert(run(10, 1)), "a double free is noticed");
        assert!(free.insert(run(12, 3)));
        assert_eq!(free.largest(), 10);
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(ops in prop::collection::vec((0_u32..200, 1_u32..20, any::<bool>()), 1..200)) {
            let mut free = FreeExtents::default();
            let mut model = [false; 256];
            for (start, len, take) in ops {
                let end = if len % 2 == 0 { End::First } else { End::Last };
                if take {
                    let part = free.take_whole(Some(start), len, end).or_else(|| free.take_part(Some(start), len));
                    if let Some(part) = part {
                        for bit in &mut model[part.start as usize..part.end() as usize] {
                            prop_assert!(*bit);
                            *bit = false;
                        }
                    } else {
                        prop_assert!(model.iter().all(|bit| !bit));
                    }
                } else {
                    let bits = &mut model[start as usize..(start + len) as usize];
                    let clear = bits.iter().all(|bit| !*bit);
                    prop_assert_eq!(free.insert(run(start, len)), clear);
                    if clear {
                        bits.fill(true);
                    }
                }
                let total: u32 = free.by_start.values().sum();
                prop_assert_eq!(total as usize, model.iter().filter(|bit| **bit).count());
                prop_assert_eq!(free.by_start.len(), free.by_len.len());
            }
        }
    }
}
