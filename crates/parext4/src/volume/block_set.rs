//! A set of blocks, as runs, in which a block is found and added in logarithmic time.

use std::collections::BTreeMap;
use std::ops::Range;

/// A map from the start of each run to its end. Runs neither overlap nor touch.
#[derive(Debug, Default)]
pub(super) struct BlockSet {
    runs: BTreeMap<u64, u64>,
}

impl BlockSet {
    /// Adds `blocks`, some of which may be in the set.
    pub(super) fn add(&mut self, mut blocks: Range<u64>) {
        while let Some((&start, &end)) = self.runs.range(..=blocks.end).next_back()
            && end >= blocks.start
        {
            self.runs.remove(&start);
            blocks = blocks.start.min(start)..blocks.end.max(end);
        }
        self.runs.insert(blocks.start, blocks.end);
    }

    /// Returns true if all of `blocks` are in the set.
    pub(super) fn contains(&self, blocks: Range<u64>) -> bool {
        self.runs.range(..=blocks.start).next_back().is_some_and(|(_, &end)| end >= blocks.end)
    }

    /// Removes `blocks`, some of which may not be in the set.
    pub(super) fn remove(&mut self, blocks: Range<u64>) {
        while let Some((&start, &end)) = self.runs.range(..blocks.end).next_back()
            && end > blocks.start
        {
            self.runs.remove(&start);
            if end > blocks.end {
                self.runs.insert(blocks.end, end);
            }
            if start < blocks.start {
                self.runs.insert(start, blocks.start);
            }
        }
    }

    /// Returns the runs in ascending order.
    pub(super) fn runs(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges")]
mod tests {
    use super::*;

    fn set(runs: &[Range<u64>]) -> BlockSet {
        let mut set = BlockSet::default();
        runs.iter().for_each(|run| set.add(run.clone()));
        set
    }

    #[test]
    fn runs_merge() {
        let all = set(&[10..20, 30..40, 20..22, 5..6, 38..41, 8..9]);
        assert!(all.runs.iter().eq([(&5, &6), (&8, &9), (&10, &22), (&30, &41)]));
        assert!(all.contains(10..22) && all.contains(12..13) && all.contains(30..41));
        assert!(
            !all.contains(10..23) && !all.contains(9..11) && !all.contains(25..26) && !all.contains(0..1)
        );
        let all = set(&[1..2, 3..4, 5..6, 2..5]);
        assert!(all.runs.iter().eq([(&1, &6)]));
    }

    #[test]
    fn removed_runs_leave_the_rest() {
        let mut all = set(&[10..20, 30..35, 40..50]);
        all.remove(0..10);
        all.remove(20..30);
        assert!(all.runs().eq([10..20, 30..35, 40..50]));
        all.remove(12..14);
        all.remove(18..32);
        assert!(all.runs().eq([10..12, 14..18, 32..35, 40..50]));
        all.remove(5..45);
        assert!(all.runs().eq([45..50]));
        all.remove(0..99);
        assert!(all.runs().eq([]));
    }
}
