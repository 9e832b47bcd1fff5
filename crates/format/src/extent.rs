//! Nodes of the extent tree: the 60 bytes of `i_block`, which hold the root, and whole blocks below
//! it.
//!
//! Source: kernel documentation, "Extent Tree".

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::block_range::BlockRange;
use crate::checksum::ChecksumSeed;
use crate::convert::low_32;
use crate::error::{FormatError, Result};
use crate::number::{FileBlock, FsBlock};

/// The longest written extent, in blocks.
pub const MAX_WRITTEN: u32 = 32768;
/// The longest unwritten extent, in blocks.
pub const MAX_UNWRITTEN: u32 = 32767;
/// Maximum depth of a tree (`EXT4_MAX_EXTENT_DEPTH`); a root that is a leaf has depth 0.
pub const MAX_DEPTH: u16 = 5;
/// The bytes of `i_block`.
pub const ROOT_SIZE: usize = 60;

const MAGIC: u16 = 0xf30a;
/// The header and each entry have 12 bytes.
const ENTRY_SIZE: usize = 12;
/// The number that is added to `ee_len` if the extent is unwritten.
const UNWRITTEN_BIAS: u16 = 0x8000;

/// A run of file blocks that is contiguous on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block in the file.
    pub logical: FileBlock,
    /// The first block on the volume.
    pub physical: FsBlock,
    /// The number of blocks: 1 to [`MAX_WRITTEN`] or [`MAX_UNWRITTEN`].
    pub len: u32,
    /// True if the blocks are allocated but were never written: they read as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// Returns the number of the file block after the extent; at most [`FileBlock::LIMIT`].
    #[must_use]
    pub fn end(&self) -> u64 {
        self.logical.to_u64() + u64::from(self.len)
    }

    /// Returns the file blocks of the extent.
    #[must_use]
    pub fn blocks(&self) -> BlockRange {
        BlockRange::clamped(self.logical.to_u64(), self.end())
    }
}

/// An entry of an index node: the subtree that maps the file from block `logical`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The first file block that the subtree may map.
    pub logical: FileBlock,
    /// The block of the node below.
    pub child: FsBlock,
}

