//! What may be found after a crash.
//!
//! | call that returned before the crash | what is found |
//! |---|---|
//! | any operation on names or attributes | the names and attributes of one point of the history: operations commit in order, whole |
//! | sync of the volume | a point not before the sync; all data as at the sync, or later |
//! | sync of a file or directory | a point not before its last change of names or attributes; its data and size as at the sync, or later |
//! | `sync_data` | like a sync of the file; it promises no attributes |
//! | `sync_range`, a write through a handle that syncs each | like `sync_data`, of the bytes of the range |
//! | a commit without write-back, a timed commit, an emptied journal | a point not before the commit; no data |
//! | rename over a file, exchange | if the point is not before the rename, the data that the renamed file had at the rename, or later |
//!
//! Data is checked byte by byte: each byte is one that the file had at that offset at a time since
//! it was durable. So a byte that was never written to the file fails. Zeros are also found where
//! the file had zeros or no byte since then, because delayed allocation commits a size before the
//! data below it, and because a truncation, a punch or a zeroing zeroes the edges of its range
//! before it is durable. A write over blocks that a collapse or an insertion has moved may be found
//! where they were, if the crash loses the move. "Known limits" in docs/design.md has both.

use std::collections::{BTreeMap, BTreeSet};

use crate::generate::trees_from;
use crate::op::{Op, PIECE, Persist, Step};
use crate::tree::{Kind, Tree};

/// Bytes by which a collapse or an insertion moves data, and its offset.
const MOVED: usize = PIECE as usize;

/// The bytes of a file that a sync of a range has made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SyncedRange {
    key: usize,
    offset: u64,
    end: u64,
    point: usize,
}

/// The points of a history that calls have made durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    /// The point at or after which names and attributes are found.
    pub names: usize,
    /// By file: the point at or after which its data is found.
    data: BTreeMap<usize, usize>,
    ranges: Vec<SyncedRange>,
}

impl Durable {
    /// Adds what else is certain.
    pub fn merge(&mut self, more: &Self) {
        self.names = self.names.max(more.names);
        for (&key, &point) in &more.data {
            let data = self.data.entry(key).or_default();
            *data = point.max(*data);
        }
        self.ranges.extend(more.ranges.iter().cloned());
    }
}

/// The points of the history of one thread.
#[derive(Debug)]
pub struct Oracle {
    /// The tree before the first operation, and after each.
    trees: Vec<Tree>,
    ops: Vec<Op>,
}

impl Oracle {
    /// Returns the oracle of steps of a thread that succeed.
    ///
    /// # Panics
    /// If a step would fail.
    pub fn new(thread: u8, steps: &[Step]) -> Self {
        Self::starting_from(Tree::initial(thread), thread, steps)
    }

    /// Like [`new`](Self::new), from another tree. `writer` chooses the bytes that the steps write.
    ///
    /// # Panics
    /// If a step would fail.
    pub fn starting_from(first: Tree, writer: u8, steps: &[Step]) -> Self {
        let trees =
            trees_from(first, writer, steps).unwrap_or_else(|| panic!("a step of {steps:?} is impossible"));
        Self { trees, ops: steps.iter().map(|step| step.0).collect() }
    }

    /// Returns what the persistence of step `nth` makes durable.
    pub fn persisted(&self, nth: usize, persist: Persist) -> Durable {
        let (now, target) = (nth + 1, self.ops[nth].target());
        let mut durable = Durable::default();
        let key = self.trees[now].file(target);
        match persist {
            Persist::None => return self.returned(nth),
            Persist::Parent => durable.names = self.last_change(self.ops[nth].parent(), now, true),
            Persist::Volume => return self.all(now),
            Persist::Commit | Persist::Timed | Persist::Empty(_) => durable.names = now,
            Persist::All | Persist::Data | Persist::Range => {
                durable.names = self.last_change(target, now, persist == Persist::All);
            }
        }
        match (persist, key) {
            (Persist::All | Persist::Data, Some(key)) => drop(durable.data.insert(key, now)),
            (Persist::Range, Some(key)) => durable.ranges.push(self.range(nth, key)),
            _ => {}
        }
        durable.merge(&self.returned(nth));
        durable
    }

