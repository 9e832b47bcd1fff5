//! Random operations on one file, in the manner of fsx.

#![allow(missing_docs, reason = "the fields and variants explain themselves")]

use crate::rng::Rng;

/// The largest size of the file in bytes.
pub const MAX_SIZE: u64 = 4 << 20;
/// Length of the longest read or write in bytes.
const LONGEST: u64 = 256 << 10;
const SECTOR: u64 = 512;

/// How an operation reaches the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Buffered,
    Direct,
}

/// The properties of the file on which the choice depends, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub size: u64,
    pub block: u64,
}

/// One operation; offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Read { way: Way, offset: u64, len: u64 },
    Write { way: Way, offset: u64, len: u64 },
    Append { way: Way, len: u64 },
    SetLen { size: u64 },
    Allocate { offset: u64, len: u64, keep_size: bool },
    PunchHole { offset: u64, len: u64 },
    ZeroRange { offset: u64, len: u64, keep_size: bool },
    CollapseRange { offset: u64, len: u64 },
    InsertRange { offset: u64, len: u64 },
    SyncRange { offset: u64, len: u64 },
    SyncData { way: Way },
    SyncAll { way: Way },
    Seek { offset: u64 },
}

impl Op {
    /// Returns an operation that is allowed on a file of this shape.
    pub fn random(rng: &mut Rng, shape: &Shape) -> Self {
        let way = if rng.chance(60) { Way::Buffered } else { Way::Direct };
        let (offset, len) = extent(rng, shape.size);
        match rng.below(100) {
            0..30 => read(rng, shape, way),
            30..62 => write(rng, shape, way),
            62..68 => append(rng, shape, way),
            68..74 => Self::SetLen { size: size(rng, shape) },
            74..78 => Self::Allocate { offset, len, keep_size: rng.chance(50) },
            78..84 => Self::PunchHole { offset, len },
            84..88 => Self::ZeroRange { offset, len, keep_size: rng.chance(50) },
            88..90 => collapse(rng, shape).unwrap_or(Self::SyncData { way }),
            90..92 => insert(rng, shape).unwrap_or(Self::SyncAll { way }),
            92..94 => Self::SyncRange { offset, len },
            94..95 => Self::SyncData { way },
            95..96 => Self::SyncAll { way },
            _ => Self::Seek { offset },
        }
    }

    /// Returns true if the operation fails on a file without extents.
    pub fn needs_extents(&self) -> bool {
        matches!(
            self,
            Self::Allocate { .. }
                | Self::ZeroRange { .. }
                | Self::CollapseRange { .. }
                | Self::InsertRange { .. }
        )
    }
}

/// Returns an offset and a length, mostly within the file.
fn extent(rng: &mut Rng, size: u64) -> (u64, u64) {
    let limit = if rng.chance(80) { size.max(1) } else { MAX_SIZE };
    let offset = rng.below(limit.min(MAX_SIZE));
    (offset, rng.log_uniform(LONGEST).min(MAX_SIZE - offset))
}

/// Rounds a request out to sectors, unless it ends at the end of the file.
fn aligned(offset: u64, len: u64, size: u64) -> (u64, u64) {
    let start = offset - offset % SECTOR;
    let end = (offset + len).next_multiple_of(SECTOR);
    (start, if offset + len == size { size - start } else { end - start })
}

fn read(rng: &mut Rng, shape: &Shape, way: Way) -> Op {
    let (offset, len) = extent(rng, shape.size);
    let (offset, len) = if way == Way::Direct { aligned(offset, len, shape.size) } else { (offset, len) };
    Op::Read { way, offset, len }
}

fn write(rng: &mut Rng, shape: &Shape, way: Way) -> Op {
    let (offset, len) = extent(rng, shape.size);
    let (offset, len) = if way == Way::Direct { aligned(offset, len, shape.size) } else { (offset, len) };
    Op::Write { way, offset, len }
}

/// Returns an append. Direct appends need whole sectors.
fn append(rng: &mut Rng, shape: &Shape, way: Way) -> Op {
    let way = if shape.size.is_multiple_of(SECTOR) { way } else { Way::Buffered };
    let len = rng.log_uniform(LONGEST);
    match shape.size + len <= MAX_SIZE {
        true => Op::Append { way, len },
        false => Op::SetLen { size: size(rng, shape) },
    }
}

/// Returns a new size. Small ones are likely enough that the file does not stay large.
fn size(rng: &mut Rng, shape: &Shape) -> u64 {
    match rng.below(4) {
        0 => rng.below(MAX_SIZE),
        1 => rng.log_uniform(MAX_SIZE),
        2 => (shape.size + rng.log_uniform(LONGEST)).min(MAX_SIZE),
        _ => shape.size - rng.below(shape.size + 1).min(LONGEST),
    }
}

fn collapse(rng: &mut Rng, shape: &Shape) -> Option<Op> {
    let blocks = shape.size.div_ceil(shape.block);
    let first = rng.below(blocks.checked_sub(1).filter(|&most| most > 0)?);
    let (offset, len) = (first * shape.block, rng.log_uniform((blocks - first).min(64)) * shape.block);
    (offset + len < shape.size).then_some(Op::CollapseRange { offset, len })
}

fn insert(rng: &mut Rng, shape: &Shape) -> Option<Op> {
    let offset = rng.below(shape.size.div_ceil(shape.block).max(1)) * shape.block;
    let len = rng.log_uniform(64) * shape.block;
    (offset < shape.size && shape.size + len <= MAX_SIZE).then_some(Op::InsertRange { offset, len })
}
