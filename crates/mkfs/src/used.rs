//! The blocks of the new volume that are in use, as runs. The number of runs grows with the number
//! of flex groups, not with the number of blocks.
//!
//! Invariant: runs neither overlap nor touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// The blocks in use: a map from the start of each run to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsedBlocks {
    runs: BTreeMap<u64, u64>,
    /// Number of blocks in the unit of allocation, to which `runs` are rounded out; 0 for 1.
    unit: u64,
}

impl UsedBlocks {
    /// Makes `unit` blocks the unit of allocation: marks the rest of each unit that has a used
    /// block.
    pub(crate) fn round_out(&mut self, unit: u64) {
        self.unit = unit;
        for (start, end) in std::mem::take(&mut self.runs) {
            let start = start - start % unit;
            match self.runs.last_entry() {
                Some(mut last) if start <= *last.get() => *last.get_mut() = end.next_multiple_of(unit),
                _ => drop(self.runs.insert(start, end.next_multiple_of(unit))),
            }
        }
    }

    /// Marks `run`, whose blocks are all free, as used. The run begins with a unit of allocation,
    /// and is rounded up to whole units.
    pub(crate) fn mark(&mut self, run: Range<u64>) {
        let mut run = run.start..run.end.next_multiple_of(self.unit.max(1));
        debug_assert_eq!(self.count(run.clone()), 0);
        if let Some((&start, &end)) = self.runs.range(..run.start).next_back()
            && end == run.start
        {
            run.start = start;
        }
        if let Some(end) = self.runs.remove(&run.end) {
            run.end = end;
        }
        self.runs.insert(run.start, run.end);
    }

    /// Returns the used runs within `range`, clipped to it.
    pub(crate) fn runs(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let before = self.runs.range(..range.start).next_back();
        let inside = self.runs.range(range.clone());
        before
            .into_iter()
            .chain(inside)
            .map(move |(&start, &end)| start.max(range.start)..end.min(range.end))
            .filter(|run| run.start < run.end)
    }

    /// Returns the free runs within `range`.
    pub(crate) fn free_runs(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let mut next = range.start;
        let end = range.end;
        // An empty used run at the end makes the loop return the free run after the last used one.
        self.runs(range).chain(std::iter::once(end..end)).filter_map(move |used| {
            let free = next..used.start;
            next = used.end;
            (free.start < free.end).then_some(free)
        })
    }

    /// Returns the number of used blocks in `range`.
    pub(crate) fn count(&self, range: Range<u64>) -> u64 {
        self.runs(range).map(|run| run.end - run.start).sum()
    }

    /// Allocates the first free run of `len` blocks within `range`. Returns `None` if there is
    /// none.
    pub(crate) fn allocate(&mut self, range: Range<u64>, len: u64) -> Option<Range<u64>> {
        let start = self.free_runs(range).find(|run| run.end - run.start >= len)?.start;
        self.mark(start..start + len);
        Some(start..start + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_merge_and_are_clipped() {
        let mut used = UsedBlocks::default();
        for run in [0..4, 8..12, 4..6, 6..8, 20..21] {
            used.mark(run);
        }
        assert_eq!(used.runs(0..100).collect::<Vec<_>>(), [0..12, 20..21]);
        assert!(used.runs(5..20).eq(std::iter::once(5..12)));
        assert_eq!(used.free_runs(5..30).collect::<Vec<_>>(), [12..20, 21..30]);
        assert_eq!(used.free_runs(0..12).count(), 0);
        assert_eq!(used.count(0..30), 13);
        assert_eq!(used.allocate(0..30, 9), Some(21..30));
        assert_eq!(used.allocate(0..30, 9), None);
        assert_eq!(used.allocate(0..30, 8), Some(12..20));
    }
}