    /// Returns what is durable when the operation of step `nth` returns.
    fn returned(&self, nth: usize) -> Durable {
        let (op, now) = (&self.ops[nth], nth + 1);
        let mut durable = Durable::default();
        if let Some(key) = self.trees[now].file(op.target()).filter(|_| op.is_synced()) {
            durable.names = self.last_change(op.target(), now, false);
            durable.ranges.push(self.range(nth, key));
        }
        durable
    }

    /// Returns the range of step `nth`, as its sync makes it durable.
    fn range(&self, nth: usize, key: usize) -> SyncedRange {
        let (offset, len) = self.ops[nth].range(self.trees[nth + 1].files[key].len() as u64);
        SyncedRange { key, offset, end: offset + len, point: nth + 1 }
    }

    /// Returns what is certain after a sync of the volume.
    pub fn all(&self, point: usize) -> Durable {
        let files = 0..self.trees[point].files.len();
        Durable { names: point, data: files.map(|key| (key, point)).collect(), ranges: Vec::new() }
    }

    /// Returns the last point at which an operation named the inode at `path`, or with `attributes`
    /// changed it.
    fn last_change(&self, path: &str, now: usize, attributes: bool) -> usize {
        let entry = self.trees[now].names.get(path);
        let same = |point: usize| match (self.trees[point].names.get(path), entry) {
            (Some(then), Some(entry)) => {
                then.kind == entry.kind && (!attributes || then.attributes == entry.attributes)
            }
            (then, entry) => then.is_none() == entry.is_none(),
        };
        let is_directory = entry.is_none_or(|entry| entry.kind == Kind::Directory);
        (1..=now)
            .rev()
            .find(|&point| {
                let children = |point: usize| self.trees[point].children(path);
                !same(point - 1) || is_directory && children(point) != children(point - 1)
            })
            .unwrap_or(0)
    }

    /// Checks what was found after a crash: names and attributes of a point from `durable` to
    /// `begun`, and the contents of files. Returns the points that it may be.
    ///
    /// # Errors
    /// What is missing, or should not be there.
    pub fn check(&self, found: &Tree, durable: &Durable, begun: usize) -> Result<BTreeSet<usize>, String> {
        let begun = begun.max(durable.names);
        let mut last =
            format!("names and attributes of no point {}..={begun}: {:?}", durable.names, found.names);
        let mut points = BTreeSet::new();
        for point in durable.names..=begun {
            if !self.trees[point].has_names_of(found) {
                continue;
            }
            match self.check_files(point, found, durable, begun) {
                Ok(()) => drop(points.insert(point)),
                Err(error) => last = format!("with the names of point {point}, {error}"),
            }
        }
        if points.is_empty() { Err(last) } else { Ok(points) }
    }

    fn check_files(&self, point: usize, found: &Tree, durable: &Durable, begun: usize) -> Result<(), String> {
        for (path, entry) in &found.names {
            let (Kind::File(at), Some(key)) = (&entry.kind, self.trees[point].file(path)) else { continue };
            let since = self.since(key, point, durable);
            let ranges = durable.ranges.iter().filter(|range| range.key == key);
            let ranges: Vec<_> = ranges.filter_map(|range| self.unmoved(range, begun)).collect();
            self.check_file(key, &found.files[*at], (since, point.max(since), begun), &ranges)
                .map_err(|e| format!("{path}: {e}"))?;
        }
        Ok(())
    }

    /// Returns the part of a synced range that no later operation has moved.
    fn unmoved(&self, range: &SyncedRange, begun: usize) -> Option<SyncedRange> {
        let is_moved = self.shifts_after(range.key, range.point, begun) > 0;
        let end = if is_moved { range.end.min(PIECE) } else { range.end };
        (range.offset < end).then(|| SyncedRange { end, ..range.clone() })
    }

    /// Returns the number of operations after `point` that move data of a file.
    fn shifts_after(&self, key: usize, point: usize, begun: usize) -> usize {
        let moves = |nth: &usize| {
            self.ops[*nth].shifts() && self.trees[*nth].file(self.ops[*nth].target()) == Some(key)
        };
        (point..begun).filter(moves).count()
    }

