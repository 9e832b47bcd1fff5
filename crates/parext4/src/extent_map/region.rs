//! A region: the mapping of 1024 file blocks, as readers see it.
//!
//! One version of a region consists of the runs of volume blocks, and of a bitmap of the written
//! blocks. The [view](super::view) publishes the version that readers find. Invariant: the runs of
//! a version never change. To map or unmap a block creates a new version. All versions share the
//! bitmap, so a conversion sets bits and needs no new version.

use std::ops::Range;

use parext4_format::extent::Extent;
use parext4_format::{BlockRange, FileBlock, FsBlock};
use smallvec::SmallVec;

use super::extents::cut;
use crate::extent_map::leaf_index::LeafIndex;
use crate::fault::{Fault, guarded};
use crate::mapping::{BlockState, Mapping};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Number of file blocks in a region. Copying a region costs less than copying a leaf.
pub(super) const BLOCKS: u32 = 1024;
const WORDS: usize = BLOCKS as usize / 64;

/// One version of a region.
#[derive(Debug)]
pub(super) struct Region {
    first: FileBlock,
    /// The runs, sorted and disjoint. Runs that are contiguous in the file and on the volume are
    /// merged, whatever their state.
    runs: SmallVec<[RegionRun; 2]>,
    /// The written blocks; `None` if every mapped block is written.
    written: Option<Arc<Bits>>,
}

/// A contiguous run of mapped blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RegionRun {
    /// First block, relative to the start of the region.
    at: u32,
    len: u32,
    start: FsBlock,
}

impl RegionRun {
    fn end(&self) -> u32 {
        self.at + self.len
    }
}

/// The extents and marks of the leaves within a region.
#[derive(Default)]
struct LeafContents {
    runs: SmallVec<[RegionRun; 2]>,
    /// Written ranges, relative to the start of the region, unsorted. They may overlap.
    written: SmallVec<[Range<u32>; 8]>,
    any_unwritten: bool,
}

impl Region {
    /// Builds the region that begins at file block `first` from the leaves. Returns `None` if the
    /// whole region is a hole. Shares the bitmap of the version `before`, and sets the bits of the
    /// file blocks `changed` from the leaves.
    pub(super) fn build(
        leaves: &LeafIndex,
        first: FileBlock,
        before: Option<&Self>,
        changed: BlockRange,
    ) -> Option<Arc<Self>> {
        let LeafContents { runs, written, any_unwritten } = LeafContents::new(leaves, first);
        if runs.is_empty() {
            return None;
        }
        let bits = match before.and_then(|before| before.written.as_ref()) {
            Some(bits) => {
                let changed = within_region(first, changed);
                let bits = bits.inherit(&changed);
                let within = |part: &Range<u32>| part.start.max(changed.start)..part.end.min(changed.end);
                written.iter().for_each(|part| bits.set(within(part)));
                Some(bits)
            }
            None if any_unwritten => {
                let bits = Bits::default();
                written.into_iter().for_each(|part| bits.set(part));
                Some(Arc::new(bits))
            }
            None => None,
        };
        Some(Arc::new(Self { first, runs, written: bits }))
    }

    /// Returns the version that also maps `extent`, which was a hole. Copies the runs and does not
    /// read the leaves.
    pub(super) fn with_filled(&self, extent: Extent) -> Option<Arc<Self>> {
        let piece = cut(extent, blocks_of(self.first))?;
        let run = RegionRun { at: piece.logical - self.first, len: piece.len, start: piece.physical };
        let bits = match &self.written {
            Some(bits) => {
                let bits = bits.inherit(&(run.at..run.end()));
                if !extent.unwritten {
                    bits.set(run.at..run.end());
                }
                Some(bits)
            }
            None if extent.unwritten => {
                let bits = Bits::default();
                self.runs.iter().for_each(|run| bits.set(run.at..run.end()));
                Some(Arc::new(bits))
            }
            None => None,
        };
        Some(Arc::new(Self { first: self.first, runs: with_run(&self.runs, run), written: bits }))
    }

    /// Returns the state of `block` and of blocks after it in the same state, at most `max` blocks
    /// and not past the region. The run may continue after the returned part.
    #[inline]
    pub(super) fn lookup(&self, block: FileBlock, max: u32) -> Mapping {
        let at = block - self.first;
        let max = max.min(BLOCKS - at);
        let next = match self.runs.as_slice() {
            [run] if at < run.end() => Some(run),
            runs => runs.get(runs.partition_point(|run| run.end() <= at)),
        };
        let (len, state) = match next {
            Some(run) if run.at <= at => {
                let start = run.start + u64::from(at - run.at);
                let (len, written) = self.state(at, max.min(run.end() - at));
                (len, if written { BlockState::Written(start) } else { BlockState::Unwritten(start) })
            }
            next => (next.map_or(max, |next| max.min(next.at - at)), BlockState::Hole),
        };
        Mapping { logical: block, len, state }
    }

