//! Walks the map of one file: the extent tree or the indirect blocks.
//!
//! A walk reads a node only if the sink accepts it. A sink accepts each block once, and repeated
//! blocks a limited number of times, so the walks over a hostile volume end.

use parext4_format::extent::{self, Extent, ExtentNode, IndexEntry};
use parext4_format::inode::{Inode, InodeFlags};
use parext4_format::{ChecksumSeed, FileBlock, FormatError, FsBlock, InodeNo};

use crate::problem::{
    PR_1_EXTENT_BAD_START_BLK, PR_1_EXTENT_END_OUT_OF_BOUNDS, PR_1_EXTENT_ENDS_BEYOND,
    PR_1_EXTENT_HEADER_INVALID, PR_1_EXTENT_INDEX_START_INVALID, PR_1_EXTENT_LENGTH_ZERO,
    PR_1_EXTENT_ONLY_CSUM_INVALID, PR_1_ILLEGAL_BLOCK_NUM, PR_1_MISSING_EXTENT_HEADER,
    PR_1_OUT_OF_ORDER_EXTENTS, PR_1_READ_EXTENT, Problem,
};
use crate::volume::Volume;

/// Blocks of a file that are contiguous on the volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub logical: u64,
    pub physical: u64,
    pub len: u64,
    pub unwritten: bool,
}

/// Receives the results of a walk.
pub(crate) trait Sink {
    /// Returns true if the walk may read this block, which belongs to the map itself.
    fn node(&mut self, block: u64) -> bool;
    fn data(&mut self, run: Run);
    /// Reports a part of the map that is wrong. Its blocks are unknown.
    fn wrong(&mut self, error: FormatError, problem: Problem);
    /// Reports a part of the map that is wrong, after which e2fsck goes on as the walk does, and
    /// counts the same blocks.
    fn flaw(&mut self, error: FormatError, problem: Problem) {
        self.wrong(error, problem);
    }
}

/// Walks the map of an inode that has one: the inode is not inline, a short link or a device.
pub(crate) fn walk(volume: &Volume<'_>, ino: InodeNo, inode: &Inode, sink: &mut dyn Sink) {
    let mut walk = Walk { volume, sink };
    if inode.flags.contains(InodeFlags::EXTENTS) {
        let seed = volume.seed.map(|seed| seed.inode(ino, inode.generation));
        let mut allowed = Allowed { from: 0, below: FileBlock::LIMIT };
        walk.extents(&inode.block, None, seed, None, &mut allowed);
    } else {
        walk.indirect(&inode.block);
    }
}

struct Walk<'a, 'v> {
    volume: &'a Volume<'v>,
    sink: &'a mut dyn Sink,
}

/// The file blocks that the next extents may map.
struct Allowed {
    from: u64,
    below: u64,
}

impl Walk<'_, '_> {
    fn extents(
        &mut self,
        bytes: &[u8],
        depth: Option<u16>,
        seed: Option<ChecksumSeed>,
        block: Option<u64>,
        allowed: &mut Allowed,
    ) {
        let place = |error: FormatError| match block {
            Some(block) => error.in_block(FsBlock(block)),
            None => error,
        };
        let node = extent::parse_node(bytes, depth);
        if node.is_ok() {
            self.extent_room(bytes, block);
        }
        match node {
            Err(error) => self.sink.wrong(place(error.clone()), problem_of(&error)),
            Ok(ExtentNode::Leaf(extents)) => {
                extents.iter().for_each(|extent| self.extent(extent, block, allowed));
            }
            Ok(ExtentNode::Index { depth, entries }) => {
                let end = allowed.below;
                for (at, entry) in entries.iter().enumerate() {
                    allowed.below = entries.get(at + 1).map_or(end, |next| next.logical.to_u64().min(end));
                    self.child(entry, depth - 1, seed, block, allowed);
                    allowed.from = allowed.below;
                }
                allowed.below = end;
            }
        }
    }

