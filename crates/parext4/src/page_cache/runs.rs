//! Runs of dirty pages for write-back.
//!
//! This module finds the runs and changes no page. A run continues over a limited number of clean
//! pages between dirty ones, because a device writes one long run faster than two short ones.

use smallvec::SmallVec;

use super::page_index::{PageIndex, PageRange};
use super::state::PageState;

/// Runs of pages, in ascending order.
pub type DirtyRuns = SmallVec<[PageRange; 16]>;

/// Limits of the result of [`FilePages::dirty_runs`](super::FilePages::dirty_runs).
#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    /// Limit of pages in all runs, clean pages included.
    pub pages: u32,
    /// Limit of pages in one run.
    pub run: u32,
    /// Limit of clean pages between two dirty pages of a run.
    pub gap: u32,
}

/// Finds the runs in pages that are visited in ascending order.
#[derive(Debug)]
pub(super) struct RunFinder {
    pub runs: DirtyRuns,
    limits: RunLimits,
    /// Number of pages in all runs.
    pages: u32,
    /// The page after the last run and the clean pages that follow the run.
    next: PageIndex,
}

impl RunFinder {
    pub fn new(limits: RunLimits) -> Self {
        Self { runs: DirtyRuns::new(), limits, pages: 0, next: PageIndex::ZERO }
    }

    /// Returns true if the runs have reached the limit of pages.
    pub fn is_full(&self) -> bool {
        self.pages >= self.limits.pages
    }

    /// Adds a dirty page to the last run or begins a new run with it. Skips a clean page, over
    /// which a run may continue.
    pub fn visit(&mut self, index: PageIndex, state: PageState) {
        let Self { limits, pages, .. } = *self;
        let last = self.runs.last_mut().filter(|_| self.next == index);
        if state.dirty() != 0 {
            self.next = index + 1;
            match last {
                Some(run)
                    if index - run.start() < limits.run && pages + (index - run.end()) < limits.pages =>
                {
                    self.pages += index + 1 - run.end();
                    *run = PageRange::new(run.start(), index + 1);
                }
                _ => {
                    self.pages += 1;
                    self.runs.push(PageRange::of_page(index));
                }
            }
        } else if let Some(run) = last
            && state.is_clean()
            && index - run.end() < limits.gap
        {
            self.next = index + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the runs of pages that are given by a letter each: `d` dirty, `c` clean, `.`
    /// missing.
    fn runs(pages: &str, (most, run, gap): (u32, u32, u32)) -> String {
        let mut finder = RunFinder::new(RunLimits { pages: most, run, gap });
        for (index, letter) in (0..).zip(pages.chars()).filter(|&(_, letter)| letter != '.') {
            finder.visit(PageIndex(index), PageState::filled(7, u8::from(letter == 'd'), 0));
            if finder.is_full() {
                break;
            }
        }
        finder.runs.iter().map(|run| format!("{}-{} ", run.start(), run.end())).collect()
    }

    #[test]
    fn runs_go_on_over_few_clean_pages() {
        let rows = [
            ("ddcdc", (9, 9, 0), "0-2 3-4 "),
            ("ddcdc", (9, 9, 1), "0-4 "),
            ("dccd", (9, 9, 1), "0-1 3-4 "),
            ("dc.d", (9, 9, 3), "0-1 3-4 "),
            ("cdccdcccd", (9, 9, 2), "1-5 8-9 "),
            ("dddd", (9, 2, 1), "0-2 2-4 "),
            ("ddcdcd", (4, 9, 1), "0-4 "),
            ("cc.c", (9, 9, 9), ""),
        ];
        for (pages, limits, expected) in rows {
            assert_eq!(runs(pages, limits), expected, "{pages} {limits:?}");
        }
    }
}
