//! What may be found after a crash.
//!
//! Operations on names and attributes commit in order, and each as a whole. So the names and
//! attributes that are found existed together at one point of the history. A call that returned
//! before the crash limits the point:
//!
//! - sync of the volume: the point is not before the sync, and all data is as at the sync, or
//!   later.
//! - sync of a file or directory: the point is not before its last change of names or attributes,
//!   and its data and size are as at the sync, or later.
//! - `sync_data`: like a sync of the file, but it promises no attributes.
//! - `sync_range`, or a write through a handle that syncs each: like `sync_data`, of the bytes of
//!   the range.
//! - a commit without write-back, a timed commit, an emptied journal: the point is not before the
//!   commit. This promises no data of the page cache.
//! - rename over a file, exchange: if the point is not before the rename, the data is as the
//!   renamed file had it at the rename, or later.
//!
//! A point that is not before a commit has the data of direct writes before it, too, up to the
//! first write of the file through the page cache that no sync has covered.
//!
//! Data is checked by sector: each is as the file had it at that offset at a time since it was
//! durable. So a byte that was never written to the file fails. With [`Zeros::PastTheEnd`], zeros
//! are also found where the file had no byte at a time since then, because delayed allocation
//! commits a size before the data below it, and because a truncation, a punch or a zeroing zeroes
//! the edges of its range before it is durable. A write over blocks that a collapse or an insertion
//! has moved may be found where they were, if the crash loses the move. "Known limits" in
//! docs/design.md has both.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::content::{Content, index};
use super::file_op::{FileOp, Way};
use super::op::{Op, Persist};
use super::tree::{Kind, Tree};
use crate::sector::SECTOR;

/// The bytes of a file that a sync of a range has made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SyncedRange {
    key: usize,
    bytes: Range<u64>,
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

/// Where zeros may be found that no operation wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// Nowhere.
    Never,
    /// Where the file ended before.
    PastTheEnd,
}

/// The points of the history of one thread.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// The tree before the first operation, and after each.
    trees: Vec<Arc<Tree>>,
    ops: Vec<Op>,
    zeros: Zeros,
}

impl Oracle {
    /// Returns the history of a volume before the first operation.
    pub fn new(first: Tree, zeros: Zeros) -> Self {
        Self { trees: vec![Arc::new(first)], ops: Vec::new(), zeros }
    }

    /// Adds an operation that writes `content` and succeeds.
    ///
    /// # Panics
    /// If it would fail.
    pub fn add(&mut self, op: Op, content: Content) {
        let tree = self.tree().after(&op, content).unwrap_or_else(|| panic!("{op:?} is impossible"));
        self.add_as(op, tree);
    }

    /// Adds an operation after which the tree is `tree`.
    pub fn add_as(&mut self, op: Op, tree: Tree) {
        self.ops.push(op);
        self.trees.push(Arc::new(tree));
    }

    /// Returns the last point: the number of operations.
    pub fn now(&self) -> usize {
        self.ops.len()
    }

    /// Returns the tree after the last operation.
    pub fn tree(&self) -> &Tree {
        &self.trees[self.ops.len()]
    }

    /// Returns the tree at a point.
    pub fn tree_at(&self, point: usize) -> &Tree {
        &self.trees[point]
    }

    /// Returns what operation `nth` and its persistence make durable.
    pub fn persisted(&self, nth: usize, persist: Persist) -> Durable {
        let mut durable = self.made_durable(nth, persist);
        durable.merge(&self.made_durable(nth, self.ops[nth].persists()));
        durable
    }

    fn made_durable(&self, nth: usize, persist: Persist) -> Durable {
        let (op, now) = (&self.ops[nth], nth + 1);
        let mut durable = Durable::default();
        match persist {
            Persist::None => return durable,
            Persist::Volume => return self.all(now),
            Persist::Parent => durable.names = self.last_change(op.parent(), now, true),
            Persist::Commit | Persist::Timed | Persist::Empty(_) => durable.names = now,
            Persist::All | Persist::Data | Persist::Range => {
                durable.names = self.last_change(op.target(), now, persist == Persist::All);
            }
        }
        let tree = &self.trees[now];
        match (persist, tree.file(op.target())) {
            (Persist::All | Persist::Data, Some(key)) => drop(durable.data.insert(key, now)),
            (Persist::Range, Some(key)) => {
                let bytes = op.range(tree.files[key].size());
                durable.ranges.push(SyncedRange { key, bytes, point: now });
            }
            _ => {}
        }
        durable
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
        let (points, error) = self.possible(found, durable, begun, usize::MAX);
        if points.is_empty() { Err(error) } else { Ok(points) }
    }

