//! Checks that a history is linearizable: that each operation took effect at one moment between its
//! start and its end.
//!
//! Every operation on a file holds its range from its first lookup to its last change. So one order
//! of all operations explains every read. The rules below follow from that. Only rule 6 builds the
//! order:
//!
//! 1. a sector holds zeros, or data that an operation wrote there which began before the read
//!    ended;
//! 2. not stale: no other write of the sector began after that operation ended and was over before
//!    the read began;
//! 3. not torn: a read that returns an operation's data in one sector returns nothing older in
//!    another sector;
//! 4. the size that a read found is the end of an operation, and no older than the read;
//! 5. an append went to the end of the file, and no two appends overlap;
//! 6. the relations "was overwritten by", as reads returned it, and "was over before the other
//!    began" form no cycle.
//!
//! An operation is over when it returns, or when a read that returns its data returns.
//!
//! Where overwrites share the file with reads and with each other, as under the policies that lock
//! whole files, only rules about single sectors apply: rules 3 and 6 do not, and a read that
//! returns an operation's data does not mean that the operation is over.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::history::{Change, Effect, Log, Read};
use crate::sector::{Seen, Stamp};

/// How overwrites take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrites {
    /// Each at one moment.
    Whole,
    /// Sector by sector.
    BySector,
}

/// Checks a history that began with a file of the sectors `base`.
///
/// # Errors
/// The read or change that no order explains.
pub fn explain(base: &[Seen], log: &Log, overwrites: Overwrites) -> Result<(), String> {
    let mut checker = Checker::new(base, log, overwrites);
    for (number, read) in log.reads.iter().enumerate() {
        checker.mark(number, read)?;
        checker.contents(number, read).and_then(|()| checker.size(number, read)).map_err(|e| {
            format!(
                "the {} read of {}..{} between {} and {}: {e}",
                read.way, read.first, read.wanted, read.start, read.end
            )
        })?;
    }
    checker.appends()?;
    if overwrites == Overwrites::Whole { checker.order() } else { Ok(()) }
}

struct Checker<'a> {
    base: &'a [Seen],
    overwrites: Overwrites,
    /// `end` is when the change was over.
    changes: Vec<Change>,
    /// By sector: the changes that wrote it.
    writers: HashMap<u64, Vec<usize>>,
    /// The changes that set the size.
    cuts: Vec<usize>,
    by_stamp: HashMap<Stamp, usize>,
    /// By change: the last read that returned its data.
    shown_in: Vec<Option<usize>>,
    /// The first change was overwritten by the second.
    edges: HashSet<(usize, usize)>,
}

impl<'a> Checker<'a> {
    fn new(base: &'a [Seen], log: &Log, overwrites: Overwrites) -> Self {
        let changes = log.changes.clone();
        let mut checker = Self {
            base,
            overwrites,
            writers: HashMap::new(),
            cuts: Vec::new(),
            by_stamp: HashMap::new(),
            shown_in: vec![None; changes.len()],
            edges: HashSet::new(),
            changes,
        };
        for (index, change) in checker.changes.iter().enumerate() {
            match change.effect {
                Effect::Write { first, end, stamp, .. } => {
                    checker.by_stamp.insert(stamp, index);
                    (first..end).for_each(|s| checker.writers.entry(s).or_default().push(index));
                }
                Effect::SetLen { .. } => checker.cuts.push(index),
                Effect::Zero { first, end, .. } => {
                    (first..end).for_each(|s| checker.writers.entry(s).or_default().push(index));
                }
                Effect::Allocate { .. } => {}
            }
        }
        if overwrites == Overwrites::Whole {
            log.reads.iter().for_each(|read| checker.tighten(read));
        }
        checker
    }

    /// Before any rule is applied: a change is over once a read has returned its data.
    fn tighten(&mut self, read: &Read) {
        for run in &read.runs {
            if let Seen::Data(stamp) = run.seen
                && let Some(&index) = self.by_stamp.get(&stamp)
            {
                let change = &mut self.changes[index];
                change.end = change.end.min(read.end);
            }
        }
    }

    fn base_at(&self, sector: u64) -> Seen {
        usize::try_from(sector).ok().and_then(|at| self.base.get(at)).copied().unwrap_or(Seen::Zero)
    }

    fn base_size(&self) -> u64 {
        self.base.len() as u64
    }

    fn describe(&self, index: usize) -> String {
        let change = &self.changes[index];
        format!("{} {:?} between {} and {}", change.way, change.effect, change.start, change.end)
    }

    /// Notes the changes whose data the read returned, after rule 1 for each.
    fn mark(&mut self, number: usize, read: &Read) -> Result<(), String> {
        for run in &read.runs {
            let Seen::Data(stamp) = run.seen else { continue };
            let Some(&index) = self.by_stamp.get(&stamp) else { continue };
            let change = &self.changes[index];
            let Effect::Write { first, end, .. } = change.effect else { continue };
            if run.first < first || end < run.end || change.start > read.end {
                return Err(format!(
                    "{run:?} returned between {} and {} was never written by {}",
                    read.start,
                    read.end,
                    self.describe(index)
                ));
            }
            self.shown_in[index] = Some(number);
        }
        Ok(())
    }

