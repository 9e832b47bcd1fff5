//! The clusters of a file, in a volume with `bigalloc`: which of them the file has already, and
//! which a change frees.
//!
//! Responsible for the rule that all blocks of one file in a cluster of the file lie in one cluster
//! of the volume (H38). Not responsible for the allocation. A thread that maps or unmaps part of a
//! cluster holds the map's lock exclusively from the look-up of the cluster's other blocks until
//! its own are mapped or unmapped. A thread that maps whole clusters holds the range of all their
//! blocks instead. Without `bigalloc` a cluster is a block, so each hole is in clusters that the
//! file does not have.

use parext4_format::extent::{self, Extent};
use parext4_format::{BlockRange, FileBlock, FsBlock};
use smallvec::SmallVec;

use crate::allocator::Run;
use crate::extent_map::ExtentMap;
use crate::layout::Layout;
use crate::mapping::BlockState;

/// A part of a hole.
#[derive(Clone, Copy, Debug)]
pub(super) struct HolePart {
    pub blocks: BlockRange,
    /// The place of the first block, if the file has the cluster. Otherwise the file has no block
    /// in any cluster of the part.
    pub place: Option<FsBlock>,
}

/// Blocks to map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub extent: Extent,
    /// The number of blocks in the clusters allocated for the piece; 0 if the file has its cluster.
    pub new_blocks: u32,
}

impl Piece {
    /// Returns the blocks allocated for the piece: whole clusters.
    pub(super) fn allocated(&self, layout: &Layout) -> Option<Run> {
        let start = layout.cluster_start(self.extent.physical);
        (self.new_blocks > 0).then_some(Run { start, len: self.new_blocks })
    }
}

/// Splits `holes` into the parts in clusters that the file has, and the other parts.
pub(super) fn parts(layout: &Layout, map: &ExtentMap, holes: &[BlockRange]) -> SmallVec<[HolePart; 4]> {
    let mut parts = SmallVec::new();
    for &hole in holes {
        // Only the first and the last cluster of a hole may have other blocks.
        let in_cluster = |blocks: BlockRange, block: Option<FileBlock>| {
            let part = blocks.intersection(layout.cluster_of(block?));
            Some(HolePart { blocks: part, place: Some(place_of(layout, map, part.start())?) })
        };
        let head = in_cluster(hole, hole.blocks().next());
        let rest = hole.skip(head.map_or(0, |head| head.blocks.count()));
        let tail = in_cluster(rest, rest.last());
        let middle = rest.take(rest.count() - tail.map_or(0, |tail| tail.blocks.count()));
        parts.extend(head);
        parts.extend((!middle.is_empty()).then_some(HolePart { blocks: middle, place: None }));
        parts.extend(tail);
    }
    parts
}

/// Returns true if the file has the cluster of `block`.
pub(super) fn has_cluster(layout: &Layout, map: &ExtentMap, block: FileBlock) -> bool {
    place_of(layout, map, block).is_some()
}

/// Returns the place of `block`, which is not mapped, if the file has its cluster.
fn place_of(layout: &Layout, map: &ExtentMap, block: FileBlock) -> Option<FsBlock> {
    if layout.cluster_bits == 0 {
        return None;
    }
    let cluster = layout.cluster_of(block);
    let other = map.extent_from(cluster.start()).filter(|other| other.logical.to_u64() < cluster.end())?;
    let first = other.logical.max(cluster.start());
    let place = layout.cluster_start(other.physical + u64::from(first - other.logical));
    Some(place + u64::from(block - cluster.start()))
}

/// Returns the blocks to map in `parts`, in ascending order, if `runs` were allocated for the parts
/// without a place. Ends where the runs do.
pub(super) fn pieces(
    layout: &Layout,
    parts: &[HolePart],
    runs: &[Run],
    written: bool,
) -> SmallVec<[Piece; 4]> {
    let new: SmallVec<[BlockRange; 4]> = without_place(parts).map(|part| layout.clusters_of(part)).collect();
    // No cluster is split between two pieces.
    let most = extent::MAX_UNWRITTEN >> layout.cluster_bits << layout.cluster_bits;
    let mut allocated = pair(&new, runs, most, written).peekable();
    let mut pieces = SmallVec::new();
    for part in parts {
        if let Some(physical) = part.place {
            let (logical, len) = (part.blocks.start(), part.blocks.count());
            let extent = Extent { logical, physical, len, unwritten: !written };
            pieces.push(Piece { extent, new_blocks: 0 });
            continue;
        }
        let mut end = part.blocks.start().to_u64();
        while end < part.blocks.end() {
            let Some(clusters) = allocated.next() else { return pieces };
            end = clusters.end();
            let blocks = clusters.blocks().intersection(part.blocks);
            let physical = clusters.physical + u64::from(blocks.start() - clusters.logical);
            let extent = Extent { logical: blocks.start(), physical, len: blocks.count(), ..clusters };
            pieces.push(Piece { extent, new_blocks: clusters.len });
        }
    }
    pieces
}

/// Returns the parts in clusters that the file does not have.
pub(super) fn without_place(parts: &[HolePart]) -> impl Iterator<Item = BlockRange> {
    parts.iter().filter(|part| part.place.is_none()).map(|part| part.blocks)
}

/// Returns the clusters of `extent`, which is not mapped, of which the file has no block: they
/// become free if it was unmapped. `map` is locked exclusively.
pub(super) fn unused(layout: &Layout, map: &ExtentMap, extent: Extent) -> Option<Run> {
    let clusters = layout.clusters_of(extent.blocks());
    let skipped = extent.logical - clusters.start();
    let start = FsBlock(extent.physical.get() - u64::from(skipped));
    let is_used = |block: Option<FileBlock>| {
        let Some(cluster) = block.map(|block| layout.cluster_of(block)) else { return false };
        let place = start + u64::from(cluster.start() - clusters.start());
        map.runs(cluster).any(|run| match run.state {
            BlockState::Written(at) | BlockState::Unwritten(at) => layout.cluster_start(at) == place,
            BlockState::Hole => false,
        })
    };
    if layout.cluster_bits == 0 {
        return Some(Run { start, len: extent.len });
    }
    // Only the first and the last cluster may have other blocks of the file.
    let size = layout.cluster_blocks();
    let (first, last) = (is_used(Some(extent.logical)), is_used(extent.blocks().last()));
    let before = if first { size } else { 0 };
    let after = if last && (!first || clusters.count() > size) { size } else { 0 };
    let len = clusters.count() - before - after;
    (len > 0).then_some(Run { start: start + u64::from(before), len })
}

/// Pairs the blocks of `runs` with the holes of a file, in order. Splits both where the other ends,
/// and at `most` blocks.
pub(super) fn pair(
    holes: &[BlockRange],
    runs: &[Run],
    most: u32,
    written: bool,
) -> impl Iterator<Item = Extent> {
    let mut holes = holes.iter().copied();
    let mut runs = runs.iter().copied();
    let (mut hole, mut run) = (holes.next(), runs.next());
    std::iter::from_fn(move || {
        let (blocks, current) = (hole?, run?);
        let len = blocks.count().min(current.len).min(most);
        hole = Some(blocks.skip(len)).filter(|rest| !rest.is_empty()).or_else(|| holes.next());
        let rest = Run { start: current.start + u64::from(len), len: current.len - len };
        run = if rest.len == 0 { runs.next() } else { Some(rest) };
        Some(Extent { logical: blocks.start(), physical: current.start, len, unwritten: !written })
    })
}