    /// Like [`check`](Self::check), without the points.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn check_any(&self, found: &Tree, durable: &Durable, begun: usize) -> Result<(), String> {
        let (points, error) = self.possible(found, durable, begun, 1);
        if points.is_empty() { Err(error) } else { Ok(()) }
    }

    /// Returns the first points, at most `most`, that may have been found, and why another one was
    /// not.
    fn possible(
        &self,
        found: &Tree,
        durable: &Durable,
        begun: usize,
        most: usize,
    ) -> (BTreeSet<usize>, String) {
        let begun = begun.max(durable.names);
        let mut error =
            format!("names and attributes of no point {}..={begun}: {:?}", durable.names, found.names);
        let mut points = BTreeSet::new();
        for point in durable.names..=begun {
            if points.len() == most || !self.trees[point].has_names_of(found) {
                continue;
            }
            match self.check_files(point, found, durable, begun) {
                Ok(()) => drop(points.insert(point)),
                Err(of_files) => error = format!("with the names of point {point}, {of_files}"),
            }
        }
        (points, error)
    }

    fn check_files(&self, point: usize, found: &Tree, durable: &Durable, begun: usize) -> Result<(), String> {
        for (path, entry) in &found.names {
            let (Kind::File(at), Some(key)) = (&entry.kind, self.trees[point].file(path)) else { continue };
            let since = self.since(key, point, durable);
            let ranges = durable.ranges.iter().filter(|range| range.key == key);
            let ranges: Vec<_> = ranges.filter_map(|range| self.unmoved(range, begun)).collect();
            self.check_file(key, found.files[*at].bytes(), (since, point.max(since), begun), &ranges)
                .map_err(|e| format!("{path}: {e}"))?;
        }
        Ok(())
    }

    /// Returns the part of a synced range that no later operation has moved.
    fn unmoved(&self, range: &SyncedRange, begun: usize) -> Option<SyncedRange> {
        let moved = self.shifts(range.key, range.point, begun).map(|shift| shift.start).min();
        let end = range.bytes.end.min(moved.unwrap_or(u64::MAX));
        (range.bytes.start < end).then(|| SyncedRange { bytes: range.bytes.start..end, ..range.clone() })
    }

    /// Returns the operation from point `nth` on if it is on a file.
    fn on_file(&self, nth: usize, key: usize) -> Option<FileOp> {
        let op = &self.ops[nth];
        op.on_file().filter(|_| self.trees[nth].file(op.target()) == Some(key))
    }

    /// Returns the ranges that operations after `point` collapse or insert.
    fn shifts(&self, key: usize, point: usize, begun: usize) -> impl Iterator<Item = Range<u64>> {
        (point..begun).filter_map(move |nth| match self.on_file(nth, key)? {
            FileOp::CollapseRange { offset, len } | FileOp::InsertRange { offset, len } => {
                Some(offset..offset + len)
            }
            _ => None,
        })
    }

    /// Returns the point since which the data of a file may be found, if names are found as at
    /// `point`.
    fn since(&self, key: usize, point: usize, durable: &Durable) -> usize {
        let synced = durable.data.get(&key).copied().unwrap_or(0);
        let replaces = |nth: &usize| match self.ops[*nth] {
            Op::Rename(from, to) => {
                let before = &self.trees[*nth];
                before.file(from) == Some(key) && before.file(to).is_some_and(|replaced| replaced != key)
            }
            Op::Exchange(one, two) => {
                let files = [one, two].map(|path| self.trees[*nth].file(path));
                files[0] != files[1] && files.contains(&Some(key))
            }
            _ => false,
        };
        let synced = (0..point).rev().find(replaces).map_or(synced, |nth| synced.max(nth));
        let is_cached = |nth: &usize| match self.on_file(*nth, key) {
            Some(FileOp::Write { way, .. } | FileOp::Append { way, .. }) => way == Way::Buffered,
            _ => false,
        };
        let committed = (synced..durable.names).find(is_cached).unwrap_or(durable.names);
        synced.max(committed)
    }

    /// Returns the contents that a file had up to a point, each with the last point at which it had
    /// them.
    fn versions(&self, key: usize, begun: usize) -> Vec<(usize, &[u8])> {
        let mut versions: Vec<(usize, &[u8])> = Vec::new();
        for (point, tree) in self.trees[..=begun].iter().enumerate() {
            let Some(file) = tree.files.get(key) else { continue };
            match versions.last_mut().filter(|last| std::ptr::eq(last.1, file.bytes())) {
                Some(last) => last.0 = point,
                None => versions.push((point, file.bytes())),
            }
        }
        versions
    }

    fn check_file(
        &self,
        key: usize,
        seen: &[u8],
        (since, point, begun): (usize, usize, usize),
        ranges: &[SyncedRange],
    ) -> Result<(), String> {
        let versions = self.versions(key, begun);
        // The size changes in the order of the names, which are of `point`.
        let files = || self.trees[since..=point].iter().filter_map(|tree| tree.files.get(key));
        let sizes = || files().map(|file| file.size());
        // A size between is that of a write of which only a part is written back.
        let (mut least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        for range in ranges {
            let needed = versions.iter().filter(|version| version.0 >= range.point);
            least = least.max(needed.map(|version| data_end(version.1, &range.bytes)).min().unwrap_or(0));
        }
        let size = seen.len() as u64;
        if size < least || most < size {
            return Err(format!("{size} bytes, not {least} to {most}"));
        }
        let last = ranges.iter().map(|range| range.point).fold(since, usize::max);
        if versions.iter().any(|version| version.0 >= last && version.1 == seen) {
            return Ok(());
        }
        let shifts: Vec<_> = self.shifts(key, since, begun).collect();
        let possible = Possible { versions, shifts, ranges, zeros: self.zeros };
        let mut sectors = (0..).step_by(SECTOR).zip(seen.chunks(SECTOR));
        sectors.try_for_each(|(at, sector)| possible.check_sector(at, sector, since))
    }
}

