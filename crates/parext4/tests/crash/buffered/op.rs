//! Operations on a file. Offsets and lengths are in sectors, including collapsed and inserted
//! ranges.

use parext4::{DirectFile, Error, File, FileSize};

use testkit::rng::Rng;
use testkit::sector::{SECTOR, Stamp, filled};

/// Approximate size, in sectors, to which a file grows.
pub const MOST: u64 = 400;
/// Sectors of the longest write.
const LONGEST: u64 = 64;

/// How an operation reaches the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Buffered,
    /// Buffered, and durable when it returns (`O_DSYNC`).
    Durable,
    Direct,
}

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Write { way: Way, first: u64, sectors: u64 },
    Append { way: Way, sectors: u64 },
    SetLen { sectors: u64 },
    Allocate { first: u64, sectors: u64, keep_size: bool },
    Punch { first: u64, sectors: u64 },
    Zero { first: u64, sectors: u64, keep_size: bool },
    Collapse { first: u64, sectors: u64 },
    Insert { first: u64, sectors: u64 },
    SyncRange { first: u64, sectors: u64 },
    SyncData { way: Way },
    SyncAll { way: Way },
}

/// One file, opened in each mode.
pub struct Handles {
    pub file: DirectFile,
    pub buffered: File,
    pub durable: File,
}

impl Op {
    /// Returns an operation that is allowed on a file of `size` sectors, with blocks of `block`
    /// sectors.
    pub fn random(rng: &mut Rng, size: u64, block: u64) -> Self {
        let (first, sectors) = extent(rng, size);
        let keep_size = rng.chance(50);
        let way = match rng.below(10) {
            0..6 => Way::Buffered,
            6 => Way::Durable,
            _ => Way::Direct,
        };
        match rng.below(100) {
            0..34 => Self::Write { way, first, sectors },
            34..44 if size + sectors <= MOST => Self::Append { way, sectors },
            34..52 => Self::SetLen { sectors: first },
            52..56 => Self::Allocate { first, sectors, keep_size },
            56..64 => Self::Punch { first, sectors },
            64..71 => Self::Zero { first, sectors, keep_size },
            71..77 => collapse(rng, size, block).unwrap_or(Self::SyncAll { way }),
            77..83 => insert(rng, size, block).unwrap_or(Self::SyncData { way }),
            83..89 => Self::SyncRange { first, sectors },
            89..95 => Self::SyncData { way },
            _ => Self::SyncAll { way },
        }
    }

    /// Runs the operation. A write at sector `first` is filled with `stamp`.
    pub fn run(self, on: &Handles, stamp: Stamp, first: u64) -> Result<(), Error> {
        let at = |sectors: u64| sectors * SECTOR as u64;
        match self {
            Self::Write { way, sectors, .. } => {
                let data = filled(first, sectors, stamp);
                match way {
                    Way::Buffered => on.buffered.write_all_at(&data, at(first)),
                    Way::Durable => on.durable.write_all_at(&data, at(first)),
                    Way::Direct => on.file.write_all_at(&data, at(first)),
                }
            }
            Self::Append { way, sectors } => {
                let data = filled(first, sectors, stamp);
                let went = match way {
                    Way::Buffered => on.buffered.append(&data)?,
                    Way::Durable => on.durable.append(&data)?,
                    Way::Direct => on.file.append(&data)?,
                };
                assert_eq!(went, at(first), "where an append went");
                Ok(())
            }
            Self::SetLen { sectors } => on.buffered.set_len(at(sectors)),
            Self::Allocate { first, sectors, keep_size } => {
                on.file.allocate(at(first)..at(first + sectors), FileSize::kept_if(keep_size))
            }
            Self::Punch { first, sectors } => on.file.punch_hole(at(first)..at(first + sectors)),
            Self::Zero { first, sectors, keep_size } => {
                on.file.zero_range(at(first)..at(first + sectors), FileSize::kept_if(keep_size))
            }
            Self::Collapse { first, sectors } => on.file.collapse_range(at(first)..at(first + sectors)),
            Self::Insert { first, sectors } => on.file.insert_range(at(first)..at(first + sectors)),
            Self::SyncRange { first, sectors } => on.buffered.sync_range(at(first)..at(first + sectors)),
            Self::SyncData { way: Way::Direct } => on.file.sync_data(),
            Self::SyncData { .. } => on.buffered.sync_data(),
            Self::SyncAll { way: Way::Direct } => on.file.sync_all(),
            Self::SyncAll { .. } => on.buffered.sync_all(),
        }
    }
}

/// Returns a range of sectors, mostly within the file. Half of the ranges are whole pages.
fn extent(rng: &mut Rng, size: u64) -> (u64, u64) {
    let limit = if rng.chance(80) { size.max(1) } else { MOST };
    let (first, sectors) = (rng.below(limit.min(MOST)), rng.log_uniform(LONGEST));
    let align = if rng.chance(50) { 8 } else { 1 };
    (first / align * align, sectors.next_multiple_of(align))
}

fn collapse(rng: &mut Rng, size: u64, block: u64) -> Option<Op> {
    let blocks = size.div_ceil(block);
    let first = rng.below(blocks.checked_sub(1).filter(|&most| most > 0)?);
    let (first, sectors) = (first * block, rng.log_uniform((blocks - first).min(16)) * block);
    (first + sectors < size).then_some(Op::Collapse { first, sectors })
}

fn insert(rng: &mut Rng, size: u64, block: u64) -> Option<Op> {
    let first = rng.below(size.div_ceil(block).max(1)) * block;
    let sectors = rng.log_uniform(16) * block;
    (first < size && size + sectors <= MOST).then_some(Op::Insert { first, sectors })
}