    /// Rules 1, 2 and 3, sector by sector.
    fn contents(&mut self, number: usize, read: &Read) -> Result<(), String> {
        for run in &read.runs {
            let source = match run.seen {
                Seen::Data(stamp) => self.by_stamp.get(&stamp).copied(),
                Seen::Zero => None,
            };
            for sector in run.first..run.end {
                let result = match (run.seen, source) {
                    (Seen::Zero, _) => self.zero(number, read, sector),
                    (Seen::Data(_), Some(source)) => self.written(number, read, sector, source),
                    (seen, None) => self.kept(number, read, sector, seen),
                };
                result.map_err(|e| format!("sector {sector} holds {:?}: {e}", run.seen))?;
            }
        }
        Ok(())
    }

    /// Returns the changes of the sector that took effect before the read.
    fn known<'b>(&'b self, number: usize, read: &'b Read, sector: u64) -> impl Iterator<Item = usize> + 'b {
        let writers = self.writers.get(&sector).map_or(&[][..], Vec::as_slice);
        let shown =
            move |index: usize| self.overwrites == Overwrites::Whole && self.shown_in[index] == Some(number);
        let before = move |&index: &usize| self.changes[index].end < read.start || shown(index);
        writers.iter().copied().filter(before)
    }

    fn known_cuts<'b>(&'b self, read: &'b Read, sector: u64) -> impl Iterator<Item = usize> + 'b {
        let before = move |&index: &usize| {
            let cut = &self.changes[index];
            cut.effect.end() <= sector && cut.end < read.start
        };
        self.cuts.iter().copied().filter(before)
    }

    /// Checks a sector with data of a change of this round.
    fn written(&mut self, number: usize, read: &Read, sector: u64, source: usize) -> Result<(), String> {
        let over = self.changes[source].end;
        let mut edges = Vec::new();
        for index in self.known(number, read, sector).chain(self.known_cuts(read, sector)) {
            let change = &self.changes[index];
            if index == source {
                continue;
            }
            if over < change.start {
                let (index, source) = (self.describe(index), self.describe(source));
                return Err(format!(
                    "{source} is older than {index}, which the read returned or began after"
                ));
            }
            if change.end >= self.changes[source].start {
                edges.push((index, source));
            }
        }
        self.edges.extend(edges);
        Ok(())
    }

    /// Checks a sector with its contents from before the round.
    fn kept(&self, number: usize, read: &Read, sector: u64, seen: Seen) -> Result<(), String> {
        if self.base_at(sector) != seen {
            return Err(format!("it held {:?} when the round began", self.base_at(sector)));
        }
        match self.known(number, read, sector).chain(self.known_cuts(read, sector)).next() {
            Some(index) => {
                Err(format!("older than {}, which the read returned or began after", self.describe(index)))
            }
            None => Ok(()),
        }
    }

    /// Checks a sector of zeros: never written, or truncated or zeroed since.
    fn zero(&self, number: usize, read: &Read, sector: u64) -> Result<(), String> {
        let newest = self.known(number, read, sector).max_by_key(|&index| self.changes[index].start);
        let Some(newest) = newest else {
            if self.base_at(sector) == Seen::Zero {
                return Ok(());
            }
            return if self.cut_since(0, read, sector) { Ok(()) } else { Err("nothing cut it off".into()) };
        };
        if self.cut_since(self.changes[newest].start, read, sector) {
            return Ok(());
        }
        Err(format!(
            "no truncation removed it since {}, which the read returned or began after",
            self.describe(newest)
        ))
    }

    /// Returns true if the sector was truncated or zeroed.
    fn cut_since(&self, moment: u64, read: &Read, sector: u64) -> bool {
        let in_time = |change: &Change| change.start < read.end && change.end >= moment;
        let cut = |change: &Change| change.effect.end() <= sector && in_time(change);
        let zeroes = |change: &Change| matches!(change.effect, Effect::Zero { .. }) && in_time(change);
        let writers = self.writers.get(&sector).map_or(&[][..], Vec::as_slice);
        self.cuts.iter().any(|&index| cut(&self.changes[index]))
            || writers.iter().any(|&index| zeroes(&self.changes[index]))
    }

    /// Returns true if a size below `size` was set at a moment from `since` to `until`.
    fn shrunk(&self, size: u64, since: u64, until: u64) -> bool {
        self.cuts.iter().any(|&index| {
            let cut = &self.changes[index];
            cut.effect.end() < size && cut.end >= since && cut.start <= until
        })
    }