/// The contents that sectors of a file may have.
struct Possible<'a> {
    /// The contents, each with the last point at which the file had them.
    versions: Vec<(usize, &'a [u8])>,
    /// The ranges that were collapsed or inserted.
    shifts: Vec<Range<u64>>,
    /// The ranges that were synced.
    ranges: &'a [SyncedRange],
    zeros: Zeros,
}

impl Possible<'_> {
    /// Checks the sector at an offset of a file whose data is durable since a point.
    fn check_sector(&self, at: usize, sector: &[u8], since: usize) -> Result<(), String> {
        let (start, end) = (at as u64, (at + sector.len()) as u64);
        let covers = |range: &&SyncedRange| range.bytes.start <= start && end <= range.bytes.end;
        let since = self.ranges.iter().filter(covers).map(|range| range.point).fold(since, usize::max);
        let origins = origins(at, &self.shifts);
        if !self.was(sector, &origins, 0, since) {
            let bytes = &sector[..sector.len().min(16)];
            return Err(format!("the sector at {at} is {bytes:02x?}..., as never since point {since}"));
        }
        let later = || self.ranges.iter().filter(|range| range.point > since);
        for (within, byte) in sector.iter().enumerate() {
            let place = start + within as u64;
            let synced = later().filter(|range| range.bytes.contains(&place)).map(|range| range.point);
            let Some(since) = synced.max() else { continue };
            if !self.was(&[*byte], &origins, within, since) {
                return Err(format!("byte {place} is {byte:#x}, which it never was since point {since}"));
            }
        }
        Ok(())
    }

    /// Returns true if the file had bytes `within` from one of the origins at a time since a point.
    fn was(&self, part: &[u8], origins: &BTreeSet<usize>, within: usize, since: usize) -> bool {
        self.versions
            .iter()
            .rev()
            .filter(|version| version.0 >= since)
            .any(|version| origins.iter().any(|origin| is_at(part, version.1, origin + within, self.zeros)))
    }
}

/// Returns true if contents of a file have these bytes at `offset`.
pub fn is_at(part: &[u8], contents: &[u8], offset: usize, zeros: Zeros) -> bool {
    let known = contents.get(offset..).unwrap_or_default();
    let (before, past) = part.split_at(known.len().min(part.len()));
    let is_past_possible = zeros == Zeros::PastTheEnd && past.iter().all(|&byte| byte == 0);
    (past.is_empty() || is_past_possible) && *before == known[..before.len()]
}

/// Returns the end of the data of a file in a range, or 0. Data is not zero. A hole before data
/// that is not synced need not be covered by the size.
fn data_end(contents: &[u8], range: &Range<u64>) -> u64 {
    let [start, end] = [range.start, range.end].map(|at| index(at).min(contents.len()));
    let synced = contents.get(start..end).unwrap_or_default();
    synced.iter().rposition(|&byte| byte != 0).map_or(0, |last| (start + last + 1) as u64)
}

/// Returns the offsets at which the bytes from `at` on may have been before these ranges were
/// collapsed or inserted. A move does not change what is before its range.
fn origins(at: usize, shifts: &[Range<u64>]) -> BTreeSet<usize> {
    let mut origins = BTreeSet::from([at]);
    for shift in shifts {
        let [start, end] = [shift.start, shift.end].map(index);
        let moved: Vec<_> = origins.iter().copied().filter(|&at| at >= start).collect();
        for at in moved {
            origins.insert(at + (end - start));
            origins.extend(at.checked_sub(end - start).filter(|&from| from >= start));
        }
    }
    origins
}

#[cfg(test)]
mod tests;