    /// Returns the number of the `len` mapped blocks from `at` that have the state of the first
    /// one, and whether they are written.
    fn state(&self, at: u32, len: u32) -> (u32, bool) {
        self.written.as_ref().map_or((len, true), |bits| bits.state(at, len))
    }

    /// Sets the bits of the `blocks` that are within the region.
    pub(super) fn set_written(&self, blocks: BlockRange) {
        if let Some(bits) = &self.written {
            bits.set(within_region(self.first, blocks));
        }
    }

    /// Returns true if the region equals the contents of the leaves.
    #[cfg(any(test, debug_assertions, shuttle))]
    pub(super) fn agrees(&self, leaves: &LeafIndex) -> bool {
        let LeafContents { runs, written, .. } = LeafContents::new(leaves, self.first);
        let fresh = Bits::default();
        written.into_iter().for_each(|part| fresh.set(part));
        let mut mapped = runs.iter().flat_map(|run| run.at..run.end());
        self.runs == runs && mapped.all(|at| self.state(at, 1) == fresh.state(at, 1))
    }
}

impl LeafContents {
    fn new(leaves: &LeafIndex, first: FileBlock) -> Self {
        let mut contents = Self::default();
        let region = blocks_of(first);
        for leaf in leaves.leaves_within(region) {
            let extents = leaf.extents();
            let from = extents.partition_point(|extent| extent.end() <= first.to_u64());
            for extent in extents[from..].iter().map_while(|&extent| cut(extent, region)) {
                let at = extent.logical - first;
                contents.add(RegionRun { at, len: extent.len, start: extent.physical }, extent.unwritten);
            }
            let marked = leaf.marked().into_iter();
            let marked =
                marked.map(|(from, to)| within_region(first, BlockRange::clamped(from.into(), to.into())));
            contents.written.extend(marked.filter(|part| !part.is_empty()));
        }
        contents
    }

    fn add(&mut self, run: RegionRun, unwritten: bool) {
        self.any_unwritten |= unwritten;
        if !unwritten {
            self.written.push(run.at..run.end());
        }
        push(&mut self.runs, run);
    }
}

/// Appends a run, or extends the last run if `run` continues it on the volume.
fn push(runs: &mut SmallVec<[RegionRun; 2]>, run: RegionRun) {
    match runs.last_mut() {
        Some(last) if last.end() == run.at && last.start + u64::from(last.len) == run.start => {
            last.len += run.len;
        }
        _ => runs.push(run),
    }
}

/// Returns the sorted `runs` with `run` inserted.
fn with_run(runs: &[RegionRun], run: RegionRun) -> SmallVec<[RegionRun; 2]> {
    let (before, after) = runs.split_at(runs.partition_point(|other| other.at < run.at));
    let mut out = SmallVec::with_capacity(runs.len() + 1);
    out.extend_from_slice(before);
    push(&mut out, run);
    if let Some((&next, rest)) = after.split_first() {
        push(&mut out, next);
        out.extend_from_slice(rest);
    }
    out
}

/// Returns the file blocks of the region that begins at `first`.
fn blocks_of(first: FileBlock) -> BlockRange {
    BlockRange::starting_at(first).take(BLOCKS)
}

/// Returns the part of `blocks` within the region that begins at `first`, relative to its start.
fn within_region(first: FileBlock, blocks: BlockRange) -> Range<u32> {
    let part = blocks_of(first).intersection(blocks);
    // An empty part may be after the region.
    let at = (part.start() - first).min(BLOCKS);
    at..at + part.count()
}

/// One bit for each block of a region, set if the block is written. The bit of a hole has no
/// meaning.
///
/// A thread that changes a bit, and a thread that depends on its value, hold the range of its
/// block. So the range lock orders them (I2). Other threads change the remaining bits of the same
/// word at any time.
#[derive(Debug, Default)]
struct Bits([AtomicU64; WORDS]);

impl Bits {
    fn set(&self, range: Range<u32>) {
        for (word, mask) in masks(range) {
            self.0[word].fetch_or(mask, Ordering::Release);
        }
    }

