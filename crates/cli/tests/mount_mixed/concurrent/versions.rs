//! The versions of each sector that a read may return.
//!
//! Each region of a file has one owner. Only the owner changes the region, and it numbers the
//! changes. A change has *begun* before its call and is *over* when the call has returned. A read
//! that began after a change was over must return it or a later one. No read may return a change
//! that had not begun when the read ended. This holds for every kind of handle.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::sector::{SECTOR, Seen, Stamp, fill, identify};

use crate::mapping::Mapping;

/// Multiples of this number are versions of zeros: holes and zeroed ranges. Version 0 is the
/// content of a new file.
const ZEROS: u64 = 8;
/// A read that is concurrent with more than this number of changes of a sector is not checked word
/// by word.
const MOST: u64 = 64;

/// The versions of the sectors of one file.
pub struct Versions {
    file: u32,
    /// Sectors of a region.
    region: u64,
    table: Table,
}

/// For each sector the version that has begun, and after these for each sector the version that is
/// over.
enum Table {
    Own(Vec<AtomicU64>),
    /// In a file, which outlives a process that is killed.
    Shared(Mapping),
}

impl Table {
    fn halves(&self) -> (&[AtomicU64], &[AtomicU64]) {
        let words = match self {
            Self::Own(words) => words,
            Self::Shared(mapping) => mapping.words(),
        };
        words.split_at(words.len() / 2)
    }
}

/// The oldest versions that a read may return.
#[derive(Debug)]
pub struct Oldest {
    first: u64,
    versions: Vec<u64>,
}

impl Versions {
    /// Returns the versions of a new file of `sectors` sectors, divided into regions of `region`
    /// sectors.
    pub fn new(file: u32, sectors: u64, region: u64) -> Self {
        let table = Table::Own((0..2 * sectors).map(|_| AtomicU64::new(0)).collect());
        Self { file, region, table }
    }

    /// Like [`new`](Self::new), with the versions in the file `table`, which is extended to hold
    /// them.
    pub fn shared(file: u32, sectors: u64, region: u64, table: &File) -> Self {
        let len = 2 * sectors * size_of::<AtomicU64>() as u64;
        table.set_len(len).expect("a file of versions");
        let mapping = Mapping::new(table, usize::try_from(len).expect("files are short"), true);
        Self { file, region, table: Table::Shared(mapping.expect("the file is mapped")) }
    }

    fn begun(&self) -> &[AtomicU64] {
        self.table.halves().0
    }

    fn over(&self) -> &[AtomicU64] {
        self.table.halves().1
    }

    /// Returns the newest version of a region.
    pub fn newest(&self, region: u64) -> u64 {
        let load = |begun: &AtomicU64| begun.load(Ordering::SeqCst);
        self.slice(self.begun(), region * self.region, self.region).iter().map(load).max().unwrap_or(0)
    }

    /// Returns the version after `last`: of zeros or of data.
    pub fn next(last: u64, zeros: bool) -> u64 {
        let next = last + 1;
        match (zeros, next.is_multiple_of(ZEROS)) {
            (true, _) => next.next_multiple_of(ZEROS),
            (false, true) => next + 1,
            (false, false) => next,
        }
    }

    pub fn len(&self) -> u64 {
        self.begun().len() as u64
    }

    /// Returns the owner of a sector.
    fn owner(&self, sector: u64) -> u32 {
        u32::try_from(sector / self.region).expect("few regions")
    }

    /// Notes that sectors are about to change.
    pub fn begin(&self, first: u64, sectors: u64, version: u64) {
        // SeqCst: a read that returns the change also finds that it has begun.
        self.slice(self.begun(), first, sectors)
            .iter()
            .for_each(|begun| begun.store(version, Ordering::SeqCst));
    }

    /// Notes that the change has returned, unless a later one is over. Without this, sectors may
    /// hold any version since the last one that is over.
    pub fn end(&self, first: u64, sectors: u64, version: u64) {
        for over in self.slice(self.over(), first, sectors) {
            over.fetch_max(version, Ordering::SeqCst);
        }
    }

    /// Returns the oldest versions for a read that begins now.
    pub fn oldest(&self, first: u64, sectors: u64) -> Oldest {
        let load = |over: &AtomicU64| over.load(Ordering::SeqCst);
        Oldest { first, versions: self.slice(self.over(), first, sectors).iter().map(load).collect() }
    }

    /// Returns true if all these sectors hold data and no change of them is in flight.
    pub fn are_data(&self, first: u64, sectors: u64) -> bool {
        let begun = self.slice(self.begun(), first, sectors).iter().map(|begun| begun.load(Ordering::SeqCst));
        let over = self.slice(self.over(), first, sectors).iter().map(|over| over.load(Ordering::SeqCst));
        begun.zip(over).all(|(begun, over)| begun == over && !over.is_multiple_of(ZEROS))
    }