/// A node of the extent tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtentNode {
    /// Depth 0: extents, sorted, not overlapping.
    Leaf(Vec<Extent>),
    /// Depth 1 and more: subtrees, sorted.
    Index {
        /// The levels below this node.
        depth: u16,
        /// The subtrees.
        entries: Vec<IndexEntry>,
    },
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    eh_magic: U16,
    eh_entries: U16,
    eh_max: U16,
    eh_depth: U16,
    eh_generation: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawExtent {
    ee_block: U32,
    ee_len: U16,
    ee_start_hi: U16,
    ee_start_lo: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawIndex {
    ei_block: U32,
    ei_leaf_lo: U32,
    ei_leaf_hi: U16,
    ei_unused: U16,
}

const _: () = assert!(size_of::<RawHeader>() == ENTRY_SIZE);
const _: () = assert!(size_of::<RawExtent>() == ENTRY_SIZE);
const _: () = assert!(size_of::<RawIndex>() == ENTRY_SIZE);

/// Returns the number of entries that fit a region of `region_len` bytes. In a block at least 4
/// bytes remain for the checksum, because no power of two is divisible by 12.
#[must_use]
pub const fn capacity(region_len: usize) -> usize {
    region_len.saturating_sub(ENTRY_SIZE) / ENTRY_SIZE
}

/// Parses a node: `bytes` is the 60 bytes of `i_block` or a whole block. Checks the header, that
/// the depth is `expected_depth` if one is given, and that the entries are sorted, do not overlap
/// and end by block 2^32. The caller checks that the physical blocks are on the volume.
///
/// # Errors
/// Names the field that is wrong.
pub fn parse_node(bytes: &[u8], expected_depth: Option<u16>) -> Result<ExtentNode> {
    let (header, body) = RawHeader::ref_from_prefix(bytes).map_err(|_| too_short(bytes))?;
    check_header(header, bytes.len(), expected_depth)?;
    let count = usize::from(header.eh_entries.get());
    let depth = header.eh_depth.get();
    if depth == 0 {
        let (raw, _) =
            <[RawExtent]>::ref_from_prefix_with_elems(body, count).map_err(|_| too_short(bytes))?;
        return parse_leaf(raw).map(ExtentNode::Leaf);
    }
    let (raw, _) = <[RawIndex]>::ref_from_prefix_with_elems(body, count).map_err(|_| too_short(bytes))?;
    Ok(ExtentNode::Index { depth, entries: parse_index(raw)? })
}

fn too_short(bytes: &[u8]) -> FormatError {
    FormatError::new("extent header", "size", format_args!("{} bytes", bytes.len()))
}

fn check_header(header: &RawHeader, region_len: usize, expected_depth: Option<u16>) -> Result<()> {
    let error = |field, problem: String| Err(FormatError::new("extent header", field, problem));
    let (magic, entries, max) = (header.eh_magic.get(), header.eh_entries.get(), header.eh_max.get());
    let depth = header.eh_depth.get();
    if magic != MAGIC {
        return error("eh_magic", format!("{magic:#06x}"));
    }
    let room = capacity(region_len);
    if max == 0 || usize::from(max) > room {
        return error("eh_max", format!("{max}, but {room} entries fit"));
    }
    if entries > max {
        return error("eh_entries", format!("{entries} of {max}"));
    }
    if depth > MAX_DEPTH {
        return error("eh_depth", format!("{depth}, the limit is {MAX_DEPTH}"));
    }
    if let Some(expected) = expected_depth
        && depth != expected
    {
        return error("eh_depth", format!("{depth}, not {expected}"));
    }
    // Only the root of a file without blocks may be empty.
    if entries == 0 && (region_len != ROOT_SIZE || depth > 0) {
        return error("eh_entries", format!("no entries in a node of depth {depth}"));
    }
    Ok(())
}

fn parse_leaf(raw: &[RawExtent]) -> Result<Vec<Extent>> {
    let mut end = 0;
    raw.iter()
        .map(|raw| {
            let extent = parse_extent(raw)?;
            let logical = extent.logical;
            if logical.to_u64() < end {
                return Err(FormatError::new(
                    "extent",
                    "ee_block",
                    format_args!("{logical} is before {end}, the end of the previous extent"),
                ));
            }
            end = extent.end();
            Ok(extent)
        })
        .collect()
}

fn parse_extent(raw: &RawExtent) -> Result<Extent> {
    let raw_len = raw.ee_len.get();
    // 0x8000 is the longest written extent.
    let unwritten = raw_len > UNWRITTEN_BIAS;
    let extent = Extent {
        logical: FileBlock(raw.ee_block.get()),
        physical: join(raw.ee_start_lo, raw.ee_start_hi),
        len: u32::from(if unwritten { raw_len - UNWRITTEN_BIAS } else { raw_len }),
        unwritten,
    };
    if extent.len == 0 || extent.end() > FileBlock::LIMIT {
        let problem = format_args!("{} blocks at block {}", extent.len, extent.logical);
        return Err(FormatError::new("extent", "ee_len", problem));
    }
    Ok(extent)
}

fn parse_index(raw: &[RawIndex]) -> Result<Vec<IndexEntry>> {
    let mut previous = None;
    raw.iter()
        .map(|raw| {
            let logical = FileBlock(raw.ei_block.get());
            if let Some(previous) = previous.replace(logical)
                && logical <= previous
            {
                let problem = format_args!("{logical} is not after {previous}");
                return Err(FormatError::new("extent index", "ei_block", problem));
            }
            Ok(IndexEntry { logical, child: join(raw.ei_leaf_lo, raw.ei_leaf_hi) })
        })
        .collect()
}

/// Writes a leaf over the whole region: header, extents, zeros. [`seal_block`] writes the checksum
/// of a block.
///
/// # Panics
/// If the extents do not fit, or one has a length or block number that the format cannot hold.
pub fn encode_leaf(out: &mut [u8], extents: &[Extent]) {
    encode(out, 0, extents, |extent| {
        let limit = if extent.unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN };
        assert!((1..=limit).contains(&extent.len), "{extent:?}");
        let len = u16::try_from(extent.len).expect("at most 32768");
        let (ee_start_lo, ee_start_hi) = split(extent.physical);
        RawExtent {
            ee_block: extent.logical.get().into(),
            ee_len: if extent.unwritten { len + UNWRITTEN_BIAS } else { len }.into(),
            ee_start_hi,
            ee_start_lo,
        }
    });
}

