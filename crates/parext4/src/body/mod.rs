//! The body of a file: where its blocks lie. Other modules look runs of blocks up, fill holes, convert, remove, shift and
//! preallocate through this one. Of them only `inode`, which keeps the map, knows that it is a tree of extents.

mod blocks;
mod preallocation;
mod shift;
mod space;
mod unmap;

use smallvec::SmallVec;

pub(crate) use blocks::Filling;

use crate::extent_map::ExtentMap;
pub(crate) use crate::extent_map::{Mapping, Shift, State};

/// Runs of blocks; few requests meet more than two.
pub(crate) type Runs = SmallVec<[Mapping; 2]>;

/// The most blocks that cutting one extent takes.
pub(crate) const CUT_BLOCKS: u32 = ExtentMap::CUT_BLOCKS;

/// Returns the most blocks that one conversion takes in a map of `depth` levels.
pub(crate) fn worst_case(depth: u16) -> u32 {
    ExtentMap::worst_case(depth)
}
