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

    /// Returns the runs of blocks that are not in `other`.
    pub(super) fn without(&self, other: &Self) -> impl Iterator<Item = Range<u64>> {
        self.runs.iter().flat_map(|(&start, &end)| {
            let before = other.runs.range(..start).next_back();
            let holes = before.into_iter().chain(other.runs.range(start..end)).map(|(&from, &to)| from..to);
            let mut next = start;
            // An empty hole at the end returns the run after the last one.
            holes.chain(std::iter::once(end..end)).filter_map(move |hole| {
                let run = next..hole.start;
                next = next.max(hole.end);
                (run.start < run.end).then_some(run)
            })
        })
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

    fn rest(all: &[Range<u64>], without: &[Range<u64>]) -> Vec<Range<u64>> {
        set(all).without(&set(without)).collect()
    }

    #[test]
    fn runs_merge() {
        let all = set(&[10..20, 30..40, 20..22, 5..6, 38..41, 8..9]);
        assert_eq!(rest(&[0..100], &[10..20, 30..40, 20..22]), [0..10, 22..30, 40..100]);
        assert!(all.runs.iter().eq([(&5, &6), (&8, &9), (&10, &22), (&30, &41)]));
        assert!(all.contains(10..22) && all.contains(12..13) && all.contains(30..41));
        assert!(
            !all.contains(10..23) && !all.contains(9..11) && !all.contains(25..26) && !all.contains(0..1)
        );
        let all = set(&[1..2, 3..4, 5..6, 2..5]);
        assert!(all.runs.iter().eq([(&1, &6)]));
    }

    #[test]
    fn difference_of_sets() {
        assert_eq!(rest(&[10..20], &[]), [10..20]);
        assert_eq!(rest(&[10..20, 30..35], &[5..55]), []);
        assert_eq!(rest(&[10..20, 30..35], &[12..14, 18..32]), [10..12, 14..18, 32..35]);
        assert_eq!(rest(&[30..35, 10..20], &[19..20, 12..14, 12..16]), [10..12, 16..19, 30..35]);
    }
}