/// Writes an index node over the whole region: header, entries, zeros. [`seal_block`] writes the
/// checksum of a block.
///
/// # Panics
/// If the entries do not fit, or one has a block number that the format cannot hold.
pub fn encode_index(out: &mut [u8], depth: u16, entries: &[IndexEntry]) {
    assert!((1..=MAX_DEPTH).contains(&depth), "an index node of depth {depth}");
    encode(out, depth, entries, |entry| {
        let (ei_leaf_lo, ei_leaf_hi) = split(entry.child);
        RawIndex { ei_block: entry.logical.get().into(), ei_leaf_lo, ei_leaf_hi, ei_unused: U16::ZERO }
    });
}

fn encode<T, R>(out: &mut [u8], depth: u16, entries: &[T], to_raw: impl Fn(&T) -> R)
where
    R: IntoBytes + Immutable,
{
    let room = capacity(out.len());
    assert!(entries.len() <= room, "{} entries with room for {room}", entries.len());
    let count = |n: usize| U16::new(u16::try_from(n).expect("a block holds fewer than 65536 entries"));
    let header = RawHeader {
        eh_magic: MAGIC.into(),
        eh_entries: count(entries.len()),
        eh_max: count(room),
        eh_depth: depth.into(),
        eh_generation: U32::ZERO,
    };
    out.fill(0);
    let (head, body) = out.split_at_mut(ENTRY_SIZE);
    head.copy_from_slice(header.as_bytes());
    for (slot, entry) in body.chunks_exact_mut(ENTRY_SIZE).zip(entries) {
        slot.copy_from_slice(to_raw(entry).as_bytes());
    }
}

/// Verifies the checksum after the entries of a node in a block. The root has no checksum of its
/// own: that of its inode covers it.
///
/// # Errors
/// If the checksum does not match, or `eh_max` leaves no room for it.
pub fn verify_block(seed: ChecksumSeed, bytes: &[u8]) -> Result<()> {
    let (covered, tail) = split_tail(bytes)?;
    let (stored, computed) = (u32::from_le_bytes(*tail), seed.of(covered));
    if stored == computed { Ok(()) } else { Err(FormatError::checksum("extent block", stored, computed)) }
}

/// Writes the checksum after the entries of a node in a block.
///
/// # Panics
/// If `bytes` is not a node that [`encode_leaf`] or [`encode_index`] wrote, or [`verify_block`]
/// accepted.
pub fn seal_block(seed: ChecksumSeed, bytes: &mut [u8]) {
    let (covered, _) = split_tail(bytes).expect("an extent block with room for its checksum");
    let (at, checksum) = (covered.len(), seed.of(covered));
    bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns the bytes that a block's checksum covers, and the checksum, which is after the space for
/// `eh_max` entries.
fn split_tail(bytes: &[u8]) -> Result<(&[u8], &[u8; 4])> {
    let (header, _) = RawHeader::ref_from_prefix(bytes).map_err(|_| too_short(bytes))?;
    let max = header.eh_max.get();
    let (covered, tail) =
        bytes.split_at_checked(ENTRY_SIZE + ENTRY_SIZE * usize::from(max)).unwrap_or((bytes, &[]));
    let no_room = || {
        let problem = format_args!("{max} leaves no room for the checksum in {} bytes", bytes.len());
        FormatError::new("extent header", "eh_max", problem)
    };
    tail.first_chunk().map(|tail| (covered, tail)).ok_or_else(no_room)
}

fn join(low: U32, high: U16) -> FsBlock {
    FsBlock(u64::from(high.get()) << 32 | u64::from(low.get()))
}

fn split(block: FsBlock) -> (U32, U16) {
    let block = block.get();
    let high = u16::try_from(block >> 32).expect("a block number of at most 48 bits");
    (U32::new(low_32(block)), U16::new(high))
}