    /// Returns the point since which the data of a file may be found, if names are found as at
    /// `point`.
    fn since(&self, key: usize, point: usize, durable: &Durable) -> usize {
        let synced = durable.data.get(&key).copied().unwrap_or(0);
        let replaces = |nth: &usize| match self.ops[*nth] {
            Op::Rename(from, to) => {
                let before = &self.trees[*nth];
                before.file(from) == Some(key) && before.file(to).is_some()
            }
            Op::Exchange(one, two) => [one, two].iter().any(|path| self.trees[*nth].file(path) == Some(key)),
            _ => false,
        };
        (0..point).rev().find(replaces).map_or(synced, |nth| synced.max(nth))
    }

    fn check_file(
        &self,
        key: usize,
        seen: &[u8],
        (since, point, begun): (usize, usize, usize),
        ranges: &[SyncedRange],
    ) -> Result<(), String> {
        let possible = |since: usize| self.trees[since..=begun].iter().filter_map(|tree| tree.files.get(key));
        let moves = self.shifts_after(key, since, begun);
        let was = |at: usize, since: usize, byte: u8| {
            possible(since).any(|bytes| bytes.get(at).copied().unwrap_or(0) == byte)
        };
        // The size changes in the order of the names, which are of `point`.
        let sizes = || self.trees[since..=point].iter().filter_map(|tree| tree.files.get(key)).map(Vec::len);
        // A size between is that of a write of which only a part is written back.
        let (mut least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        for range in ranges {
            let [offset, end] = [range.offset, range.end].map(|at| usize::try_from(at).expect("small"));
            // Data is not zero. A hole before data that is not synced need not be covered by the
            // size.
            let data_end = |bytes: &Vec<u8>| {
                let synced = bytes.get(offset..end.min(bytes.len())).unwrap_or_default();
                synced.iter().rposition(|&byte| byte != 0).map_or(0, |last| offset + last + 1)
            };
            let needed = possible(range.point).map(data_end).min();
            least = least.max(needed.unwrap_or(0));
        }
        if seen.len() < least || most < seen.len() {
            return Err(format!("{} bytes, not {least} to {most}", seen.len()));
        }
        for (at, byte) in seen.iter().enumerate() {
            let of_range = |range: &&SyncedRange| (range.offset..range.end).contains(&(at as u64));
            let synced = ranges.iter().filter(of_range).map(|range| range.point);
            let since = synced.max().map_or(since, |point| point.max(since));
            if !origins(at, moves).any(|at| was(at, since, *byte)) {
                return Err(format!("byte {at} is {byte:#x}, which it never was since point {since}"));
            }
        }
        Ok(())
    }
}

/// Returns the offsets at which a byte may have been before `moves` collapses and insertions, which
/// move no byte before [`MOVED`].
fn origins(at: usize, moves: usize) -> impl Iterator<Item = usize> {
    let moves = if at < MOVED { 0 } else { moves };
    let lower = move |nth: usize| at.checked_sub(nth * MOVED).filter(|&from| nth == 0 || from >= MOVED);
    (0..=moves).flat_map(move |nth| [Some(at + nth * MOVED), lower(nth)]).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Way;

    const WRITE: Op = Op::Write("/a/1", 0, Way::Buffered);

    fn steps(persist: Persist) -> Vec<Step> {
        vec![
            (Op::Rename("/a/1", "/a/2"), Persist::None),
            (Op::Create("/a/1"), Persist::None),
            (WRITE, persist),
        ]
    }

    #[test]
    fn names_are_those_of_one_point() {
        let steps = steps(Persist::None);
        let oracle = Oracle::new(0, &steps);
        for tree in &oracle.trees {
            assert!(oracle.check(tree, &Durable::default(), 3).is_ok());
        }
        let mut second_only = Tree::initial(0);
        second_only = second_only.after(&Op::Create("/a/2"), 0).expect("it is free");
        assert!(oracle.check(&second_only, &Durable::default(), 3).is_err());
        assert!(oracle.check(&oracle.trees[2], &Durable::default(), 1).is_err(), "it had not begun");
    }

    #[test]
    fn what_was_synced_is_found() {
        let lost = |persist, found: usize| {
            let oracle = Oracle::new(0, &steps(persist));
            oracle.check(&oracle.trees[found], &oracle.persisted(2, persist), 3).is_err()
        };
        assert!(!lost(Persist::None, 0));
        // A commit covers the names, and a sync of the range also the data.
        assert!(lost(Persist::Commit, 1) && !lost(Persist::Commit, 2));
        for persist in [Persist::All, Persist::Data, Persist::Range, Persist::Volume] {
            assert!(lost(persist, 1), "{persist:?}");
        }
    }

    #[test]
    fn a_synced_range_needs_no_size_past_its_data() {
        let write = |offset, persist| (Op::Write("/a/1", offset, Way::Buffered), persist);
        let steps =
            [(Op::SetLen("/a/1", 0), Persist::Volume), write(0, Persist::None), write(8192, Persist::None)];
        let mut steps = steps.to_vec();
        steps.push((Op::Chmod("/a/1"), Persist::Range));
        let oracle = Oracle::new(0, &steps);
        let mut durable = oracle.all(1);
        durable.merge(&oracle.persisted(3, Persist::Range));
        let mut found = oracle.trees[4].clone();
        let key = found.file("/a/1").expect("it exists");
        found.files[key].truncate(2048);
        assert!(oracle.check(&found, &durable, 4).is_ok(), "the rest of the range is a hole");
        found.files[key].truncate(2047);
        assert!(oracle.check(&found, &durable, 4).is_err());
    }

    #[test]
    fn a_synced_range_needs_no_size_for_data_before_it() {
        let steps = [
            (Op::SetLen("/a/1", 0), Persist::Volume),
            (WRITE, Persist::None),
            (Op::Zero("/a/1", 7168, true), Persist::Range),
        ];
        let oracle = Oracle::new(0, &steps);
        let mut durable = oracle.all(1);
        durable.merge(&oracle.persisted(2, Persist::Range));
        let mut found = oracle.trees[3].clone();
        let key = found.file("/a/1").expect("it exists");
        found.files[key].clear();
        assert!(oracle.check(&found, &durable, 3).is_ok(), "the write was not synced");
    }

    #[test]
    fn a_byte_that_was_never_written_is_noticed() {
        let oracle = Oracle::new(0, &steps(Persist::None));
        let mut found = oracle.trees[3].clone();
        let key = found.file("/a/1").expect("it exists");
        found.files[key][7] = 0;
        assert!(oracle.check(&found, &Durable::default(), 3).is_ok(), "zeros, as before the write");
        found.files[key][7] = 0xa5;
        assert!(oracle.check(&found, &Durable::default(), 3).is_err());
    }

    /// Returns true if the oracle accepts the tree after all steps with byte `at` of `path` as it
    /// was before them.
    fn accepts_old(steps: &[Step], durable: usize, path: &str, at: usize) -> bool {
        let oracle = Oracle::new(0, steps);
        let mut found = oracle.trees[steps.len()].clone();
        let key = found.file(path).expect("it exists");
        found.files[key][at] = oracle.trees[0].files[key][at];
        oracle.check(&found, &oracle.persisted(durable, steps[durable].1), steps.len()).is_ok()
    }

    #[test]
    fn a_synced_range_before_a_collapse_or_an_insertion_is_found() {
        for op in [Op::Collapse("/a/1"), Op::Insert("/a/1")] {
            let steps = [(WRITE, Persist::Range), (op, Persist::None)];
            assert!(!accepts_old(&steps, 0, "/a/1", 7) && accepts_old(&steps, 1, "/a/1", 7), "{op:?}");
        }
    }

    #[test]
    fn a_rename_over_an_empty_file_finds_the_new_contents() {
        let write = (Op::WriteShort("/b/2"), Persist::None);
        let rename = (Op::Rename("/b/2", "/a/1"), Persist::None);
        let truncate = (Op::SetLen("/a/1", 0), Persist::None);
        assert!(accepts_old(&[write, (Op::Chmod("/b/2"), Persist::None)], 1, "/b/2", 7));
        assert!(!accepts_old(&[write, truncate, rename], 2, "/a/1", 7));
    }
}