    /// Rule 4.
    fn size(&self, number: usize, read: &Read) -> Result<(), String> {
        let end = read.end_of_data;
        if end < read.wanted {
            // The file ended at `end`, or before it if nothing was read.
            if self.base_size() > end && !self.shrunk(self.base_size(), 0, read.end) {
                return Err(format!(
                    "it ended at {end}, but the file never shrank below {}",
                    self.base_size()
                ));
            }
            for (index, change) in self.changes.iter().enumerate() {
                let grown = change.effect.end();
                let before = change.end < read.start || self.shown_in[index] == Some(number);
                if grown > end && before && !self.shrunk(grown, change.start, read.end) {
                    return Err(format!("it ended at {end} in spite of {}", self.describe(index)));
                }
            }
        }
        if end > read.first {
            self.covered(read, end)?;
        }
        Ok(())
    }

    /// Checks that the size may have been at least `end`, and exactly that if the read stopped
    /// there.
    fn covered(&self, read: &Read, end: u64) -> Result<(), String> {
        let exact = end < read.wanted;
        let fits = |size: u64| if exact { size == end } else { size >= end };
        // True if a smaller size was set after `since` and before the read.
        let undone = |since: u64| {
            self.cuts.iter().any(|&index| {
                let cut = &self.changes[index];
                cut.effect.end() < end && since < cut.start && cut.end < read.start
            })
        };
        let grown =
            |change: &Change| fits(change.effect.end()) && change.start < read.end && !undone(change.end);
        if (fits(self.base_size()) && !undone(0)) || self.changes.iter().any(grown) {
            return Ok(());
        }
        Err(format!("it ended at {end}, which is the end of no operation"))
    }

    /// Rule 5.
    fn appends(&self) -> Result<(), String> {
        let appends: Vec<(usize, u64, u64)> = (0..self.changes.len())
            .filter_map(|index| match self.changes[index].effect {
                Effect::Write { first, end, append: true, .. } => Some((index, first, end)),
                _ => None,
            })
            .collect();
        for (nth, &(index, first, end)) in appends.iter().enumerate() {
            let append = &self.changes[index];
            let is_end = |other: &Change| other.effect.end() == first && other.start < append.end;
            // An append that claimed the range before this one may have moved when the size was
            // set.
            let voided = self.cuts.iter().any(|&index| self.changes[index].end >= append.start);
            if self.base_size() != first && !voided && !self.changes.iter().any(is_end) {
                return Err(format!("{}: nothing ended there", self.describe(index)));
            }
            if self.base_size() > first && !self.shrunk(first + 1, 0, append.end) {
                return Err(format!(
                    "{}: the file began with size {}",
                    self.describe(index),
                    self.base_size()
                ));
            }
            for (earlier, other) in self.changes.iter().enumerate() {
                let passed = other.effect.end() > first && other.end < append.start;
                if passed && !self.shrunk(first + 1, other.start, append.end) {
                    return Err(format!(
                        "{} does not begin at the end of {}",
                        self.describe(index),
                        self.describe(earlier)
                    ));
                }
            }
            for &(other, other_first, other_end) in &appends[nth + 1..] {
                let (a, b) = (&self.changes[index], &self.changes[other]);
                let overlap = first < other_end && other_first < end;
                if overlap && !self.shrunk(end.min(other_end), a.start.min(b.start), a.end.max(b.end)) {
                    return Err(format!("{} overlaps {}", self.describe(index), self.describe(other)));
                }
            }
        }
        Ok(())
    }

    /// Rule 6: sorts the changes by their known order.
    fn order(&self) -> Result<(), String> {
        let mut after: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut waits = vec![0_u32; self.changes.len()];
        for &(first, second) in &self.edges {
            after.entry(first).or_default().push(second);
            waits[second] += 1;
        }
        let mut placed = vec![false; self.changes.len()];
        let indices = || 0..self.changes.len();
        let mut ready: BinaryHeap<_> =
            indices().filter(|&i| waits[i] == 0).map(|i| Reverse((self.changes[i].start, i))).collect();
        let mut by_end: Vec<usize> = indices().collect();
        by_end.sort_by_key(|&index| self.changes[index].end);
        let mut open = by_end.iter().copied().peekable();
        for _ in indices() {
            while open.next_if(|&index| placed[index]).is_some() {}
            let first_over = open.peek().copied().expect("something is not placed yet");
            let next = ready.pop().map(|Reverse((_, index))| index);
            let Some(next) = next.filter(|&n| self.changes[n].start <= self.changes[first_over].end) else {
                let edges: Vec<_> = self.edges.iter().filter(|&&(_, second)| second == first_over).collect();
                let before: Vec<_> = edges.iter().map(|&&(first, _)| self.describe(first)).collect();
                return Err(format!(
                    "a circle through {}, which overwrote {before:?}",
                    self.describe(first_over)
                ));
            };
            placed[next] = true;
            for &later in after.get(&next).map_or(&[][..], Vec::as_slice) {
                waits[later] -= 1;
                if waits[later] == 0 {
                    ready.push(Reverse((self.changes[later].start, later)));
                }
            }
        }
        Ok(())
    }
}
