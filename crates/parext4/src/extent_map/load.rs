//! Reading an extent tree from the device.
//!
//! This module makes all checks that keep a corrupt or malicious tree harmless (I9).
//! `parext4_format::extent` parses the nodes.

use parext4_format::extent::{self, Extent, ExtentNode, IndexEntry};
use parext4_format::{FileBlock, FsBlock};

use super::ExtentMap;
use super::leaf::Leaf;
use super::node::{Content, Node, Tree};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::meta::{BlockKind, MetaCache};

impl ExtentMap {
    /// Reads the tree with the root `i_block` and nodes of kind `kind`.
    ///
    /// The walk ends on any input: each child has a lower depth than its parent, and keys ascend,
    /// so no node can appear twice. With `disjoint`, a block that is used twice is reported as
    /// corruption. A write to such a block would change another place of the file or the tree, and
    /// it would be freed twice. Without `disjoint`, the extents may map at most as many blocks as
    /// the volume has, unless the volume has shared blocks, because the view of a file uses memory
    /// for each mapped block.
    ///
    /// # Errors
    /// Returns an error for corruption and for a failed read.
    pub(crate) fn load(
        i_block: &[u8; 60],
        layout: &Layout,
        kind: BlockKind,
        cache: &MetaCache,
        disjoint: bool,
    ) -> Result<Self> {
        let mut loader = Loader {
            layout,
            cache,
            kind,
            next: 0,
            mapped: 0,
            disjoint,
            last_cluster: None,
            runs: Vec::new(),
        };
        let root = extent::parse_node(i_block, None)?;
        let depth = if let ExtentNode::Index { depth, .. } = &root { *depth } else { 0 };
        let capacity = extent::capacity(layout.block_size.bytes() as usize);
        let root = loader.node(None, root)?;
        if disjoint {
            check_disjoint(loader.runs)?;
        }
        Ok(Self::with(Tree::new(root, depth, capacity, kind)))
    }
}

struct Loader<'a> {
    layout: &'a Layout,
    cache: &'a MetaCache,
    kind: BlockKind,
    /// The first file block that the next extent may map.
    next: u64,
    /// The number of blocks mapped so far.
    mapped: u64,
    /// The last cluster that was mapped: its first block in the file and on the volume.
    last_cluster: Option<(FileBlock, FsBlock)>,
    disjoint: bool,
    /// The volume blocks of the nodes and extents read so far, as `(start, length)`.
    runs: Vec<(u64, u32)>,
}

impl Loader<'_> {
    fn node(&mut self, block: Option<FsBlock>, node: ExtentNode) -> Result<Node> {
        let content = match node {
            ExtentNode::Leaf(extents) => {
                for extent in &extents {
                    if u64::from(extent.logical.get()) < self.next {
                        return Err(overlap("extent", "ee_block", extent.logical, block));
                    }
                    self.layout.check_data_range(extent.physical, u64::from(extent.len))?;
                    self.next = extent.end();
                    self.mapped += u64::from(extent.len);
                    if self.mapped > self.layout.max_mapped_blocks {
                        let problem = "the file maps more blocks than the volume has";
                        return Err(Error::corrupt_field("extent", "ee_len", problem));
                    }
                    if self.disjoint {
                        self.add_clusters(extent)?;
                    }
                }
                Content::Leaf(Leaf::new(extents, None))
            }
            ExtentNode::Index { depth, entries } => {
                let mut children = Vec::with_capacity(entries.len());
                for entry in entries {
                    if u64::from(entry.logical.get()) < self.next {
                        return Err(overlap("extent index", "ei_block", entry.logical, block));
                    }
                    self.next = u64::from(entry.logical.get());
                    self.layout.check_data_range(entry.child, 1)?;
                    let cluster = self.layout.cluster_start(entry.child);
                    self.runs.push((cluster.get(), self.layout.cluster_blocks()));
                    let bytes = self.cache.read(entry.child, self.kind)?.snapshot();
                    let child =
                        extent::parse_node(&bytes, Some(depth - 1)).map_err(|e| e.in_block(entry.child))?;
                    let child = self.node(Some(entry.child), child)?;
                    check_key(&entry, &child)?;
                    children.push(child);
                }
                Content::Index(children)
            }
        };
        Ok(Node::new(block, content))
    }

    /// Adds the clusters of `extent`, except the first one if the previous extent has blocks in it,
    /// too. Otherwise a cluster would be freed with the first of its blocks (H38).
    fn add_clusters(&mut self, extent: &Extent) -> Result<()> {
        let layout = self.layout;
        let clusters = layout.clusters_of(extent.blocks());
        let start = layout.cluster_start(extent.physical);
        let misplaced = |problem| {
            let place = format_args!("block {} for file block {} {problem}", extent.physical, extent.logical);
            Error::corrupt_field("extent", "ee_start", place)
        };
        if extent.physical.get() - start.get() != u64::from(extent.logical - clusters.start()) {
            return Err(misplaced("has another place in its cluster"));
        }
        let shared = match self.last_cluster {
            Some((logical, physical)) if logical == clusters.start() && physical == start => {
                layout.cluster_blocks()
            }
            Some((logical, _)) if logical == clusters.start() => {
                return Err(misplaced("is not in the cluster of the block before it"));
            }
            _ => 0,
        };
        let last = clusters.count() - layout.cluster_blocks();
        self.last_cluster = Some((clusters.start() + last, start + u64::from(last)));
        self.runs.push((start.get() + u64::from(shared), clusters.count() - shared));
        Ok(())
    }
}

/// Returns the error for an entry that overlaps an earlier entry.
fn overlap(structure: &'static str, field: &'static str, key: FileBlock, node: Option<FsBlock>) -> Error {
    let error = Error::corrupt_field(structure, field, format_args!("{key} overlaps the entries before it"));
    match node {
        Some(block) => error.in_block(block),
        None => error,
    }
}

/// Returns an error if two runs have a block in common.
fn check_disjoint(mut runs: Vec<(u64, u32)>) -> Result<()> {
    runs.sort_unstable();
    match runs.windows(2).find(|pair| pair[1].0 - pair[0].0 < u64::from(pair[0].1)) {
        Some(pair) => {
            Err(Error::corrupt_field("extent", "ee_start", format_args!("block {} appears twice", pair[1].0)))
        }
        None => Ok(()),
    }
}

/// Checks that the key of an index entry is the first block mapped below. The encoder writes such
/// keys. The kernel maintains them (`ext4_ext_correct_indexes`, `ext4_ext_rm_idx`) and rejects
/// other keys (`ext4_valid_extent_entries`), and e2fsck reports other keys.
fn check_key(entry: &IndexEntry, child: &Node) -> Result<()> {
    let (key, first) = (entry.logical, child.first());
    if key != first {
        let problem = format_args!("{key}, but the node in block {} begins at {first}", entry.child);
        return Err(Error::corrupt_field("extent index", "ei_block", problem));
    }
    Ok(())
}