    fn clear(&self, range: Range<u32>) {
        for (word, mask) in masks(range) {
            self.0[word].fetch_and(!mask, Ordering::Release);
        }
    }

    /// Returns the bitmap for a new version, and clears the bits of `changed`.
    fn inherit(self: &Arc<Self>, changed: &Range<u32>) -> Arc<Self> {
        let bits = guarded!(Fault::BitsCopied, Arc::clone(self), Arc::new(self.copy()));
        guarded!(Fault::StaleWrittenBits, bits.clear(changed.clone()));
        bits
    }

    /// Returns the number of the `len` bits from `at` that equal the first bit, and the value of
    /// that bit.
    fn state(&self, at: u32, len: u32) -> (u32, bool) {
        let (mut next, end) = (at, at + len);
        let mut first = None;
        while next < end {
            let word = self.0[next as usize / 64].load(Ordering::Acquire) >> (next % 64);
            let first = *first.get_or_insert(word & 1 != 0);
            let same = if first { word.trailing_ones() } else { word.trailing_zeros() };
            let rest = 64 - next % 64;
            next += same.min(rest);
            if same < rest {
                break;
            }
        }
        (next.min(end) - at, first.unwrap_or(false))
    }

    fn copy(&self) -> Self {
        Self(std::array::from_fn(|word| AtomicU64::new(self.0[word].load(Ordering::Acquire))))
    }
}

/// Returns the words that contain the bits `range`, each with a mask of the bits in the range.
fn masks(range: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let mut next = range.start;
    std::iter::from_fn(move || {
        (next < range.end).then(|| {
            let (word, from) = (next / 64, next % 64);
            let count = (range.end - next).min(64 - from);
            next += count;
            (word as usize, (u64::MAX >> (64 - count)) << from)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_and_cleared_across_words() {
        let bits = Bits::default();
        assert_eq!(bits.state(0, BLOCKS), (BLOCKS, false));
        bits.set(60..200);
        bits.set(1023..1024);
        bits.clear(70..71);
        bits.set(5..5);
        let runs = [(0, 60), (60, 70), (70, 71), (71, 200), (200, 1023), (1023, 1024)];
        for (nth, (from, to)) in runs.into_iter().enumerate() {
            assert_eq!(bits.state(from, BLOCKS - from), (to - from, nth % 2 == 1), "from {from}");
            assert_eq!(bits.state(to - 1, 1), (1, nth % 2 == 1), "before {to}");
        }
        assert_eq!(bits.state(64, 3), (3, true));
    }

    #[test]
    fn ranges_are_cut_to_the_region() {
        let last = u32::MAX - BLOCKS + 1;
        let within = |blocks: Range<u64>| {
            within_region(FileBlock(BLOCKS), BlockRange::clamped(blocks.start, blocks.end))
        };
        assert_eq!(within(0..u64::MAX), 0..BLOCKS);
        assert_eq!(within(1030..1034), 6..10);
        assert!(within(0..1024).is_empty() && within(2048..3000).is_empty());
        assert_eq!(within_region(FileBlock(last), BlockRange::of_block(FileBlock::MAX)), BLOCKS - 1..BLOCKS);
    }

    #[test]
    fn a_filled_hole_has_the_state_of_its_extent() {
        for (has_bits, unwritten) in [(false, false), (false, true), (true, false), (true, true)] {
            let run = RegionRun { at: 0, len: 4, start: FsBlock(100) };
            let written = has_bits.then(|| Arc::new(Bits::default()));
            let before = Region { first: FileBlock(0), runs: [run].into_iter().collect(), written };
            let extent = Extent { logical: FileBlock(8), physical: FsBlock(200), len: 2, unwritten };
            let after = before.with_filled(extent).unwrap();
            let state = |unwritten, start| {
                if unwritten {
                    BlockState::Unwritten(FsBlock(start))
                } else {
                    BlockState::Written(FsBlock(start))
                }
            };
            for (at, len, expected) in [
                (0, 4, state(has_bits, 100)),
                (3, 1, state(has_bits, 103)),
                (4, 4, BlockState::Hole),
                (8, 2, state(unwritten, 200)),
                (9, 1, state(unwritten, 201)),
                (10, 1014, BlockState::Hole),
            ] {
                let found = after.lookup(FileBlock(at), u32::MAX);
                assert_eq!(
                    found,
                    Mapping { logical: FileBlock(at), len, state: expected },
                    "{has_bits} {at}"
                );
            }
        }
    }
}
