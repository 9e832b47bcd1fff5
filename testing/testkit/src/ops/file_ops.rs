//! Random operations on one file, in the manner of fsx.

#![allow(missing_docs, reason = "the fields explain themselves")]

use super::file_op::{FileOp, Way};
use crate::choices::Choices;

/// How many of 100 operations are of each kind. The rest are seeks.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    pub read: u64,
    pub write: u64,
    pub append: u64,
    pub set_len: u64,
    pub allocate: u64,
    pub punch: u64,
    pub zero: u64,
    pub collapse: u64,
    pub insert: u64,
    pub sync_range: u64,
    pub sync_data: u64,
    pub sync_all: u64,
}

/// The choice of operations. Sizes are in bytes.
#[derive(Clone, Copy, Debug)]
pub struct FileOps {
    pub weights: Weights,
    /// The largest size of the file.
    pub max_size: u64,
    /// Length of the longest read, write, hole or allocation.
    pub longest: u64,
    /// The most blocks that are collapsed or inserted.
    pub most_moved: u64,
    /// Sizes, offsets and lengths are multiples of this.
    pub unit: u64,
    /// Half of the ranges are multiples of this, too.
    pub often: u64,
    /// The ways, equally likely.
    pub ways: &'static [Way],
}

/// The properties of the file on which the choice depends, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub size: u64,
    /// Unit in which the file is collapsed and extended.
    pub block: u64,
}

const SECTOR: u64 = 512;

/// Reads and changes of a file of up to 4 MiB at any offset.
pub const FSX: FileOps = FileOps {
    weights: Weights {
        read: 30,
        write: 32,
        append: 6,
        set_len: 6,
        allocate: 4,
        punch: 6,
        zero: 4,
        collapse: 2,
        insert: 2,
        sync_range: 2,
        sync_data: 1,
        sync_all: 1,
    },
    max_size: 4 << 20,
    longest: 256 << 10,
    most_moved: 64,
    unit: 1,
    often: 1,
    ways: &[Way::Buffered, Way::Buffered, Way::Buffered, Way::Direct, Way::Direct],
};

/// Changes of whole sectors, with syncs, of a file of up to 200 KiB.
pub const CRASHES: FileOps = FileOps {
    weights: Weights {
        read: 0,
        write: 34,
        append: 10,
        set_len: 8,
        allocate: 4,
        punch: 8,
        zero: 7,
        collapse: 6,
        insert: 6,
        sync_range: 6,
        sync_data: 6,
        sync_all: 5,
    },
    max_size: 400 * SECTOR,
    longest: 64 * SECTOR,
    most_moved: 16,
    unit: SECTOR,
    often: 8 * SECTOR,
    ways: &[
        Way::Buffered,
        Way::Buffered,
        Way::Buffered,
        Way::Buffered,
        Way::Buffered,
        Way::Buffered,
        Way::Synced,
        Way::Direct,
        Way::Direct,
        Way::Direct,
    ],
};

impl FileOps {
    /// Returns an operation that is allowed on a file of this shape.
    pub fn random(&self, rng: &mut impl Choices, shape: &Shape) -> FileOp {
        let way = *rng.pick(self.ways);
        let (offset, len) = self.range(rng, shape.size);
        let keep_size = rng.chance(50);
        let weights = &self.weights;
        let mut left = rng.below(100);
        let mut is = |weight: u64| {
            let chosen = left < weight;
            left = left.wrapping_sub(weight);
            chosen
        };
        if is(weights.read) {
            let (offset, len) = self.transfer(way, (offset, len), shape.size);
            FileOp::Read { way, offset, len }
        } else if is(weights.write) {
            let (offset, len) = self.transfer(way, (offset, len), shape.size);
            FileOp::Write { way, offset, len }
        } else if is(weights.append) {
            self.append(rng, shape, way)
        } else if is(weights.set_len) {
            FileOp::SetLen { size: self.size(rng, shape) }
        } else if is(weights.allocate) {
            FileOp::Allocate { offset, len, keep_size }
        } else if is(weights.punch) {
            FileOp::PunchHole { offset, len }
        } else if is(weights.zero) {
            FileOp::ZeroRange { offset, len, keep_size }
        } else if is(weights.collapse) {
            self.collapse(rng, shape).unwrap_or(FileOp::SyncData { way })
        } else if is(weights.insert) {
            self.insert(rng, shape).unwrap_or(FileOp::SyncAll { way })
        } else if is(weights.sync_range) {
            FileOp::SyncRange { offset, len }
        } else if is(weights.sync_data) {
            FileOp::SyncData { way }
        } else if is(weights.sync_all) {
            FileOp::SyncAll { way }
        } else {
            FileOp::Seek { offset }
        }
    }

    /// Returns an offset and a length, mostly within the file.
    fn range(&self, rng: &mut impl Choices, size: u64) -> (u64, u64) {
        let limit = if rng.chance(80) { size.max(1) } else { self.max_size };
        let unit = if rng.chance(50) { self.often } else { self.unit };
        let offset = rng.below(limit.min(self.max_size)) / unit * unit;
        let len = self.len(rng).next_multiple_of(unit);
        (offset, len.min(self.max_size - offset))
    }

    fn len(&self, rng: &mut impl Choices) -> u64 {
        rng.log_uniform(self.longest / self.unit) * self.unit
    }

    /// Rounds a direct request out to sectors, unless it ends at the end of the file.
    fn transfer(&self, way: Way, (offset, len): (u64, u64), size: u64) -> (u64, u64) {
        if !way.is_direct() {
            return (offset, len);
        }
        let start = offset - offset % SECTOR;
        let end = (offset + len).next_multiple_of(SECTOR);
        (start, if offset + len == size { size - start } else { end - start })
    }

    /// Returns an append. Direct appends need whole sectors.
    fn append(&self, rng: &mut impl Choices, shape: &Shape, way: Way) -> FileOp {
        let way = if shape.size.is_multiple_of(SECTOR) { way } else { Way::Buffered };
        let append = FileOp::Append { way, len: self.len(rng) }.in_whole_sectors();
        match append.written(shape.size) {
            Some(range) if range.end <= self.max_size => append,
            _ => FileOp::SetLen { size: self.size(rng, shape) },
        }
    }

    /// Returns a new size. Small ones are likely enough that the file does not stay large.
    fn size(&self, rng: &mut impl Choices, shape: &Shape) -> u64 {
        let size = match rng.below(4) {
            0 => rng.below(self.max_size),
            1 => rng.log_uniform(self.max_size),
            2 => (shape.size + rng.log_uniform(self.longest)).min(self.max_size),
            _ => shape.size - rng.below(shape.size + 1).min(self.longest),
        };
        size / self.unit * self.unit
    }

    fn collapse(&self, rng: &mut impl Choices, shape: &Shape) -> Option<FileOp> {
        let blocks = shape.size.div_ceil(shape.block);
        let first = rng.below(blocks.checked_sub(1).filter(|&most| most > 0)?);
        let count = rng.log_uniform((blocks - first).min(self.most_moved));
        let (offset, len) = (first * shape.block, count * shape.block);
        (offset + len < shape.size).then_some(FileOp::CollapseRange { offset, len })
    }

    fn insert(&self, rng: &mut impl Choices, shape: &Shape) -> Option<FileOp> {
        let offset = rng.below(shape.size.div_ceil(shape.block).max(1)) * shape.block;
        let len = rng.log_uniform(self.most_moved) * shape.block;
        let is_possible = offset < shape.size && shape.size + len <= self.max_size;
        is_possible.then_some(FileOp::InsertRange { offset, len })
    }
}