    /// Checks that the header of a node counts all of the node as room for entries. At most two
    /// entries may be missing. The parser has refused counts that are too large.
    fn extent_room(&mut self, bytes: &[u8], block: Option<u64>) {
        const HEADER: usize = 12;
        const ENTRY: usize = 12;
        let room = (bytes.len() - HEADER) / ENTRY;
        let max = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
        if max + 2 < room {
            let error =
                FormatError::new("extent header", "eh_max", format_args!("{max}, but {room} entries fit"));
            match block {
                Some(block) => self.sink.wrong(error.in_block(FsBlock(block)), PR_1_EXTENT_HEADER_INVALID),
                None => self.sink.wrong(error, PR_1_MISSING_EXTENT_HEADER),
            }
        }
    }

    fn child(
        &mut self,
        entry: &IndexEntry,
        depth: u16,
        seed: Option<ChecksumSeed>,
        parent: Option<u64>,
        allowed: &mut Allowed,
    ) {
        let block = entry.child.get();
        let fail = |field, problem: String| {
            let error = FormatError::new("extent index", field, problem);
            parent.map_or(error.clone(), |parent| error.in_block(FsBlock(parent)))
        };
        if !self.volume.has_blocks(block, 1) {
            let error = fail("ei_leaf", format!("{block} is out of range"));
            return self.out_of_range(block, error, PR_1_EXTENT_BAD_START_BLK);
        }
        if entry.logical.to_u64() < allowed.from {
            let error = fail("ei_block", format!("{} is before {}", entry.logical, allowed.from));
            return self.sink.wrong(error, PR_1_OUT_OF_ORDER_EXTENTS);
        }
        allowed.from = entry.logical.to_u64();
        if !self.sink.node(block) {
            return;
        }
        let mut buf = self.volume.buffer(1);
        if !self.volume.read(block, &mut buf, "extent block", PR_1_READ_EXTENT) {
            return;
        }
        if let Some(seed) = seed
            && let Err(error) = extent::verify_block(seed, &buf)
        {
            self.sink.flaw(error.in_block(FsBlock(block)), PR_1_EXTENT_ONLY_CSUM_INVALID);
        }
        if first_logical(&buf).is_some_and(|first| first != entry.logical.to_u64()) {
            let error = fail("ei_block", format!("{} is not the first block of node {block}", entry.logical));
            self.sink.flaw(error, PR_1_EXTENT_INDEX_START_INVALID);
        }
        self.extents(&buf, Some(depth), seed, Some(block), allowed);
    }

    fn extent(&mut self, extent: &Extent, block: Option<u64>, allowed: &mut Allowed) {
        let (start, len) = (extent.physical.get(), u64::from(extent.len));
        let logical = extent.logical.to_u64();
        let fail = |field, problem: String| {
            let error = FormatError::new("extent", field, problem);
            block.map_or(error.clone(), |block| error.in_block(FsBlock(block)))
        };
        if !self.volume.has_blocks(start, len) {
            let beyond = self.volume.has_blocks(start, 1);
            let problem = if beyond { PR_1_EXTENT_ENDS_BEYOND } else { PR_1_EXTENT_BAD_START_BLK };
            let error = fail("ee_start", format!("{len} blocks from {start} are out of range"));
            self.out_of_range(start, error, problem);
        } else if logical < allowed.from {
            let error = fail("ee_block", format!("{logical} is before {}", allowed.from));
            self.sink.wrong(error, PR_1_OUT_OF_ORDER_EXTENTS);
        } else if extent.end() > allowed.below {
            let error = fail(
                "ee_len",
                format!("ends at {}, and the next node begins at {}", extent.end(), allowed.below),
            );
            self.sink.wrong(error, PR_1_EXTENT_END_OUT_OF_BOUNDS);
        } else {
            self.sink.data(Run { logical, physical: start, len, unwritten: extent.unwritten });
        }
        allowed.from = allowed.from.max(extent.end());
    }

