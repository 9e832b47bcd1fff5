//! What is done to the file.

use crate::common::rng::Rng;

/// The largest the file gets, in bytes.
pub const MOST: u64 = 4 << 20;
/// The longest read or write, in bytes.
const LONGEST: u64 = 256 << 10;
const SECTOR: u64 = 512;

/// How an operation reaches the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Buffered,
    Direct,
}

/// What of the file an operation is chosen by, in bytes.
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
    /// An operation that is allowed on a file of this shape.
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
}

/// Any bytes, mostly of the file.
fn extent(rng: &mut Rng, size: u64) -> (u64, u64) {
    let limit = if rng.chance(80) { size.max(1) } else { MOST };
    let offset = rng.below(limit.min(MOST));
    (offset, rng.log_uniform(LONGEST).min(MOST - offset))
}

/// The request rounded out to sectors, unless it ends with the file.
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

/// Direct ones take whole sectors.
fn append(rng: &mut Rng, shape: &Shape, way: Way) -> Op {
    let way = if shape.size.is_multiple_of(SECTOR) { way } else { Way::Buffered };
    let len = rng.log_uniform(LONGEST);
    match shape.size + len <= MOST {
        true => Op::Append { way, len },
        false => Op::SetLen { size: size(rng, shape) },
    }
}

/// Now and then small, so that the file does not stay large.
fn size(rng: &mut Rng, shape: &Shape) -> u64 {
    match rng.below(4) {
        0 => rng.below(MOST),
        1 => rng.log_uniform(MOST),
        2 => (shape.size + rng.log_uniform(LONGEST)).min(MOST),
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
    (offset < shape.size && shape.size + len <= MOST).then_some(Op::InsertRange { offset, len })
}
