//! The body of a file: where its blocks lie. Other modules look runs of blocks up, fill holes, convert, remove, shift and
//! preallocate through this one. Of them only `inode`, which keeps the map, knows that it is a tree of extents.

mod blocks;
mod preallocation;
mod shift;
mod space;
mod unmap;

use parext4_format::extent::Extent;
use smallvec::SmallVec;

pub(crate) use blocks::Filling;

use crate::error::Result;
use crate::extent_map::ExtentMap;
pub(crate) use crate::extent_map::{Mapping, Shift, State};
use crate::layout::Layout;
use crate::meta::{BlockKind, MetaCache};

/// Runs of blocks; few requests meet more than two.
pub(crate) type Runs = SmallVec<[Mapping; 2]>;

/// The most blocks that cutting one extent takes.
pub(crate) const CUT_BLOCKS: u32 = ExtentMap::CUT_BLOCKS;

/// Returns the most blocks that one conversion takes in a map of `depth` levels.
pub(crate) fn worst_case(depth: u16) -> u32 {
    ExtentMap::worst_case(depth)
}

/// Reads the extents of an inode whose map is not in memory, in order; `root` is the inode's `i_block`.
///
/// # Errors
/// Corruption, a failed read.
pub(crate) fn read_extents(
    root: &[u8; 60],
    layout: &Layout,
    kind: BlockKind,
    cache: &MetaCache,
) -> Result<Vec<Extent>> {
    let map = ExtentMap::load(root, layout, kind, cache, true)?;
    let (mut extents, mut next) = (Vec::new(), Some(0));
    while let Some(extent) = next.and_then(|next| map.extent_from(next)) {
        next = u32::try_from(extent.end()).ok();
        extents.push(extent);
    }
    Ok(extents)
}