    /// Reports an entry whose blocks from `start` are out of range. The superblock is not out of
    /// range for e2fsck, which counts that block.
    fn out_of_range(&mut self, start: u64, error: FormatError, problem: Problem) {
        if start != 0 && start == u64::from(self.volume.sb.first_data_block()) {
            self.sink.wrong(error, problem);
        } else {
            self.sink.flaw(error, problem);
        }
    }

    /// Walks twelve direct blocks, and one tree of each depth up to three.
    fn indirect(&mut self, words: &[u8]) {
        let mut runs = Joined::default();
        let (direct, trees) = words.split_at(12 * 4);
        self.pointers(direct, 0, 0, &mut runs);
        let per_block = (self.volume.block_size / 4) as u64;
        let mut logical = 12;
        for (level, word) in (1_u32..).zip(trees.chunks_exact(4)) {
            self.pointers(word, level, logical, &mut runs);
            logical += per_block.pow(level);
        }
        runs.end(self.sink);
    }

    /// Walks pointers, which lead to data, or at a `level` above 0 to blocks of pointers. The first
    /// pointer maps file block `logical`. With blocks of 8 KiB or more, the tree has room for more
    /// blocks than a file can have.
    ///
    /// The walk of a tree ends at the first block of pointers that is out of range or cannot be
    /// read, as in e2fsck. Returns false then.
    fn pointers(&mut self, words: &[u8], level: u32, mut logical: u64, runs: &mut Joined) -> bool {
        let step = ((self.volume.block_size / 4) as u64).pow(level);
        for word in words.chunks_exact(4) {
            let block = u64::from(word.first_chunk().map_or(0, |word| u32::from_le_bytes(*word)));
            if block != 0 {
                if logical >= FileBlock::LIMIT {
                    let problem =
                        format!("block {block} is for file block {logical}, which no file can have");
                    let error = FormatError::new("block map", "i_block", problem);
                    self.sink.wrong(error, PR_1_ILLEGAL_BLOCK_NUM);
                } else if !self.volume.has_blocks(block, 1) {
                    let problem = format!("file block {logical}: {block} is out of range");
                    let error = FormatError::new("block map", "i_block", problem);
                    self.out_of_range(block, error, PR_1_ILLEGAL_BLOCK_NUM);
                    if level > 0 {
                        return false;
                    }
                } else if level == 0 {
                    runs.add(logical, block, self.sink);
                } else if self.sink.node(block) {
                    let mut buf = self.volume.buffer(1);
                    if !self.volume.read(block, &mut buf, "indirect block", PR_1_ILLEGAL_BLOCK_NUM)
                        || !self.pointers(&buf, level - 1, logical, runs)
                    {
                        return false;
                    }
                }
            }
            logical += step;
        }
        true
    }
}

/// Joins blocks that follow each other.
#[derive(Default)]
struct Joined(Option<Run>);

impl Joined {
    fn add(&mut self, logical: u64, physical: u64, sink: &mut dyn Sink) {
        match &mut self.0 {
            Some(run) if run.logical + run.len == logical && run.physical + run.len == physical => {
                run.len += 1;
            }
            run => {
                let new = Run { logical, physical, len: 1, unwritten: false };
                if let Some(run) = run.replace(new) {
                    sink.data(run);
                }
            }
        }
    }

    fn end(self, sink: &mut dyn Sink) {
        if let Some(run) = self.0 {
            sink.data(run);
        }
    }
}

/// Returns the first file block of a node: extents and index entries begin with it.
fn first_logical(node: &[u8]) -> Option<u64> {
    const HEADER: usize = 12;
    let word = node.get(HEADER..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word).into())
}

fn problem_of(error: &FormatError) -> Problem {
    match error.field {
        "ee_len" => PR_1_EXTENT_LENGTH_ZERO,
        "ee_block" | "ei_block" => PR_1_OUT_OF_ORDER_EXTENTS,
        _ => PR_1_EXTENT_HEADER_INVALID,
    }
}
