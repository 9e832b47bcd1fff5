//! The body of a file: the mapping from its blocks to blocks of the volume.
//!
//! Responsible for looking up, filling, converting, removing, moving and preallocating blocks. Not responsible for data or
//! sizes. Other modules use this one instead of the extent map; only `inode`, which owns the map, also names its type.

mod blocks;
mod preallocation;
mod shift;
mod space;
mod unmap;

use parext4_format::extent::Extent;
use smallvec::SmallVec;

pub(crate) use blocks::FillOptions;

use crate::error::Result;
use crate::extent_map::ExtentMap;
pub(crate) use crate::extent_map::{Mapping, Shift, State};
use crate::layout::Layout;
use crate::meta::{BlockKind, MetaCache};

/// Runs of blocks. Most requests touch at most two.
pub(crate) type Runs = SmallVec<[Mapping; 2]>;

/// Maximum number of blocks that splitting one extent needs.
pub(crate) const CUT_BLOCKS: u32 = ExtentMap::CUT_BLOCKS;

/// Returns the maximum number of blocks that one conversion needs in a map of `depth` levels.
pub(crate) fn worst_case(depth: u16) -> u32 {
    ExtentMap::worst_case(depth)
}

/// Reads the extents of an inode whose map is not in memory, in ascending order. `root` is the inode's `i_block`.
///
/// # Errors
/// Returns an error for corruption and for a failed read.
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