    fn slice<'a>(&self, versions: &'a [AtomicU64], first: u64, sectors: u64) -> &'a [AtomicU64] {
        let first = usize::try_from(first).expect("files are short");
        &versions[first..first + usize::try_from(sectors).expect("files are short")]
    }

    /// Fills a buffer for sectors with a version of data.
    pub fn fill(&self, bytes: &mut [u8], first: u64, version: u64) {
        fill(bytes, first, self.stamp(first, version));
    }

    fn stamp(&self, sector: u64, version: u64) -> Stamp {
        Stamp { file: self.file, writer: self.owner(sector), sequence: version, origin: 0 }
    }

    /// Checks the data of a read that has just ended. `oldest` was determined when it began.
    ///
    /// # Errors
    /// A description of the wrong version.
    pub fn check(&self, bytes: &[u8], oldest: &Oldest) -> Result<(), String> {
        for ((sector, bytes), &low) in (oldest.first..).zip(bytes.chunks_exact(SECTOR)).zip(&oldest.versions)
        {
            let high = self.slice(self.begun(), sector, 1)[0].load(Ordering::SeqCst);
            self.check_one(bytes, sector, low, high)?;
        }
        Ok(())
    }

    fn check_one(&self, bytes: &[u8], sector: u64, low: u64, high: u64) -> Result<(), String> {
        let shown = identify(bytes, self.file, sector);
        let is_allowed = match &shown {
            Ok(Seen::Zero) => low.next_multiple_of(ZEROS) <= high,
            Ok(Seen::Data(stamp)) => {
                stamp.writer == self.owner(sector) && (low..=high).contains(&stamp.sequence)
            }
            // Torn: neither reads nor writes are atomic, so during a change each word may be old or
            // new.
            Err(_) => low != high && self.are_words_of(bytes, sector, low, high),
        };
        if is_allowed {
            return Ok(());
        }
        Err(format!("file {}, sector {sector}, versions {low} to {high}: {shown:?}", self.file))
    }

    fn are_words_of(&self, bytes: &[u8], sector: u64, low: u64, high: u64) -> bool {
        if high - low > MOST {
            return true;
        }
        let version = |version: u64| {
            let mut bytes = vec![0; SECTOR];
            if !version.is_multiple_of(ZEROS) {
                self.fill(&mut bytes, sector, version);
            }
            bytes
        };
        let versions: Vec<_> = (low..=high).map(version).collect();
        (0..SECTOR).all(|at| versions.iter().any(|version| version[at] == bytes[at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(versions: &Versions, version: u64) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR];
        if !version.is_multiple_of(ZEROS) {
            versions.fill(&mut bytes, 5, version);
        }
        bytes
    }

    #[test]
    fn reads_return_completed_changes_or_newer_ones() {
        let versions = Versions::new(1, 16, 4);
        let (first, second) = (Versions::next(0, false), Versions::next(Versions::next(0, false), false));
        versions.begin(5, 1, first);
        versions.end(5, 1, first);
        let oldest = versions.oldest(5, 1);
        assert!(versions.check(&shown(&versions, first), &oldest).is_ok());
        assert!(versions.check(&shown(&versions, 0), &oldest).is_err(), "stale");
        assert!(versions.check(&shown(&versions, second), &oldest).is_err(), "not begun");
        versions.begin(5, 1, second);
        assert!(versions.check(&shown(&versions, second), &oldest).is_ok());
        let mut torn = shown(&versions, first);
        torn[256..].copy_from_slice(&shown(&versions, second)[256..]);
        assert!(versions.check(&torn, &oldest).is_ok(), "beside the write");
        versions.end(5, 1, second);
        assert!(versions.check(&torn, &versions.oldest(5, 1)).is_err(), "after the write");
        torn[256..].fill(7);
        assert!(versions.check(&torn, &oldest).is_err(), "foreign bytes");
    }

    #[test]
    fn versions_tell_zeros_from_data() {
        assert_eq!((Versions::next(0, false), Versions::next(6, false), Versions::next(7, false)), (1, 7, 9));
        assert_eq!((Versions::next(0, true), Versions::next(8, true)), (8, 16));
        let versions = Versions::new(1, 16, 4);
        versions.begin(0, 2, 3);
        versions.end(0, 1, 3);
        assert!(versions.are_data(0, 1) && !versions.are_data(0, 2) && !versions.are_data(4, 1));
    }
}
